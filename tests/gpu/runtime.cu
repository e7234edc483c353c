// SPDX-License-Identifier: MIT
/*
 * A program of CUDA's runtime, compiled with the static and with the shared libcudart, with the
 * legacy and with the per-thread default stream. Prints results; notes each address that it freed
 * in the file that GPU_FREED names.
 */
#include <cuda_runtime.h>
#include <cudaTypedefs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE (4u << 20)

static FILE *freed;

static void must(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	printf("%s: %s\n", what, cudaGetErrorName(error));
	exit(1);
}
#define MUST(call) must(call, #call)

static void note(const void *at)
{
	if (freed)
		fprintf(freed, "%p\n", at);
}

__global__ void fill(unsigned *at, unsigned value, unsigned count)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		at[i] = value + i;
}

static unsigned long long sum(const unsigned *at)
{
	static unsigned host[SIZE / 4];
	unsigned long long total = 0;

	MUST(cudaMemcpy(host, at, SIZE, cudaMemcpyDeviceToHost));
	for (unsigned i = 0; i < SIZE / 4; i++)
		total += host[i];
	return total;
}

static void show(const char *what, unsigned *at, unsigned value)
{
	fill<<<SIZE / 4 / 256, 256>>>(at, value, SIZE / 4);
	MUST(cudaGetLastError());
	MUST(cudaDeviceSynchronize());
	printf("%s: %llu\n", what, sum(at));
}

static void linear()
{
	unsigned *at;

	for (int i = 0; i < 50; i++) {
		MUST(cudaMalloc(&at, SIZE));
		if (i % 25 == 0)
			show("linear", at, i);
		note(at);
		MUST(cudaFree(at));
	}
	printf("twice: %s\n", cudaGetErrorName(cudaFree(at)));
	printf("nothing: %s\n", cudaGetErrorName(cudaFree(nullptr)));
	printf("too much: %s\n", cudaGetErrorName(cudaMalloc(&at, (size_t)1 << 50)));
	printf("reported again: %s\n", cudaGetErrorName(cudaGetLastError()));
}

static void others()
{
	void *at, *host;
	size_t pitch;

	MUST(cudaMallocPitch(&at, &pitch, 3000, 100));
	printf("pitch: %zu\n", pitch);
	note(at);
	MUST(cudaFree(at));
	MUST(cudaMallocHost(&host, SIZE));
	note(host);
	MUST(cudaFreeHost(host));
	MUST(cudaMallocManaged(&at, 1 << 20));
	note(at);
	MUST(cudaFree(at));
}

static void on_stream()
{
	cudaStream_t stream;
	unsigned *at;

	MUST(cudaStreamCreate(&stream));
	for (int i = 0; i < 50; i++) {
		MUST(cudaMallocAsync((void **)&at, SIZE, i % 2 ? stream : 0));
		MUST(cudaStreamSynchronize(i % 2 ? stream : 0));
		if (i >= 48)
			show("async", at, i);
		note(at);
		MUST(cudaFreeAsync(at, i % 2 ? stream : 0));
	}
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaStreamDestroy(stream));
}

/* The runtime hands out the driver's functions too. */
static void by_entry_point()
{
	cudaDriverEntryPointQueryResult found;
	PFN_cuMemAlloc_v3020 allocate = nullptr;
	PFN_cuMemFree_v3020 release = nullptr;
	CUdeviceptr at;

	MUST(cudaGetDriverEntryPointByVersion("cuMemAlloc", (void **)&allocate, 3020,
					      cudaEnableDefault, &found));
	MUST(cudaGetDriverEntryPointByVersion("cuMemFree", (void **)&release, 3020,
					      cudaEnableDefault, &found));
	for (int i = 0; i < 10; i++) {
		int result = allocate(&at, SIZE);

		note((void *)at);
		printf("entry points: %d %d\n", result, release(at));
	}
}

int main()
{
	const char *path = getenv("GPU_FREED");

	freed = path ? fopen(path, "w") : nullptr;
	linear();
	others();
	on_stream();
	by_entry_point();
	printf("reset: %s\n", cudaGetErrorName(cudaDeviceReset()));
	if (freed)
		fclose(freed);
	return 0;
}
