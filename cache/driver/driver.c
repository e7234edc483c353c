/* SPDX-License-Identifier: MIT */
/* Asking the CUDA driver about memory, and exporting it: the driver calls that the cache makes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "cache/base/process/process.h"
#include "cache/driver/cuda_abi.h"
#include "cache/base/visible.h"
#include "cache/driver/driver.h"
#include "cache/driver/functions.h"
#include "cache/pindown.h"

PDN_AT_LOAD bool (*pdn_is_mapped)(uint64_t base, uint64_t buffer_id);
PDN_AT_LOAD bool (*pdn_free_is_sure)(uint64_t addr);
PDN_AT_LOAD bool (*pdn_pool_keeps)(void *pool);
PDN_AT_LOAD const struct pdn_primary_counts *pdn_primary_counts;

/*
 * The three functions that each pin needs have been found: one look serves for all. Relaxed, as
 * in functions.h. pdn_driver_forgotten counts for more.
 */
static bool has_all;

static bool look_up_all(void)
{
	bool found = HAVE_RARELY(cuPointerGetAttributes) && HAVE_RARELY(cuPointerGetAttribute) &&
		     HAVE_RARELY(cuMemGetAddressRange_v2);

	__atomic_store_n(&has_all, found, __ATOMIC_RELAXED);
	return found;
}

static inline bool have_all(void)
{
	if (__builtin_expect(__atomic_load_n(&has_all, __ATOMIC_RELAXED), 1))
		return !__atomic_load_n(&pdn_driver_forgotten, __ATOMIC_RELAXED);
	return look_up_all();
}

static inline CUresult ask_buffer_id(uint64_t addr, uint64_t *id)
{
	unsigned long long answer = 0;
	CUresult result = CUDA_ERROR_NOT_INITIALIZED;

	if (have_all() || HAVE(cuPointerGetAttribute))
		result = REAL(cuPointerGetAttribute)(&answer, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr);
	*id = answer;
	return result;
}

static bool buffer_id(uint64_t addr, uint64_t *id)
{
	return ask_buffer_id(addr, id) == CUDA_SUCCESS;
}

bool pdn_driver_has_memory(uint64_t addr)
{
	uint64_t id;

	return buffer_id(addr, &id);
}

/* For memory that is gone the driver returns INVALID_VALUE. Other errors say nothing about it. */
static enum pdn_truth truth_of(CUresult result)
{
	if (result == CUDA_SUCCESS)
		return PDN_TRUE;
	return result == CUDA_ERROR_INVALID_VALUE ? PDN_FALSE : PDN_UNKNOWN;
}

/*
 * The driver forbids this call during a stream capture in this thread, or a global one in another:
 * it would fail and invalidate the program's capture. The call has nothing to do with the captured
 * work, so the thread switches to the relaxed capture mode for it, which is what
 * cuThreadExchangeStreamCaptureMode is for.
 */
static CUresult set_sync_memops(uint64_t addr)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool exchanged = HAVE(cuThreadExchangeStreamCaptureMode) &&
			 REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;
	int on = 1;

	if (HAVE(cuPointerSetAttribute))
		result = REAL(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, addr);
	if (exchanged)
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	return result;
}

/*
 * A driver that does not support it for mapped memory is asked once. Relaxed: two threads may each
 * ask, and store the same answer.
 */
bool pdn_driver_sync_memops(uint64_t addr, bool mapped)
{
	static bool not_for_mapped;
	CUresult result;

	if (mapped && __atomic_load_n(&not_for_mapped, __ATOMIC_RELAXED))
		return false;
	result = set_sync_memops(addr);
	if (mapped && result == CUDA_ERROR_NOT_SUPPORTED)
		__atomic_store_n(&not_for_mapped, true, __ATOMIC_RELAXED);
	return result == CUDA_SUCCESS;
}

int pdn_driver_device_attribute(int attribute, int device)
{
	int value = 0;

	if (!HAVE_RARELY(cuDeviceGetAttribute) ||
	    REAL(cuDeviceGetAttribute)(&value, (CUdevice_attribute)attribute, device) !=
		    CUDA_SUCCESS)
		return -1;
	return value;
}

/* ---- borrowing a context ------------------------------------------------------------------ */

