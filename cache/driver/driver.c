/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/pindown.h"

void *(*pd_find_driver_symbol)(const char *name);
bool (*pd_is_mapped)(uint64_t base, uint64_t buffer_id);

/*
 * The functions used here, found at the first use of each, by exported name. What is asked of
 * memory that another thread may be freeing is only what was seen to be safe then: the table "What
 * pindown asks the driver" in docs/how-it-works.md has a row for each.
 */
#define DRIVER_FUNCTIONS(F)                                                                \
	F(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))               \
	F(cuPointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr)) \
	F(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))                      \
	F(cuPointerSetAttribute, (const void *, CUpointer_attribute, CUdeviceptr))         \
	F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                 \
	F(cuMemGetHandleForAddressRange,                                                   \
	  (void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long))         \
	F(cuCtxPushCurrent_v2, (CUcontext))                                                \
	F(cuCtxPopCurrent_v2, (CUcontext *))                                               \
	F(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                       \
	F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                               \
	F(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                        \
	F(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))

#define MEMBER(name, parameters) CUresult(*name) parameters;
static struct {
	DRIVER_FUNCTIONS(MEMBER)
} driver;

static bool forgotten;

/* In the place of a function that this driver has not got. */
#define ABSENT ((void *)-1)

/*
 * Relaxed, here and below: what is found is a function of a library that was loaded before anybody
 * could ask for it, and nothing else comes with it.
 */
static void __attribute__((noinline)) * look_up(void **slot, const char *name)
{
	int saved = errno;
	void *found = pd_find_driver_symbol ? pd_find_driver_symbol(name) : NULL;

	/* Every driver has the one; before it is found there is no driver yet. */
	if (!found && __atomic_load_n(&driver.cuPointerGetAttribute, __ATOMIC_RELAXED))
		found = ABSENT;
	__atomic_store_n(slot, found, __ATOMIC_RELAXED);
	errno = saved;
	return found;
}

static inline __attribute__((always_inline)) void *find(void **slot, const char *name)
{
	void *found = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (__atomic_load_n(&forgotten, __ATOMIC_RELAXED))
		return NULL;
	if (__builtin_expect(!found, 0))
		found = look_up(slot, name);
	return found == ABSENT ? NULL : found;
}

/* Threads that ask at once find, and store, the same. REAL is for what HAVE has found. */
#define REAL(name) __atomic_load_n(&driver.name, __ATOMIC_RELAXED)
#define HAVE(name) find((void **)(void *)&driver.name, #name)

/*
 * What has been found stays: another thread may be about to call it. Relaxed: pairs with find(),
 * for calls to come.
 */
void pd_driver_forget(void)
{
	__atomic_store_n(&forgotten, true, __ATOMIC_RELAXED);
}

static CUresult ask_buffer_id(uint64_t addr, uint64_t *id)
{
	unsigned long long answer = 0;
	CUresult result = CUDA_ERROR_NOT_INITIALIZED;

	if (HAVE(cuPointerGetAttribute))
		result = REAL(cuPointerGetAttribute)(&answer, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr);
	*id = answer;
	return result;
}

static bool buffer_id(uint64_t addr, uint64_t *id)
{
	return ask_buffer_id(addr, id) == CUDA_SUCCESS;
}

/*
 * To the driver this is a call that a stream capture, in this thread or a global one in another, does
 * not allow: it would fail and spoil the program's capture. It has nothing to do with what is being
 * captured, so the thread is taken out of that for the moment, as the driver's own exchange of modes is
 * meant for.
 */
bool pd_driver_sync_memops(uint64_t addr)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = HAVE(cuThreadExchangeStreamCaptureMode) &&
			 REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
	int on = 1;
	bool set = HAVE(cuPointerSetAttribute) &&
		   REAL(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, addr) ==
			   CUDA_SUCCESS;

	if (exchanged)
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return set;
}

int pd_driver_device_attribute(int attribute, int device)
{
	int value = 0;

	if (!HAVE(cuDeviceGetAttribute) ||
	    REAL(cuDeviceGetAttribute)(&value, (CUdevice_attribute)attribute, device) !=
		    CUDA_SUCCESS)
		return -1;
	return value;
}

