// SPDX-License-Identifier: MIT
/* pindown doctor --try: the GPU's side, through the CUDA driver, which is opened at run time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "tools/doctor/try.h"

enum { PCI_DOMAIN = 50, PCI_BUS = 33, PCI_SLOT = 34, SYNC_MEMOPS = 6, DMA_BUF_FD = 1, PCIE = 1 };

static struct {
	int (*init)(unsigned);
	int (*count)(int *);
	int (*device)(int *, int);
	int (*attribute)(int *, int, int);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	int (*allocate)(unsigned long long *, size_t);
	int (*free)(unsigned long long);
	int (*to_device)(unsigned long long, const void *, size_t);
	int (*to_host)(void *, unsigned long long, size_t);
	int (*set_attribute)(const void *, int, unsigned long long);
	int (*export)(void *, unsigned long long, size_t, int, unsigned long long);
} cuda;

int try_cuda_begin(void)
{
	const struct {
		const char *name;
		void *function;
	} wanted[] = {
		{"cuInit", &cuda.init},
		{"cuDeviceGetCount", &cuda.count},
		{"cuDeviceGet", &cuda.device},
		{"cuDeviceGetAttribute", &cuda.attribute},
		{"cuDevicePrimaryCtxRetain", &cuda.retain},
		{"cuCtxSetCurrent", &cuda.set_current},
		{"cuMemAlloc_v2", &cuda.allocate},
		{"cuMemFree_v2", &cuda.free},
		{"cuMemcpyHtoD_v2", &cuda.to_device},
		{"cuMemcpyDtoH_v2", &cuda.to_host},
		{"cuPointerSetAttribute", &cuda.set_attribute},
	};
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		return -1;
	for (unsigned i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *function = dlsym(library, wanted[i].name);

		if (!function)
			return -1;
		*(void **)wanted[i].function = function;
	}
	/* Since CUDA 11.7. */
	*(void **)&cuda.export = dlsym(library, "cuMemGetHandleForAddressRange");
	return cuda.init(0);
}

int try_cuda_count(void)
{
	int count = 0;

	return cuda.count(&count) == 0 ? count : 0;
}

void try_cuda_address(int gpu, char *text, size_t capacity)
{
	int device, domain = 0, bus = 0, slot = 0;

	if (cuda.device(&device, gpu) == 0) {
		cuda.attribute(&domain, PCI_DOMAIN, device);
		cuda.attribute(&bus, PCI_BUS, device);
		cuda.attribute(&slot, PCI_SLOT, device);
	}
	snprintf(text, capacity, "%04x:%02x:%02x.0", (unsigned)domain & 0xffff,
		 (unsigned)bus & 0xff, (unsigned)slot & 0x1f);
}

int try_cuda_allocate(int gpu, uint64_t *addr, size_t bytes)
{
	const int one = 1;
	unsigned long long at = 0;
	int device, result;
	void *context;

	result = cuda.device(&device, gpu);
	if (!result)
		result = cuda.retain(&context, device);
	if (!result)
		result = cuda.set_current(context);
	if (!result)
		result = cuda.allocate(&at, bytes);
	/* So that copies see what the card has written. Older drivers lack it for some memory. */
	if (!result)
		cuda.set_attribute(&one, SYNC_MEMOPS, at);
	*addr = at;
	return result;
}

void try_cuda_free(uint64_t addr)
{
	cuda.free(addr);
}

int try_cuda_export(uint64_t addr, size_t bytes, bool pcie, int *fd)
{
	return cuda.export ? cuda.export(fd, addr, bytes, DMA_BUF_FD, pcie ? PCIE : 0) : -1;
}

int try_cuda_write(uint64_t addr, const void *bytes, size_t length)
{
	return cuda.to_device(addr, bytes, length);
}

int try_cuda_read(uint64_t addr, void *bytes, size_t length)
{
	return cuda.to_host(bytes, addr, length);
}
