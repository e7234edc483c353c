/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes, as hook/cuda/memory/ipc.c counts its opens and closes, and the
 * questions that it asks the driver for that: they leave errno as it was. The source is included,
 * and the driver and the cache are this file.
 */
#define pdn_allocated		  fake_allocated
#define pdn_recheck		  fake_recheck
#define pdn_end_range		  fake_end_range
#define pdn_ended		  fake_ended
#define pdn_buffer_is_still_there fake_is_still_there
#include "hook/cuda/memory/ipc.c"

#include <string.h>

#include "tests/unit/hook/checked.h"

#define AT     UINT64_C(0x7f4400000000)
#define LENGTH UINT64_C(0x400000)

static unsigned allocated, rechecks, ends, ended;
static uint64_t allocated_length;
static unsigned long long id = 7; /* of the memory at AT; 0: none */

/* ---- the driver: each question changes errno ---- */

static CUresult attribute_of(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
	errno = EIO;
	if (attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID || addr - AT >= LENGTH || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*(unsigned long long *)data = id;
	return CUDA_SUCCESS;
}

static CUresult range_of(CUdeviceptr *base, size_t *length, CUdeviceptr addr)
{
	errno = EIO;
	if (addr - AT >= LENGTH || !id)
		return CUDA_ERROR_NOT_FOUND;
	*base = AT;
	*length = LENGTH;
	return CUDA_SUCCESS;
}

void *pdn_driver_function(void **slot, const char *name)
{
	*slot = NULL;
	if (!strcmp(name, "cuPointerGetAttribute"))
		*slot = (void *)attribute_of;
	else if (!strcmp(name, "cuMemGetAddressRange_v2"))
		*slot = (void *)range_of;
	return *slot;
}

/* ---- the cache ---- */

void fake_allocated(uint64_t addr, uint64_t length)
{
	check(addr - AT < LENGTH, "what is opened is told");
	allocated++;
	allocated_length = length;
}

void fake_recheck(void *pool)
{
	check(!pool, "all memory is rechecked");
	rechecks++;
}

pdn_guard fake_end_range(uint64_t addr, uint64_t length)
{
	check(addr == AT && !length, "the mapping ends as a whole");
	ends++;
	return (pdn_guard){0};
}

void fake_ended(pdn_guard guard)
{
	(void)guard;
	ended++;
}

/* In a flight: test_races_asks. */
bool fake_is_still_there(uint64_t addr, uint64_t buffer_id)
{
	return pdn_buffer_id(addr) == buffer_id;
}

static bool open_it(void)
{
	unsigned before = allocated;

	errno = 4711;
	pdn_ipc_opened(AT);
	check(errno == 4711, "an open leaves errno");
	return allocated == before + 1;
}

/* Whether the close was taken for the last one. */
static bool close_it(CUresult result, bool is_the_end)
{
	struct call call = {.result = result};

	errno = 4711;
	pdn_ipc_close(&call, AT);
	if (is_the_end)
		id = 0;
	pdn_ipc_closed(&call, AT);
	check(errno == 4711, "a close leaves errno");
	return call.last;
}

int main(void)
{
	errno = 4711;
	check(pdn_buffer_id(AT) == 7 && errno == 4711, "the id of what is there, and errno");
	check(pdn_buffer_id(AT + LENGTH) == 0 && errno == 4711, "no id of what is not");

	check(open_it(), "the first open is an allocation");
	check(allocated_length == LENGTH, "of all of the mapping");
	check(pdn_may_be_device(AT + LENGTH - 1) && !pdn_may_be_device(AT + LENGTH),
	      "which is device memory");
	check(!open_it(), "the second one is none");
	check(!close_it(CUDA_SUCCESS, false) && !ends, "a close of two is not the end");
	check(close_it(CUDA_ERROR_INVALID_VALUE, false) && ends == 1, "the second may be");
	check(close_it(CUDA_SUCCESS, true) && ends == 2, "one that failed did not count");
	check(!rechecks, "all were counted");

	id = 8;
	check(close_it(CUDA_SUCCESS, true) && ends == 3, "without a count each may be the last");
	id = 9;
	check(open_it() && !open_it(), "other memory has other counts");
	check(!close_it(CUDA_SUCCESS, true), "a count that was too high");
	check(rechecks == 1, "shows, and all memory is rechecked");

	id = 10;
	allocated = 0;
	pdn_pointer_imported(0);
	pdn_pointer_imported(AT + LENGTH / 2);
	check(allocated == 1 && allocated_length == LENGTH / 2, "what a pool shares is known");

	id = 0;
	check(!open_it(), "what has no id is no allocation");
	check(close_it(CUDA_SUCCESS, false), "and its close may be the last");
	allocated = 0;
	pdn_ipc_opened(0);
	check(!allocated, "nothing is at 0");
	return checked_end();
}