/*
 * A progress thread often has no current context, but the driver requires one for some calls: it is
 * pushed for the duration of the call. Each call is first tried without, so that the thread's
 * context stack is left alone where possible.
 */
struct borrowed {
	bool pushed, retained, counted;
	int device;
};

/*
 * Pool and VMM memory has no context: take the device's primary one if it is active. It is counted
 * if it was held before: then a release in another thread that is not counted as the last one
 * leaves that to us, and one that is has ended the memory.
 */
static bool retain_primary(struct borrowed *b, int device, CUcontext *primary)
{
	bool held = pdn_primary_counts && pdn_primary_counts->is_held(device);
	unsigned flags;
	int active = 0;

	if (!HAVE_RARELY(cuDevicePrimaryCtxGetState) || !HAVE_RARELY(cuDevicePrimaryCtxRetain) ||
	    !HAVE_RARELY(cuDevicePrimaryCtxRelease_v2) ||
	    REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS || !active ||
	    REAL(cuDevicePrimaryCtxRetain)(primary, device) != CUDA_SUCCESS)
		return false;
	b->retained = true;
	b->counted = held;
	b->device = device;
	if (held)
		pdn_primary_counts->retained(*primary, device);
	return true;
}

static bool borrow(struct borrowed *b, CUcontext context, int device)
{
	*b = (struct borrowed){0};
	if (!HAVE_RARELY(cuCtxPushCurrent_v2) || !HAVE_RARELY(cuCtxPopCurrent_v2))
		return false;
	if (!context && !retain_primary(b, device, &context))
		return false;
	b->pushed = REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
	return b->pushed;
}

static int release_primary(int device)
{
	return REAL(cuDevicePrimaryCtxRelease_v2)(device);
}

static void return_borrowed(const struct borrowed *b)
{
	CUcontext popped;

	if (b->pushed)
		REAL(cuCtxPopCurrent_v2)(&popped);
	if (b->counted)
		pdn_primary_counts->release(b->device, release_primary);
	else if (b->retained)
		release_primary(b->device);
}

bool pdn_driver_has_context(void)
{
	CUdevice device;

	return HAVE_RARELY(cuCtxGetDevice) && REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS;
}

bool pdn_driver_permits(void)
{
	CUdevice device;

	return !HAVE_RARELY(cuCtxGetDevice) ||
	       REAL(cuCtxGetDevice)(&device) != CUDA_ERROR_NOT_PERMITTED;
}

/* ---- describing an allocation ------------------------------------------------------------- */

struct attributes {
	CUcontext context;
	unsigned memory_type, managed;
	int device;
	void *pool;
};

/* The newest attribute is last: a driver older than pools refuses the whole list because of it. */
static inline CUresult read_attributes(uint64_t addr, struct attributes *a)
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
 * The driver's "range" of an address: for mapped memory the address reservation, for other memory
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
 * For a thread without a current context, or with one of another device, in which the driver does
 * not find the memory. Memory of a context is never mapped with cuMemMap, so its range is the
 * allocation, and that context, which may be about to be destroyed, is not touched. For other
 * memory the primary context is retained.
 */
static CUresult address_range_from_elsewhere(uint64_t addr, CUdeviceptr *base, size_t *size,
					     const struct attributes *a)
{
	CUresult result = CUDA_ERROR_INVALID_CONTEXT;
	struct borrowed borrowed;

	if (a->context)
		return range_of(addr, base, size);
	if (borrow(&borrowed, NULL, a->device))
		result = REAL(cuMemGetAddressRange_v2)(base, size, addr);
	return_borrowed(&borrowed);
	return result;
}

static CUresult address_range(uint64_t addr, CUdeviceptr *base, size_t *size,
			      const struct attributes *a)
{
	CUresult result = REAL(cuMemGetAddressRange_v2)(base, size, addr);

	return result == CUDA_SUCCESS ? result : address_range_from_elsewhere(addr, base, size, a);
}

static inline int allocation_at(uint64_t addr, struct pdn_memory *memory,
				const struct attributes *a, int *error)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	*error = address_range(addr, &base, &size, a);
	if (*error != CUDA_SUCCESS || size == 0 || base > addr || addr - base >= size ||
	    base + size > PDN_ADDRESS_LIMIT || base + size < base)
		return PINDOWN_ERR_NOT_DEVICE;
	memory->base = base;
	memory->end = base + size;
	return PINDOWN_OK;
}

