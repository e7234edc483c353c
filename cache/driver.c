/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>

#include "cuda_abi.h"
#include "driver.h"
#include "index.h"
#include "pindown.h"

void *(*pd_find_driver_symbol)(const char *name);

/* The functions used here, found at the first use of each, by exported name. */
#define DRIVER_FUNCTIONS(F)                                                                \
	F(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))               \
	F(cuPointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr)) \
	F(cuPointerSetAttribute, (const void *, CUpointer_attribute, CUdeviceptr))         \
	F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                 \
	F(cuMemGetHandleForAddressRange,                                                   \
	  (void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long))         \
	F(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *, void *))           \
	F(cuMemRelease, (CUmemGenericAllocationHandle))                                    \
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

static void *find(void **slot, const char *name)
{
	void *found = __atomic_load_n(slot, __ATOMIC_RELAXED);
	int saved = errno;

	if (__atomic_load_n(&forgotten, __ATOMIC_RELAXED))
		return NULL;
	if (!found && pd_find_driver_symbol) {
		found = pd_find_driver_symbol(name);
		__atomic_store_n(slot, found, __ATOMIC_RELAXED);
	}
	errno = saved;
	return found;
}

#define HAVE(name) find((void **)(void *)&driver.name, #name)

/* What has been found stays: another thread may be about to call it. */
void pd_driver_forget(void)
{
	__atomic_store_n(&forgotten, true, __ATOMIC_RELAXED);
}

bool pd_driver_buffer_id(uint64_t addr, uint64_t *id)
{
	unsigned long long answer = 0;

	if (!HAVE(cuPointerGetAttribute) ||
	    driver.cuPointerGetAttribute(&answer, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr) !=
		    CUDA_SUCCESS)
		return false;
	*id = answer;
	return true;
}

bool pd_driver_sync_memops(uint64_t addr)
{
	int on = 1;

	return HAVE(cuPointerSetAttribute) &&
	       driver.cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, addr) ==
		       CUDA_SUCCESS;
}

int pd_driver_device_attribute(int attribute, int device)
{
	int value = 0;

	if (!HAVE(cuDeviceGetAttribute) ||
	    driver.cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device) !=
		    CUDA_SUCCESS)
		return -1;
	return value;
}

/* ---- describing -------------------------------------------------------------------------------
 */

struct attributes {
	CUcontext context;
	unsigned memory_type, managed;
	unsigned long long buffer_id;
	int device;
	void *pool;
};

/* The pool attribute is younger than the others: without it the rest must still be had. */
static CUresult read_attributes(uint64_t addr, struct attributes *a)
{
	CUpointer_attribute names[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_BUFFER_ID,	     CU_POINTER_ATTRIBUTE_CONTEXT,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
	};
	void *values[] = {&a->memory_type, &a->managed, &a->buffer_id,
			  &a->context,	   &a->device,	&a->pool};
	unsigned count = sizeof(names) / sizeof(names[0]);
	CUresult result = driver.cuPointerGetAttributes(count, names, values, addr);

	if (result != CUDA_SUCCESS)
		result = driver.cuPointerGetAttributes(count - 1, names, values, addr);
	return result;
}

/* Memory of cuMemMap has an allocation handle; nothing else has. */
static bool is_mapped(uint64_t addr)
{
	CUmemGenericAllocationHandle handle;

	if (!HAVE(cuMemRetainAllocationHandle) || !HAVE(cuMemRelease) ||
	    driver.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)addr) != CUDA_SUCCESS)
		return false;
	driver.cuMemRelease(handle);
	return true;
}

static int extent(uint64_t addr, struct pd_memory *memory, int *error)
{
	CUdeviceptr base = 0;
	size_t size = 0;

	*error = driver.cuMemGetAddressRange_v2(&base, &size, addr);
	if (*error != CUDA_SUCCESS)
		return PINDOWN_ERR_NOT_DEVICE;
	if (size == 0 || base > addr || addr - base >= size || size > PD_ADDRESS_LIMIT - base)
		return PINDOWN_ERR_NOT_DEVICE;
	memory->base = base;
	memory->end = base + size;
	return PINDOWN_OK;
}

