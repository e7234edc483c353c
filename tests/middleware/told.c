/* SPDX-License-Identifier: MIT */
/*
 * Built as a program, and as libraries that look to pindown like UCX's libucm: they open themselves
 * so that they stay loaded, and have ucm_vm_munmap(). It prints what it is told, and whether the
 * memory is still there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pindown_dl.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda.h"

#define SIZE ((size_t)4 << 20)

static CUdeviceptr first; /* addresses are printed relative to it */

#ifdef TOLD_NAME
__attribute__((visibility("default"))) void ucm_vm_munmap(void *address, size_t length);
__attribute__((visibility("default"))) void begin(CUdeviceptr begins);

void ucm_vm_munmap(void *address, size_t length)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	CUresult result = cuMemGetAddressRange_v2(&base, &size, (CUdeviceptr)address);

	printf("%s: %#llx, %zu MiB, %s\n", TOLD_NAME,
	       (unsigned long long)((CUdeviceptr)address - first), length >> 20,
	       result == CUDA_SUCCESS && size == length ? "alive" : "gone");
}

void begin(CUdeviceptr begins)
{
	Dl_info info;

	first = begins;
	if (dladdr(__builtin_return_address(0), &info) && dladdr((void *)begin, &info))
		dlopen(info.dli_fname, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
}
#else
static struct pindown_dl pindown;

static void must(int result, const char *what)
{
	if (!result)
		return;
	printf("%s: %d\n", what, result);
	exit(1);
}

static CUdeviceptr allocate(void)
{
	CUdeviceptr addr = 0;

	must((int)cuMemAlloc(&addr, SIZE), "cuMemAlloc");
	return addr;
}

static pindown_region *get(CUdeviceptr addr)
{
	pindown_region *region = NULL;

	if (pindown.get)
		must(pindown.get(addr, SIZE, 0, &region), "pindown_get");
	return region;
}

static void put(pindown_region *region)
{
	if (pindown.put)
		pindown.put(region);
}

/* As a plugin has UCX, out of the scope in which others find it; twice, to begin twice. */
static void load(const char *file)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	void (*begin)(CUdeviceptr) =
		library ? (void (*)(CUdeviceptr))dlsym(library, "begin") : NULL;

	must(!begin, file);
	begin(first);
	begin(first);
	dlclose(library);
}

int main(void)
{
	pindown_region *held;
	CUcontext context;
	CUdeviceptr addr;

	must((int)cuInit(0), "cuInit");
	must((int)cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must((int)cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pindown_dl_load(&pindown);
	first = allocate();
	load("libtold_a.so");
	load("libtold_b.so");

	puts("registered by nobody");
	addr = allocate();
	must((int)cuMemFree(addr), "cuMemFree");
	puts("flushed");
	put(get(first));
	if (pindown.flush)
		pindown.flush();
	puts("idle");
	addr = allocate();
	put(get(addr));
	must((int)cuMemFree(addr), "cuMemFree");
	puts("held");
	held = get(first);
	must((int)cuMemFree(first), "cuMemFree");
	put(held);
	return 0;
}
#endif