/* Without a context the driver does not find it; what is freed so is not mapped with cuMemMap. */
bool pdn_driver_extent(uint64_t addr, uint64_t *begin, uint64_t *end)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	int saved = errno;
	bool known = have_all() &&
		     (REAL(cuMemGetAddressRange_v2)(&base, &size, addr) == CUDA_SUCCESS ||
		      range_of(addr, &base, &size) == CUDA_SUCCESS) &&
		     base <= addr && addr - base < size && base + size > base;

	*begin = base;
	*end = base + size;
	errno = saved;
	return known;
}

/* For a process whose cuMemMap is not watched: a range larger than its memory is a reservation. */
static bool is_in_reservation(const struct pdn_memory *memory)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	return range_of(memory->base, &base, &size) == CUDA_SUCCESS &&
	       size > memory->end - memory->base;
}

/* Was the memory with this id mapped with cuMemMap? */
static bool is_mapped(const struct pdn_memory *memory, uint64_t id)
{
	return pdn_is_mapped ? pdn_is_mapped(memory->base, id) : is_in_reservation(memory);
}

/* Combines ids to one number that is never 0: FNV-1a, except that it takes 64 bits at a time. */
#define NO_IDS 14695981039346656037u

static uint64_t mix_in(uint64_t ids, uint64_t id)
{
	return (ids ^ id) * 1099511628211u;
}

static uint64_t finish_mix(uint64_t ids)
{
	return ids | 1;
}

/*
 * The mapping that begins at this address, with its buffer id. The id is asked first: it needs no
 * context, so its errors alone tell whether any memory is there. After another error nothing is
 * known: the thread may have no context in which the driver finds the range.
 */
static enum pdn_truth mapping_at(uint64_t at, const struct attributes *a,
				 struct pdn_memory *mapping, uint64_t *id)
{
	enum pdn_truth there = truth_of(ask_buffer_id(at, id));
	int error;

	if (there != PDN_TRUE)
		return there;
	if (allocation_at(at, mapping, a, &error) != PINDOWN_OK)
		return error == CUDA_SUCCESS ? PDN_FALSE : PDN_UNKNOWN;
	return mapping->base == at ? PDN_TRUE : PDN_FALSE;
}

uint64_t pdn_driver_mapping_end(uint64_t at, int device)
{
	struct attributes a = {.device = device};
	struct pdn_memory mapping;
	int error;

	return allocation_at(at, &mapping, &a, &error) == PINDOWN_OK ? mapping.end : 0;
}

/*
 * A range that runs past one mapping continues in the next if that is adjacent. is_mapped() is
 * asked about the id, not the address: the answer is about that mapping even if another one takes
 * its place meanwhile.
 */
static int extend_over_mappings(uint64_t end, struct pdn_memory *memory, const struct attributes *a,
				uint64_t *mappings_hash)
{
	uint64_t ids = NO_IDS;

	while (memory->end < end) {
		struct pdn_memory next;
		uint64_t id;

		if (mapping_at(memory->end, a, &next, &id) != PDN_TRUE || !is_mapped(&next, id))
			return PINDOWN_ERR_RANGE;
		ids = mix_in(ids, id);
		memory->end = next.end;
	}
	*mappings_hash = finish_mix(ids);
	return PINDOWN_OK;
}

/* Are these the ids of the mappings in the range? */
static enum pdn_truth compare_mappings(uint64_t at, uint64_t end, const struct attributes *a,
				       uint64_t mappings_hash)
{
	uint64_t ids = NO_IDS;

	while (at < end) {
		struct pdn_memory mapping;
		uint64_t id;
		enum pdn_truth there = mapping_at(at, a, &mapping, &id);

		if (there != PDN_TRUE)
			return there;
		ids = mix_in(ids, id);
		at = mapping.end;
	}
	return finish_mix(ids) == mappings_hash ? PDN_TRUE : PDN_FALSE;
}

static int check_kind(const struct attributes *a)
{
	if (a->managed)
		return PINDOWN_ERR_MANAGED;
	if (a->memory_type == CU_MEMORYTYPE_HOST)
		return PINDOWN_ERR_HOST;
	if (a->memory_type != CU_MEMORYTYPE_DEVICE)
		return PINDOWN_ERR_NOT_DEVICE;
	return PINDOWN_OK;
}

