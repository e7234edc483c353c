/* SPDX-License-Identifier: MIT */
/*
 * The CUDA driver's functions that the cache calls, for the files of this folder: REAL(name)(...),
 * once HAVE(name) has said that the driver has it.
 */
#ifndef PDN_FUNCTIONS_H
#define PDN_FUNCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/visible.h"
#include "cache/driver/cuda_abi.h"

/*
 * Each is looked up by its exported name at its first use. About memory
 * that another thread may be freeing, only calls are made that were seen to be safe then: the table
 * "What pindown asks the driver" in docs/internals/how-it-works.md has a row for each.
 */
#define DRIVER_FUNCTIONS(F)                                                                      \
	F(cuPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))                     \
	F(cuPointerGetAttributes, (unsigned, CUpointer_attribute *, void **, CUdeviceptr))       \
	F(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode *))                            \
	F(cuPointerSetAttribute, (const void *, CUpointer_attribute, CUdeviceptr))               \
	F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                       \
	F(cuMemGetHandleForAddressRange,                                                         \
	  (void *, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long))               \
	F(cuCtxPushCurrent_v2, (CUcontext))                                                      \
	F(cuCtxPopCurrent_v2, (CUcontext *))                                                     \
	F(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                             \
	F(cuCtxGetDevice, (CUdevice *))                                                          \
	F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                     \
	F(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                              \
	F(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                           \
	F(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
	F(cuMemAddressFree, (CUdeviceptr, size_t))                                               \
	F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                \
	F(cuMemFree_v2, (CUdeviceptr))

#define PDN_DRIVER_MEMBER(name, parameters) CUresult(*name) parameters;
extern PDN_HIDDEN struct pdn_driver_functions {
	DRIVER_FUNCTIONS(PDN_DRIVER_MEMBER)
} pdn_driver;

extern PDN_HIDDEN bool pdn_driver_forgotten; /* see pdn_driver_forget() */

/* Stored for a function that this driver lacks. */
#define PDN_ABSENT ((void *)-1)

void *pdn_driver_look_up(void **slot, const char *name);

/*
 * Relaxed, here and below: a function belongs to a library that was loaded before it could be
 * looked up, and the pointer publishes nothing else.
 */
static inline __attribute__((always_inline)) void *pdn_driver_find(void **slot, const char *name)
{
	void *found = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (__atomic_load_n(&pdn_driver_forgotten, __ATOMIC_RELAXED))
		return NULL;
	if (__builtin_expect(!found, 0))
		found = pdn_driver_look_up(slot, name);
	return found == PDN_ABSENT ? NULL : found;
}

/* Threads that look up at once find and store the same. Use REAL only after HAVE has succeeded. */
#define REAL(name) __atomic_load_n(&pdn_driver.name, __ATOMIC_RELAXED)
#define HAVE(name) pdn_driver_find((void **)(void *)&pdn_driver.name, #name)

/* The same, as a call: where time is no matter, room is. */
void *pdn_driver_find_rarely(void **slot, const char *name);
#define HAVE_RARELY(name) pdn_driver_find_rarely((void **)(void *)&pdn_driver.name, #name)

#endif
