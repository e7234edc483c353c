/* SPDX-License-Identifier: MIT */
/*
 * The cost of registering 64 MiB of GPU memory with a network card, 10 000 times, on the recording
 * libibverbs in place of the card: without pindown by hand, as a program without a cache does it
 * (the driver's export, ibv_reg_dmabuf_mr, close, ibv_dereg_mr); with it preloaded by ibv_reg_mr
 * and ibv_dereg_mr. Prints lines "NAME<tab>NANOSECONDS", and fails when the number of registrations
 * is wrong.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "hook/cuda/abi.h"
#include "tests/verbs/recorder.h"

#define BYTES  ((size_t)64 << 20)
#define TIMES  10000
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct ibv_pd *pd;
static CUdeviceptr at;

static void must(int result, const char *what)
{
	if (result != 0)
		stop(what, result);
}

static void by_hand(void)
{
	struct ibv_mr *mr;
	int fd = -1;

	must(cuMemGetHandleForAddressRange(&fd, at, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
	     "export");
	mr = ibv_reg_dmabuf_mr(pd, 0, BYTES, at, fd, ACCESS);
	if (!mr)
		stop("ibv_reg_dmabuf_mr", 0);
	close(fd);
	must(ibv_dereg_mr(mr), "ibv_dereg_mr");
}

static void by_pindown(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)at, BYTES, ACCESS);

	if (!mr)
		stop("ibv_reg_mr", 0);
	must(ibv_dereg_mr(mr), "ibv_dereg_mr");
}

static double time_of(void (*step)(void))
{
	static double times[TIMES / 10];

	for (int i = 0; i < TIMES / 10; i++) {
		double begin = now_ns();

		for (int j = 0; j < 10; j++)
			step();
		times[i] = (now_ns() - begin) / 10;
	}
	return median(times, TIMES / 10);
}

static size_t free_bytes(void)
{
	size_t left = 0, all;

	must(cuMemGetInfo_v2(&left, &all), "cuMemGetInfo");
	return left;
}

int main(void)
{
	bool preloaded = dlsym(RTLD_DEFAULT, "pindown_get") != NULL;
	struct ibv_device **list = ibv_get_device_list(NULL);
	CUcontext context;
	CUdeviceptr first;
	size_t before;

	must(cuInit(0), "cuInit");
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	pd = ibv_alloc_pd(ibv_open_device(list[0]));
	ibv_free_device_list(list);
	before = free_bytes();
	must(cuMemAlloc_v2(&at, BYTES), "cuMemAlloc");
	print_measure("register + deregister, 64 MiB", time_of(preloaded ? by_pindown : by_hand));
	if (recorder_calls(RECORDER_REG_DMABUF_MR) != (preloaded ? 1 : TIMES))
		stop("registrations", (int)recorder_calls(RECORDER_REG_DMABUF_MR));
	must(cuMemFree_v2(at), "cuMemFree");
	if (recorder_open_mrs() != 0 || free_bytes() != before)
		stop("regions left after the free", (int)recorder_open_mrs());
	/* The same address, if the driver reuses it: another registration. */
	first = at;
	must(cuMemAlloc_v2(&at, BYTES), "cuMemAlloc");
	(preloaded ? by_pindown : by_hand)();
	if (preloaded && recorder_calls(RECORDER_REG_DMABUF_MR) != 2)
		stop("registrations after a new allocation",
		     (int)recorder_calls(RECORDER_REG_DMABUF_MR));
	fprintf(stderr, "the address was %s\n", first == at ? "the same" : "another");
	must(cuMemFree_v2(at), "cuMemFree");
	return 0;
}