static inline int attributes_of(uint64_t addr, struct attributes *a, int *error)
{
	int result;

	*error = 0;
	if (!have_all())
		return PINDOWN_ERR_NO_CUDA;
	*error = read_attributes(addr, a);
	if (*error == CUDA_ERROR_NOT_INITIALIZED || *error == CUDA_ERROR_DEINITIALIZED)
		return PINDOWN_ERR_NO_CUDA;
	if (*error != CUDA_SUCCESS)
		return PINDOWN_ERR_NOT_DEVICE;
	result = check_kind(a);
	/* Asked for several attributes of no memory at all, the driver returns success. */
	if (result == PINDOWN_ERR_NOT_DEVICE)
		*error = CUDA_ERROR_INVALID_VALUE;
	return result;
}

/* The first mapping has been found by its id. */
static enum pdn_truth compare_all_mappings(uint64_t base, uint64_t end, uint64_t mappings_hash)
{
	struct attributes a = {.device = -1};
	struct pdn_memory first;
	int error;
	int result = attributes_of(base, &a, &error);

	if (result == PINDOWN_ERR_NO_CUDA)
		return PDN_UNKNOWN;
	if (result != PINDOWN_OK) /* SUCCESS: of memory of another kind */
		return error == CUDA_SUCCESS ? PDN_FALSE : truth_of(error);
	if (allocation_at(base, &first, &a, &error) != PINDOWN_OK)
		return error == CUDA_SUCCESS ? PDN_FALSE : PDN_UNKNOWN;
	return compare_mappings(first.end, end, &a, mappings_hash);
}

enum pdn_truth pdn_driver_compare(uint64_t base, uint64_t end, uint64_t first_id,
				  uint64_t mappings_hash)
{
	uint64_t id;
	enum pdn_truth there = truth_of(ask_buffer_id(base, &id));

	if (there != PDN_TRUE)
		return there;
	if (id != first_id)
		return PDN_FALSE;
	return mappings_hash ? compare_all_mappings(base, end, mappings_hash) : PDN_TRUE;
}

/*
 * Where a pin of this memory has to begin. Pools and graphs cut allocations from larger pieces. The
 * driver exports such a piece only from its beginning, and crashes on a range that runs past its
 * end. A mapping is a piece of its own. Any other allocation can be rounded out to whole pages.
 */
static uint64_t piece_base(const struct pdn_allocation *what, uint64_t base)
{
	const uint64_t page = PINDOWN_PAGE_SIZE;
	CUdeviceptr piece = 0;

	if (REAL(cuPointerGetAttribute)(&piece, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
					what->memory.base) == CUDA_SUCCESS &&
	    piece && piece <= base && piece % page == 0)
		return piece;
	return base;
}

static inline uint64_t pin_base(const struct pdn_allocation *what, const struct attributes *a)
{
	uint64_t base = what->memory.base & ~(uint64_t)(PINDOWN_PAGE_SIZE - 1);

	return a->context || what->mapped ? base : piece_base(what, base);
}

/* `id` is the buffer id from before the first call: see pdn_driver_describe_run(). */
static inline int describe_once(uint64_t addr, uint64_t length, uint64_t id,
				struct pdn_allocation *out, int *error)
{
	struct attributes a = {.device = -1};
	int result = attributes_of(addr, &a, error);

	if (result == PINDOWN_OK)
		result = allocation_at(addr, &out->memory, &a, error);
	if (result != PINDOWN_OK)
		return result;
	out->mapped = !a.pool && !a.context && is_mapped(&out->memory, id);
	out->mappings_hash = 0;
	if (addr + length > out->memory.end)
		result = out->mapped ? extend_over_mappings(addr + length, &out->memory, &a,
							    &out->mappings_hash)
				     : PINDOWN_ERR_RANGE;
	if (result != PINDOWN_OK)
		return result;
	out->memory.context = a.pool || out->mapped ? NULL : a.context;
	out->memory.device = a.device;
	out->current = a.context;
	out->pool = a.pool;
	out->pin_base = pin_base(out, &a);
	out->buffer_id = id;
	out->is_window = false;
	out->whole_base = out->memory.base;
	out->whole_end = out->memory.end;
	return PINDOWN_OK;
}

