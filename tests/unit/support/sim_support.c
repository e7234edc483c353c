/* SPDX-License-Identifier: MIT */
/* Calls of the simulated driver, with checks, for its own tests. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/support/sim_support.h"

static void *library;

void *sim_library(void)
{
	if (!library)
		library = dlopen(SIM_LIBRARY, RTLD_NOW);
	if (!library)
		ck_abort_msg("%s", dlerror());
	return library;
}

void *sim_symbol(const char *name)
{
	void *symbol = dlsym(sim_library(), name);

	if (!symbol)
		ck_abort_msg("%s", dlerror());
	return symbol;
}

CUcontext start(void)
{
	CUcontext context;

	ok(cu(cuInit)(0));
	ok(cu(cuDevicePrimaryCtxRetain)(&context, 0));
	ok(cu(cuCtxSetCurrent)(context));
	return context;
}

CUdeviceptr allocate(uint64_t size)
{
	CUdeviceptr ptr;

	ok(cu(cuMemAlloc_v2)(&ptr, size));
	return ptr;
}

uint64_t id_of(CUdeviceptr ptr)
{
	uint64_t id = 0;
	CUresult result = cu(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);

	if (result != CUDA_SUCCESS)
		ck_assert_int_eq(result, CUDA_ERROR_INVALID_VALUE);
	return result == CUDA_SUCCESS ? id : 0;
}

int export_of(CUdeviceptr ptr, uint64_t size)
{
	int fd = -1;

	ok(cu(cuMemGetHandleForAddressRange)(&fd, ptr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					     0));
	ck_assert_int_ge(fd, 0);
	return fd;
}

CUresult try_export(CUdeviceptr ptr, uint64_t size)
{
	int fd = -1;
	CUresult result = cu(cuMemGetHandleForAddressRange)(&fd, ptr, size,
							    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (result == CUDA_SUCCESS)
		close(fd);
	return result;
}

CUresult set_sync_memops(CUdeviceptr ptr)
{
	unsigned on = 1;

	return cu(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr);
}

uint64_t free_bytes(void)
{
	size_t left, total;

	ok(cu(cuMemGetInfo_v2)(&left, &total));
	return left;
}

int byte_of(int fd, uint64_t offset)
{
	unsigned char byte;

	ck_assert_int_eq(pread(fd, &byte, 1, cu(sim_dmabuf_offset)(fd) + (off_t)offset), 1);
	return byte;
}