/* A range that runs past one mapping goes on in the next, when that lies right behind it. */
static int extend_over_mappings(uint64_t end, struct pd_memory *memory, int *error)
{
	while (memory->end < end) {
		struct pd_memory next;

		if (extent(memory->end, &next, error) != PINDOWN_OK || next.base != memory->end ||
		    !is_mapped(next.base))
			return PINDOWN_ERR_RANGE;
		memory->end = next.end;
	}
	return PINDOWN_OK;
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

int pd_driver_describe(uint64_t addr, uint64_t length, struct pd_allocation *out, int *error)
{
	struct attributes a = {.device = -1};
	int result;

	*error = 0;
	if (!HAVE(cuPointerGetAttributes) || !HAVE(cuMemGetAddressRange_v2))
		return PINDOWN_ERR_NO_CUDA;
	*error = read_attributes(addr, &a);
	if (*error == CUDA_ERROR_NOT_INITIALIZED || *error == CUDA_ERROR_DEINITIALIZED)
		return PINDOWN_ERR_NO_CUDA;
	if (*error != CUDA_SUCCESS)
		return PINDOWN_ERR_NOT_DEVICE;
	result = kind_of(&a);
	if (result != PINDOWN_OK)
		return result;
	result = extent(addr, &out->memory, error);
	if (result != PINDOWN_OK)
		return result;
	out->mapped = !a.pool && is_mapped(out->memory.base);
	if (addr + length > out->memory.end) {
		if (!out->mapped)
			return PINDOWN_ERR_RANGE;
		result = extend_over_mappings(addr + length, &out->memory, error);
		if (result != PINDOWN_OK)
			return result;
	}
	out->memory.context = a.pool || out->mapped ? NULL : a.context;
	out->memory.device = a.device;
	out->current = a.context;
	out->pool = a.pool;
	/*
	 * The id at the base: that is where it is asked for again. Neighbouring mappings have ids
	 * of their own; their end is seen by their address.
	 */
	if (!pd_driver_buffer_id(out->memory.base, &out->buffer_id))
		return PINDOWN_ERR_NOT_DEVICE;
	return PINDOWN_OK;
}

/* ---- exporting ---------------------------------------------------------------------------------
 */

static int export_now(uint64_t base, uint64_t length, int *fd)
{
	return driver.cuMemGetHandleForAddressRange(fd, base, length,
						    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

static int export_in(void *context, uint64_t base, uint64_t length, int *fd)
{
	CUcontext popped;
	int result;

	if (!HAVE(cuCtxPushCurrent_v2) || !HAVE(cuCtxPopCurrent_v2))
		return CUDA_ERROR_INVALID_CONTEXT;
	result = driver.cuCtxPushCurrent_v2(context);
	if (result != CUDA_SUCCESS)
		return result;
	result = export_now(base, length, fd);
	driver.cuCtxPopCurrent_v2(&popped);
	return result;
}

/* Pool and VMM memory name no context: the device's primary one will do, if the program has it up.
 */
static int export_in_primary(int device, uint64_t base, uint64_t length, int *fd)
{
	CUcontext primary;
	unsigned flags;
	int active = 0;
	int result;

	if (!HAVE(cuDevicePrimaryCtxGetState) || !HAVE(cuDevicePrimaryCtxRetain) ||
	    !HAVE(cuDevicePrimaryCtxRelease_v2) ||
	    driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = driver.cuDevicePrimaryCtxRetain(&primary, device);
	if (result != CUDA_SUCCESS)
		return result;
	result = export_in(primary, base, length, fd);
	driver.cuDevicePrimaryCtxRelease_v2(device);
	return result;
}

/*
 * A progress thread often has no current context. The call is tried as it is first, so that nothing
 * of the thread's context stack is touched where that is not needed.
 */
int pd_driver_export(uint64_t base, uint64_t length, void *context, int device, int *fd)
{
	int result;

	if (!HAVE(cuMemGetHandleForAddressRange))
		return CUDA_ERROR_NOT_SUPPORTED;
	result = export_now(base, length, fd);
	if (result != CUDA_ERROR_INVALID_CONTEXT)
		return result;
	return context ? export_in(context, base, length, fd)
		       : export_in_primary(device, base, length, fd);
}