/* ---- a context to call in ----------------------------------------------------------------- */

/*
 * A progress thread often has no current context, and the driver wants one for some calls. It is
 * borrowed for the call; each call is tried without first, so that nothing of the thread's context
 * stack is touched where that is not needed.
 */
struct borrowed {
	bool pushed, retained;
	int device;
};

/* Pool and VMM memory name no context: the device's primary one will do, if the program has it up.
 */
static bool retain_primary(struct borrowed *b, int device, CUcontext *primary)
{
	unsigned flags;
	int active = 0;

	if (!HAVE(cuDevicePrimaryCtxGetState) || !HAVE(cuDevicePrimaryCtxRetain) ||
	    !HAVE(cuDevicePrimaryCtxRelease_v2) ||
	    REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || !active ||
	    REAL(cuDevicePrimaryCtxRetain)(primary, device) != CUDA_SUCCESS)
		return false;
	b->retained = true;
	b->device = device;
	return true;
}

static bool borrow(struct borrowed *b, CUcontext context, int device)
{
	*b = (struct borrowed){0};
	if (!HAVE(cuCtxPushCurrent_v2) || !HAVE(cuCtxPopCurrent_v2))
		return false;
	if (!context && !retain_primary(b, device, &context))
		return false;
	b->pushed = REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
	return b->pushed;
}

static void give_back(const struct borrowed *b)
{
	CUcontext popped;

	if (b->pushed)
		REAL(cuCtxPopCurrent_v2)(&popped);
	if (b->retained)
		REAL(cuDevicePrimaryCtxRelease_v2)(b->device);
}

/* ---- describing --------------------------------------------------------------------------- */

struct attributes {
	CUcontext context;
	unsigned memory_type, managed;
	int device;
	void *pool;
};

/* The youngest comes last: a driver from before pools refuses them all for it. */
static CUresult read_attributes(uint64_t addr, struct attributes *a)
{
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_CONTEXT,	     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
	};
	void *values[] = {&a->memory_type, &a->managed, &a->context, &a->device, &a->pool};
	CUresult result = REAL(cuPointerGetAttributes)(5, names, values, addr);

	if (result == CUDA_ERROR_INVALID_VALUE)
		result = REAL(cuPointerGetAttributes)(4, names, values, addr);
	return result;
}

/*
 * What the driver calls the range of an address: of mapped memory its reservation, of other memory
 * the allocation.
 */
static CUresult range_of(uint64_t addr, CUdeviceptr *base, size_t *size)
{
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
				       CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *values[] = {base, size};

	return REAL(cuPointerGetAttributes)(2, names, values, addr);
}

/*
 * In a thread without a current context. The memory's own context may be about to be destroyed, and
 * is left alone: its memory is never mapped, and so is what its range says. For other memory the
 * primary one is held.
 */
static CUresult address_range_without_context(uint64_t addr, CUdeviceptr *base, size_t *size,
					      const struct attributes *a)
{
	CUresult result = CUDA_ERROR_INVALID_CONTEXT;
	struct borrowed borrowed;

	if (a->context)
		return range_of(addr, base, size);
	if (borrow(&borrowed, NULL, a->device))
		result = REAL(cuMemGetAddressRange_v2)(base, size, addr);
	give_back(&borrowed);
	return result;
}

static CUresult address_range(uint64_t addr, CUdeviceptr *base, size_t *size,
			      const struct attributes *a)
{
	CUresult result = REAL(cuMemGetAddressRange_v2)(base, size, addr);

	return result == CUDA_ERROR_INVALID_CONTEXT
		       ? address_range_without_context(addr, base, size, a)
		       : result;
}

static int extent(uint64_t addr, struct pd_memory *memory, const struct attributes *a, int *error)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	*error = address_range(addr, &base, &size, a);
	if (*error != CUDA_SUCCESS || size == 0 || base > addr || addr - base >= size ||
	    base + size > PD_ADDRESS_LIMIT || base + size < base)
		return PINDOWN_ERR_NOT_DEVICE;
	memory->base = base;
	memory->end = base + size;
	return PINDOWN_OK;
}

