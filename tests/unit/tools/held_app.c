/* SPDX-License-Identifier: MIT */
/*
 * A program for check-cured: it holds registrations of GPU memory over the free, on the software
 * card. It reads commands, one letter a line, and answers each with a line.
 *
 *	a  allocate 2 MiB      s  allocate 64 KiB      f  free the newest allocation
 *	r  register it         d  deregister the oldest registration
 *	u  10 000 rounds of an allocation, a registration and a free; the registration is dropped
 *	   a round later, as by UCX with its hooks
 *	q  exit, whatever is held
 */
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "hook/cuda/abi.h"

enum { MOST = 16, ROUNDS = 10000 };

static struct ibv_pd *domain;
static struct ibv_mr *held[MOST];
static unsigned oldest, newest; /* of them */
static CUdeviceptr memory[MOST];
static size_t sizes[MOST];
static unsigned count;

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void begin(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *device;
	CUcontext context;

	must(!cuInit(0) && !cuCtxCreate_v2(&context, 0, 0), "CUDA");
	must(devices && devices[0], "a card");
	device = ibv_open_device(devices[0]);
	must(device != NULL, "ibv_open_device");
	domain = ibv_alloc_pd(device);
	must(domain != NULL, "ibv_alloc_pd");
	ibv_free_device_list(devices);
}

static void allocate(size_t size)
{
	must(count < MOST && !cuMemAlloc_v2(&memory[count], size), "cuMemAlloc");
	sizes[count++] = size;
}

static void free_newest(void)
{
	must(count && !cuMemFree_v2(memory[--count]), "cuMemFree");
}

static void hold(void)
{
	must(count && newest - oldest < MOST, "a registration");
	held[newest % MOST] = ibv_reg_mr(domain, (void *)(uintptr_t)memory[count - 1],
					 sizes[count - 1], IBV_ACCESS_LOCAL_WRITE);
	must(held[newest++ % MOST] != NULL, "ibv_reg_mr");
}

static void drop(void)
{
	must(oldest != newest && !ibv_dereg_mr(held[oldest++ % MOST]), "ibv_dereg_mr");
}

static void run_rounds(void)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		allocate(2 << 20);
		hold();
		if (i)
			drop();
		free_newest();
	}
	drop();
}

int main(void)
{
	char line[80];

	begin();
	while (fgets(line, sizeof(line), stdin) && line[0] != 'q') {
		switch (line[0]) {
		case 'a':
		case 's':
			allocate(line[0] == 'a' ? 2 << 20 : 64 << 10);
			break;
		case 'f':
			free_newest();
			break;
		case 'r':
			hold();
			break;
		case 'd':
			drop();
			break;
		case 'u':
			run_rounds();
			break;
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
