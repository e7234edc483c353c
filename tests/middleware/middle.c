/* SPDX-License-Identifier: MIT */
/* Middleware that makes dma-bufs of device memory itself, as those with a registration cache do. */
#include "middle.h"

int middle_export(CUdeviceptr addr, size_t size)
{
	int fd = -1;
	CUresult result = cuMemGetHandleForAddressRange(&fd, addr, size,
							CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	return result == CUDA_SUCCESS ? fd : -1;
}