/* In a process where nobody sees cuMemMap: a range larger than its memory is a reservation. */
static bool is_in_reservation(const struct pd_memory *memory)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	return range_of(memory->base, &base, &size) == CUDA_SUCCESS &&
	       size > memory->end - memory->base;
}

/* Was the memory that has this id made with cuMemMap? */
static bool is_mapped(const struct pd_memory *memory, uint64_t id)
{
	return pd_is_mapped ? pd_is_mapped(memory->base, id) : is_in_reservation(memory);
}

/* One number of all ids: FNV-1a, but for the width. Never 0. */
#define NO_IDS 14695981039346656037u

static uint64_t mix_in(uint64_t ids, uint64_t id)
{
	return (ids ^ id) * 1099511628211u;
}

static uint64_t mixed(uint64_t ids)
{
	return ids | 1;
}

/* The mapping that begins at this address, with its buffer id. */
static bool mapping_at(uint64_t at, const struct attributes *a, struct pd_memory *mapping,
		       uint64_t *id)
{
	int error;

	return extent(at, mapping, a, &error) == PINDOWN_OK && mapping->base == at &&
	       buffer_id(at, id);
}

uint64_t pd_driver_mapping_end(uint64_t at, int device)
{
	struct attributes a = {.device = device};
	struct pd_memory mapping;
	int error;

	return extent(at, &mapping, &a, &error) == PINDOWN_OK && mapping.base == at ? mapping.end
										    : 0;
}

/*
 * A range that runs past one mapping goes on in the next, when that lies right behind it. What is
 * found to be mapped is what has the id: the two stay together, also if another mapping comes in
 * its place meanwhile.
 */
static int extend_over_mappings(uint64_t end, struct pd_memory *memory, const struct attributes *a,
				uint64_t *others)
{
	uint64_t ids = NO_IDS;

	while (memory->end < end) {
		struct pd_memory next;
		uint64_t id;

		if (!mapping_at(memory->end, a, &next, &id) || !is_mapped(&next, id))
			return PINDOWN_ERR_RANGE;
		ids = mix_in(ids, id);
		memory->end = next.end;
	}
	*others = mixed(ids);
	return PINDOWN_OK;
}

static bool ids_of_mappings(uint64_t at, uint64_t end, const struct attributes *a, uint64_t *others)
{
	uint64_t ids = NO_IDS;

	while (at < end) {
		struct pd_memory mapping;
		uint64_t id;

		if (!mapping_at(at, a, &mapping, &id))
			return false;
		ids = mix_in(ids, id);
		at = mapping.end;
	}
	*others = mixed(ids);
	return true;
}

static int kind_of(const struct attributes *a)
{
	if (a->managed)
		return PINDOWN_ERR_MANAGED;
	if (a->memory_type == CU_MEMORYTYPE_HOST)
		return PINDOWN_ERR_HOST;
	if (a->memory_type != CU_MEMORYTYPE_DEVICE)
		return PINDOWN_ERR_NOT_DEVICE;
	return PINDOWN_OK;
}

static int attributes_of(uint64_t addr, struct attributes *a, int *error)
{
	int result;

	*error = 0;
	if (!HAVE(cuPointerGetAttributes) || !HAVE(cuPointerGetAttribute) ||
	    !HAVE(cuMemGetAddressRange_v2))
		return PINDOWN_ERR_NO_CUDA;
	*error = read_attributes(addr, a);
	if (*error == CUDA_ERROR_NOT_INITIALIZED || *error == CUDA_ERROR_DEINITIALIZED)
		return PINDOWN_ERR_NO_CUDA;
	if (*error != CUDA_SUCCESS)
		return PINDOWN_ERR_NOT_DEVICE;
	result = kind_of(a);
	/* Asked for many attributes at once, the driver calls nothing at all a success. */
	if (result == PINDOWN_ERR_NOT_DEVICE)
		*error = CUDA_ERROR_INVALID_VALUE;
	return result;
}

