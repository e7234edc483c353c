/* SPDX-License-Identifier: MIT */
/*
 * Frees memory of which libmiddle.so has made dma-bufs: while they are open, and afterwards. The
 * output is the same with and without pindown. check-exports has the expected trace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "middle.h"

#define SIZE ((size_t)4 << 20)

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	printf("%s: %d\n", what, (int)result);
	exit(1);
}

static CUdeviceptr allocate(void)
{
	CUdeviceptr addr = 0;

	must(cuMemAlloc_v2(&addr, SIZE), "cuMemAlloc");
	return addr;
}

static int export(CUdeviceptr addr, size_t size)
{
	int fd = middle_export(addr, size);

	if (fd < 0) {
		printf("no dma-buf of %#llx\n", (unsigned long long)addr);
		exit(1);
	}
	return fd;
}

static void *free_it(void *addr)
{
	must(cuMemFree_v2((CUdeviceptr)(uintptr_t)addr), "cuMemFree");
	return NULL;
}

static void free_in_a_thread(CUdeviceptr addr)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, free_it, (void *)(uintptr_t)addr) != 0)
		exit(1);
	pthread_join(thread, NULL);
}

/* The bug: the middleware is not notified. */
static void open_when_freed(void)
{
	CUdeviceptr addr = allocate();
	int fd = export(addr + 65536, 65536);

	free_in_a_thread(addr);
	printf("open: %#llx, descriptor %d\n", (unsigned long long)addr, fd);
	/*
	 * The same address, other memory: dma-bufs that outlived the first memory do not affect it.
	 */
	addr = allocate();
	printf("again: %#llx\n", (unsigned long long)addr);
	must(cuMemFree_v2(addr), "cuMemFree");
	close(fd);
}

static void closed_when_freed(void)
{
	CUdeviceptr addr = allocate();
	int fd = export(addr, SIZE);

	close(fd);
	/* Another file with the same number is not the dma-buf. */
	if (open("/dev/null", O_RDONLY | O_CLOEXEC) != fd)
		printf("another number\n");
	must(cuMemFree_v2(addr), "cuMemFree");
	close(fd);
	printf("closed: %#llx\n", (unsigned long long)addr);
}

static void freed_by_a_child(void)
{
	CUdeviceptr addr = allocate();
	int fd = export(addr, SIZE), status;
	pid_t child;

	fflush(stdout); /* otherwise a sanitizer's _exit() writes it again */
	child = fork();

	if (child == 0)
		_exit(fcntl(fd, F_GETFD) < 0); /* it has the descriptor, and no CUDA */
	waitpid(child, &status, 0);
	close(fd);
	must(cuMemFree_v2(addr), "cuMemFree");
	printf("child: %d\n", status);
}

static void ended_with_its_context(CUdevice device)
{
	CUdeviceptr addr;
	CUcontext context;
	int fd;

	must(cuCtxCreate_v2(&context, 0, device), "cuCtxCreate");
	addr = allocate();
	fd = export(addr, SIZE);
	must(cuCtxDestroy_v2(context), "cuCtxDestroy");
	printf("context: %#llx, descriptor %d\n", (unsigned long long)addr, fd);
	close(fd);
}

/* Correct, if the stream orders the free after the last use. */
static void freed_in_stream_order(void)
{
	CUdeviceptr addr = 0;
	int fd;

	must(cuMemAllocAsync(&addr, SIZE, NULL), "cuMemAllocAsync");
	fd = export(addr, SIZE);
	must(cuMemFreeAsync(addr, NULL), "cuMemFreeAsync");
	close(fd);
	must(cuStreamSynchronize(NULL), "cuStreamSynchronize");
	printf("in order: %#llx\n", (unsigned long long)addr);
}

int main(void)
{
	CUdevice device;
	CUcontext context;

	must(cuInit(0), "cuInit");
	must(cuDeviceGet(&device, 0), "cuDeviceGet");
	must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	open_when_freed();
	closed_when_freed();
	freed_by_a_child();
	ended_with_its_context(device);
	freed_in_stream_order();
	return 0;
}
