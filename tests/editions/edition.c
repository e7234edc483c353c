/* SPDX-License-Identifier: MIT */
/*
 * A program that takes what the driver has: it allocates, registers through pindown, frees, and
 * allocates again. It finds the calls by dlsym(), and the one that frees also as CUDA's runtime of
 * the time does, by cuGetProcAddress(). It prints one fact a line, for check-old-drivers.
 */
#define _GNU_SOURCE /* dladdr() */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cache/pindown.h"
#include "hook/cuda/abi.h"

#define SIZE (4u << 20)

static void *driver;

static void *call(const char *name)
{
	return dlsym(driver, name);
}

/* cuMemFree, by the look-up of CUDA 11 or, in newer drivers, by that of CUDA 12. */
static typeof(cuMemFree_v2) *find_free(bool v2)
{
	typeof(cuGetProcAddress) *get = call("cuGetProcAddress");
	typeof(cuGetProcAddress_v2) *get_v2 = call("cuGetProcAddress_v2");
	typeof(cuDriverGetVersion) *get_version = call("cuDriverGetVersion");
	void *found = NULL;
	int version = 0;

	get_version(&version);
	if (!v2 && get)
		get("cuMemFree", &found, version, CU_GET_PROC_ADDRESS_DEFAULT);
	else if (v2 && get_v2)
		get_v2("cuMemFree", &found, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
	return (typeof(cuMemFree_v2) *)found;
}

/* The library that a function is in. */
static const char *home(typeof(cuMemFree_v2) *function)
{
	const char *slash;
	Dl_info info;

	if (!function || !dladdr((void *)function, &info))
		return "none";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

static bool ready(void)
{
	typeof(cuInit) *init = call("cuInit");
	typeof(cuDevicePrimaryCtxRetain) *retain = call("cuDevicePrimaryCtxRetain");
	typeof(cuCtxSetCurrent) *set_current = call("cuCtxSetCurrent");
	CUcontext context;

	return init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS &&
	       set_current(context) == CUDA_SUCCESS;
}

static void report_driver(void)
{
	static const char *const names[] = {"cuMemFreeAsync", "cuMemGetHandleForAddressRange",
					    "cuGetProcAddress_v2", "cuCheckpointProcessCheckpoint"};
	typeof(cuDriverGetVersion) *get_version = call("cuDriverGetVersion");
	typeof(cuDeviceGetAttribute) *attribute = call("cuDeviceGetAttribute");
	int version = 0, value = 0;

	get_version(&version);
	printf("version: %d\n", version);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		printf("%s: %s\n", names[i], call(names[i]) ? "yes" : "no");
	printf("dma-buf attribute: %d\n",
	       attribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0) == CUDA_SUCCESS ? value
											   : -1);
}

static void report_registration(CUdeviceptr at)
{
	typeof(pindown_get) *get = (typeof(pindown_get) *)dlsym(RTLD_DEFAULT, "pindown_get");
	typeof(pindown_put) *put = (typeof(pindown_put) *)dlsym(RTLD_DEFAULT, "pindown_put");
	struct pindown_region *region = NULL;
	int result;

	if (!get || !put)
		return;
	result = get(at, SIZE, 0, &region);
	printf("registered: %d\n", result);
	if (result == PINDOWN_OK)
		put(region);
}

int main(void)
{
	typeof(cuMemAlloc_v2) *alloc;
	typeof(cuMemFree_v2) *end[3];
	CUdeviceptr first = 0, second = 0;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver || !ready())
		return 1;
	alloc = call("cuMemAlloc_v2");
	end[0] = call("cuMemFree_v2");
	end[1] = find_free(false);
	end[2] = find_free(true);
	report_driver();
	printf("free by cuGetProcAddress: %s\n", home(end[1]));
	printf("free by cuGetProcAddress_v2: %s\n", home(end[2]));
	for (int i = 0; i < 3; i++) {
		if (alloc(&first, SIZE) != CUDA_SUCCESS)
			return 1;
		report_registration(first);
		if ((end[i] ? end[i] : end[0])(first) != CUDA_SUCCESS)
			return 1;
	}
	if (alloc(&second, SIZE) != CUDA_SUCCESS || end[0](second) != CUDA_SUCCESS)
		return 1;
	printf("done: %s\n", first == second ? "the address came back" : "another address");
	return 0;
}
