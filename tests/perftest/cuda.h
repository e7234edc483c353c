/* SPDX-License-Identifier: MIT */
/*
 * The part of the CUDA driver's header that perftest is built with (CUDA_H_PATH): its own names for
 * types and constants of the driver's binary interface. perftest looks the functions up itself.
 */
#ifndef PERFTEST_CUDA_H
#define PERFTEST_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_VERSION 12080

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;

typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;

typedef enum CUdevice_attribute_enum {
	CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
	CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
	CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124
} CUdevice_attribute;

typedef enum CUmemRangeHandleType_enum {
	CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1
} CUmemRangeHandleType;

/* Without a value of its own: perftest passes NULL for it. */
typedef enum CUdriverProcAddressQueryResult_enum {
	CU_GET_PROC_ADDRESS_SUCCESS = 0
} CUdriverProcAddressQueryResult;

enum { CU_CTX_MAP_HOST = 8 };
enum { CU_MEM_ATTACH_GLOBAL = 1 };
enum { CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1 };

#endif