static bool has_other_mappings(uint64_t base, uint64_t end, uint64_t others)
{
	struct attributes a = {.device = -1};
	struct pd_memory first;
	uint64_t now;
	int error;

	return attributes_of(base, &a, &error) == PINDOWN_OK &&
	       extent(base, &first, &a, &error) == PINDOWN_OK &&
	       ids_of_mappings(first.end, end, &a, &now) && now == others;
}

/*
 * Of memory that has gone the driver says INVALID_VALUE. Another error says nothing of the memory.
 */
enum pd_truth pd_driver_compare(uint64_t base, uint64_t end, uint64_t first_id, uint64_t others)
{
	uint64_t id;
	CUresult result = ask_buffer_id(base, &id);

	if (result != CUDA_SUCCESS)
		return result == CUDA_ERROR_INVALID_VALUE ? PD_FALSE : PD_UNKNOWN;
	return id == first_id && (!others || has_other_mappings(base, end, others)) ? PD_TRUE
										    : PD_FALSE;
}

/*
 * Where a pin of this memory has to begin. A pool, and a graph, cut allocations from larger pieces, and
 * the driver exports those from their beginning only; a range that runs past the end of one makes it
 * crash. Everything else can be rounded out to whole pages.
 */
static uint64_t pin_base(const struct pd_allocation *what, const struct attributes *a)
{
	const uint64_t page = PINDOWN_PAGE_SIZE;
	uint64_t base = what->memory.base & ~(page - 1);
	CUdeviceptr piece = 0;

	if (!a->context &&
	    REAL(cuPointerGetAttribute)(&piece, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
					what->memory.base) == CUDA_SUCCESS &&
	    piece && piece <= base && piece % page == 0)
		return piece;
	return base;
}

/* The id is what was there when we began: see pd_driver_describe(). */
static int describe(uint64_t addr, uint64_t length, uint64_t id, struct pd_allocation *out,
		    int *error)
{
	struct attributes a = {.device = -1};
	int result = attributes_of(addr, &a, error);

	if (result == PINDOWN_OK)
		result = extent(addr, &out->memory, &a, error);
	if (result != PINDOWN_OK)
		return result;
	out->mapped = !a.pool && !a.context && is_mapped(&out->memory, id);
	out->others = 0;
	if (addr + length > out->memory.end)
		result = out->mapped ? extend_over_mappings(addr + length, &out->memory, &a,
							    &out->others)
				     : PINDOWN_ERR_RANGE;
	if (result != PINDOWN_OK)
		return result;
	out->memory.context = a.pool || out->mapped ? NULL : a.context;
	out->memory.device = a.device;
	out->current = a.context;
	out->pool = a.pool;
	out->pin_base = pin_base(out, &a);
	/* The id at the base: that is where it is asked for again. */
	if (!buffer_id(out->memory.base, &out->buffer_id)) {
		*error = CUDA_ERROR_INVALID_VALUE;
		return PINDOWN_ERR_NOT_DEVICE;
	}
	return PINDOWN_OK;
}

/*
 * The answers come from several calls, and between two of them the memory may pass to another
 * allocation: then the extent would be one's and the id the other's. Ids are never used twice, so one
 * that is the same before and after says that all is of one allocation.
 */
int pd_driver_describe(uint64_t addr, uint64_t length, struct pd_allocation *out, int *error)
{
	int result;

	for (unsigned i = 0; i < 100; i++) {
		uint64_t id = 0;
		bool known = buffer_id(addr, &id);

		result = describe(addr, length, id, out, error);
		if (result != PINDOWN_OK || (known && id == out->buffer_id))
			return result;
	}
	return PINDOWN_ERR_BUSY;
}

/* ---- exporting ---------------------------------------------------------------------------- */

static int export_now(uint64_t base, uint64_t length, int *fd)
{
	return REAL(cuMemGetHandleForAddressRange)(fd, base, length,
						   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

int pd_driver_export(uint64_t base, uint64_t length, void *context, int device, int *fd)
{
	struct borrowed borrowed;
	int result;

	if (!HAVE(cuMemGetHandleForAddressRange))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = export_now(base, length, fd);
	if (result != CUDA_ERROR_INVALID_CONTEXT)
		return result;
	if (borrow(&borrowed, context, device))
		result = export_now(base, length, fd);
	give_back(&borrowed);
	return result;
}
