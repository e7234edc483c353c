/* SPDX-License-Identifier: MIT */
/* The part of the driver's binary interface that only the simulated driver needs. */
#ifndef SIM_ABI_H
#define SIM_ABI_H

#include "hook/cuda/abi.h"

#define CU_DEVICE_ATTRIBUTE_LAST 146

/* More of CUresult and CUgraphExecUpdateResult. */
#define CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE	     ((CUresult)910)
#define CUDA_ERROR_GRAPH_RECAPTURE_FAILURE	     ((CUresult)918)
#define CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED  ((CUgraphExecUpdateResult)2)
#define CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED ((CUgraphExecUpdateResult)3)
#define CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED     ((CUgraphExecUpdateResult)6)

typedef enum CUgraphMem_attribute_enum {
	CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
	CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
	CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
	CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH
} CUgraphMem_attribute;

typedef struct CUDA_MEMCPY3D_st {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	void *reserved0;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	void *reserved1;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

/* The first version of a kernel node; later ones have more members at the end. */
typedef struct CUDA_KERNEL_NODE_PARAMS_st {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams;
	void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

typedef struct CUDA_MEMCPY_NODE_PARAMS_st {
	int flags, reserved;
	CUcontext copyCtx;
	CUDA_MEMCPY3D copyParams;
} CUDA_MEMCPY_NODE_PARAMS;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
	CUdeviceptr dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_HOST_NODE_PARAMS_st {
	CUhostFn fn;
	void *userData;
} CUDA_HOST_NODE_PARAMS;

#endif