/* Of this device, and of no pool or context. */
static bool mapping_with(uint64_t addr, int device, struct pdn_memory *mapping)
{
	struct attributes a = {.device = -1};
	uint64_t id;
	int error;

	return attributes_of(addr, &a, &error) == PINDOWN_OK && a.device == device && !a.pool &&
	       !a.context && allocation_at(addr, mapping, &a, &error) == PINDOWN_OK &&
	       buffer_id(mapping->base, &id) && is_mapped(mapping, id);
}

/* The reservation's range is the driver's answer for mapped memory; see range_of(). */
static void add_mappings_beside(struct pdn_memory *memory, uint64_t size)
{
	struct pdn_memory next;
	CUdeviceptr base;
	size_t length;

	if (range_of(memory->base, &base, &length) != CUDA_SUCCESS || base > memory->base ||
	    base + length < memory->end)
		return;
	while (memory->end - memory->base < size && memory->end < base + length &&
	       mapping_with(memory->end, memory->device, &next) && next.base == memory->end)
		memory->end = next.end;
	while (memory->end - memory->base < size && memory->base > base &&
	       mapping_with(memory->base - 1, memory->device, &next) && next.end == memory->base)
		memory->base = next.base;
}

/* The memory was described, and is smaller than `size`. */
static void describe_more(uint64_t size, struct pdn_allocation *out)
{
	struct pdn_memory run = out->memory;
	struct pdn_allocation all;
	int ignored;

	add_mappings_beside(&run, size);
	if (run.end - run.base > out->memory.end - out->memory.base &&
	    pdn_driver_describe_run(run.base, run.end - run.base, 0, &all, &ignored) == PINDOWN_OK)
		*out = all;
}

/*
 * The answers come from several calls, between which the memory may pass to another allocation: the
 * extent would then belong to one and the id to the other. Ids are never reused, so all answers are
 * about one allocation if the id is the same before and after. A pin reads it after the pin in any
 * case (pin.c, pin_and_commit()): its description need not be compared here, too.
 */
int pdn_driver_describe_run(uint64_t addr, uint64_t length, uint64_t size,
			    struct pdn_allocation *out, int *error)
{
	int result = PINDOWN_ERR_BUSY;
	bool known = false;

	for (unsigned i = 0; i < 100 && !known; i++) {
		uint64_t id = 0;

		known = buffer_id(addr, &id);
		result = describe_once(addr, length, id, out, error);
		if (result != PINDOWN_OK)
			return result;
	}
	pdn_process_uses_cuda();
	if (!known)
		return PINDOWN_ERR_BUSY;
	if (out->mapped && out->memory.end - out->memory.base < size)
		describe_more(size, out);
	return result;
}

/* The id is read after all else at the base, because that is where later checks ask for it. */
int pdn_driver_describe(uint64_t addr, uint64_t length, struct pdn_allocation *out, int *error)
{
	for (unsigned i = 0; i < 100; i++) {
		uint64_t now;
		int result = pdn_driver_describe_run(addr, length, 0, out, error);

		if (result != PINDOWN_OK ||
		    (buffer_id(out->memory.base, &now) && now == out->buffer_id))
			return result;
	}
	return PINDOWN_ERR_BUSY;
}

/* ---- exporting ---------------------------------------------------------------------------- */

static int export_now(uint64_t base, uint64_t length, bool pcie, int *fd)
{
	return REAL(cuMemGetHandleForAddressRange)(
		fd, base, length, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
		pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0);
}

/* Is the thread's current context one of this device? */
static bool is_current(int device)
{
	CUdevice current;

	return HAVE_RARELY(cuCtxGetDevice) && REAL(cuCtxGetDevice)(&current) == CUDA_SUCCESS &&
	       current == device;
}

int pdn_driver_export(uint64_t base, uint64_t length, void *context, int device, bool pcie, int *fd)
{
	struct borrowed borrowed;
	int result;

	if (!HAVE_RARELY(cuMemGetHandleForAddressRange))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = export_now(base, length, pcie, fd);
	if (result == CUDA_SUCCESS || (result != CUDA_ERROR_INVALID_CONTEXT && is_current(device)))
		return result;
	if (borrow(&borrowed, context, device))
		result = export_now(base, length, pcie, fd);
	return_borrowed(&borrowed);
	return result;
}
