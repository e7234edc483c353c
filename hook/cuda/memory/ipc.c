/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes. Counts how often a mapping of it is open. Opening the same handle
 * again gives the same address, and only the last close ends the mapping. The count is kept by
 * buffer id, which no two mappings share. So a mapping that ended unseen (with its context) leaves
 * no count for the next mapping at its address.
 */
#include <errno.h>

#include "cache/dmabuf/foreign_dmabufs.h"
#include "hook/cuda/devicemap.h"
#include "hook/hook.h"
#include "hook/cuda/memory/records.h"

/* By buffer id: how often the mapping is open. */
static struct pdn_key_counts opened;

uint64_t pdn_buffer_id(uint64_t addr)
{
	typeof(cuPointerGetAttribute) *ask = PDN_DRIVER(cuPointerGetAttribute);
	unsigned long long id = 0;
	int error = errno;

	if (!ask || ask(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) != CUDA_SUCCESS)
		id = 0;
	errno = error;
	return id;
}

/* From addr to the end of its mapping; 1 if the driver does not say. */
static uint64_t length_at(uint64_t addr)
{
	typeof(cuMemGetAddressRange_v2) *ask = PDN_DRIVER(cuMemGetAddressRange_v2);
	CUdeviceptr base = 0;
	size_t length = 0;
	int error = errno;
	bool told = ask && ask(&base, &length, addr) == CUDA_SUCCESS;

	errno = error;
	return told && base + length > addr ? base + length - addr : 1;
}

static void shared_memory_begins(uint64_t addr)
{
	uint64_t length = length_at(addr);

	pdn_device_seen(addr, length);
	pdn_allocated(addr, length);
}

/* The call tells no length. What it tells is freed as other memory of pools is. */
void pdn_pointer_imported(uint64_t addr)
{
	if (addr)
		shared_memory_begins(addr);
}

void pdn_ipc_opened(uint64_t addr)
{
	uint64_t id = addr ? pdn_buffer_id(addr) : 0;

	if (!id)
		return;
	pdn_count_begin(&opened, id);
	if (pdn_count_change(&opened, id, 1) == 1)
		shared_memory_begins(addr);
}

/* A mapping without a count was opened by a call that was not seen: each close may be the last. */
void pdn_ipc_close(struct call *call, uint64_t addr)
{
	uint64_t id = addr ? pdn_buffer_id(addr) : 0;

	call->last = !id || pdn_count_change(&opened, id, -1) <= 0;
	call->buffer_id = id;
	if (call->last)
		pdn_caught_range(call, addr, 0);
}

void pdn_ipc_closed(const struct call *call, uint64_t addr)
{
	if (!call->buffer_id)
		return;
	if (!pdn_succeeded(call)) {
		pdn_count_change(&opened, call->buffer_id, 1);
		return;
	}
	/* Another thread may be closing the same memory for the last time, or end its context. */
	if (!call->last && !pdn_buffer_is_still_there(addr, call->buffer_id))
		pdn_recheck(NULL); /* it was the last close, although the count was higher */
	pdn_count_end(&opened, call->buffer_id);
}
