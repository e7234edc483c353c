/* SPDX-License-Identifier: MIT */
/*
 * A verbs program that knows nothing of pindown: registers host memory and GPU memory, also by a
 * dma-buf that it exports itself, and lets the card copy between two GPU buffers.
 *
 * app ROAD
 *
 * ROAD is its way to libibverbs: linked, when it was built so; else dlsym or dlvsym with a handle
 * (as NCCL and UCX do), dlsym_default, dlvsym_default, dlsym_next, dlvsym_next.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

#define CALLS(X)                               \
	X(ibv_get_device_list, "IBVERBS_1.1")  \
	X(ibv_free_device_list, "IBVERBS_1.1") \
	X(ibv_open_device, "IBVERBS_1.1")      \
	X(ibv_close_device, "IBVERBS_1.1")     \
	X(ibv_alloc_pd, "IBVERBS_1.1")         \
	X(ibv_dealloc_pd, "IBVERBS_1.1")       \
	X(ibv_reg_mr, "IBVERBS_1.1")           \
	X(ibv_reg_mr_iova, "IBVERBS_1.7")      \
	X(ibv_reg_mr_iova2, "IBVERBS_1.8")     \
	X(ibv_reg_dmabuf_mr, "IBVERBS_1.12")   \
	X(ibv_dereg_mr, "IBVERBS_1.1")         \
	X(recorder_calls, "RECORDER")          \
	X(recorder_copy, "RECORDER")           \
	X(recorder_open_mrs, "RECORDER")

static struct {
#define X(name, version) typeof(name) *name;
	CALLS(X)
#undef X
} verbs;

#ifdef APP_LINKED
static void find(const char *road)
{
	(void)road;
#define X(name, version) verbs.name = name;
	CALLS(X)
#undef X
}
#else
static void *handle_for(const char *road)
{
	if (strstr(road, "_default"))
		return RTLD_DEFAULT;
	if (strstr(road, "_next"))
		return RTLD_NEXT;
	return dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
}

static void find(const char *road)
{
	void *handle = handle_for(road);
	bool versions = strncmp(road, "dlvsym", 6) == 0;

#define X(name, version) \
	verbs.name = versions ? dlvsym(handle, #name, version) : dlsym(handle, #name);
	CALLS(X)
#undef X
}
#endif

#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static struct ibv_pd *pd;

static struct ibv_mr *reg(int how, void *addr, size_t length)
{
	switch (how) {
	case 0:
		return verbs.ibv_reg_mr(pd, addr, length, ACCESS);
	case 1:
		return verbs.ibv_reg_mr_iova(pd, addr, length, (uintptr_t)addr, ACCESS);
	default:
		return verbs.ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, ACCESS);
	}
}

static void print_result(const char *what, int how, void *addr, size_t length)
{
	struct ibv_mr *mr = reg(how, addr, length);

	if (!mr) {
		printf("%s %d: %s\n", what, how, strerror(errno));
		return;
	}
	printf("%s %d: registered, its own address and length: %d\n", what, how,
	       mr->addr == addr && mr->length == length && mr->pd == pd);
	printf("%s %d: dereg %d\n", what, how, verbs.ibv_dereg_mr(mr));
}

static void copy(CUdeviceptr from, CUdeviceptr to, size_t size)
{
	struct ibv_mr *a = reg(0, (void *)from, size), *b = reg(0, (void *)to, size);
	char *bytes = malloc(size), *same = malloc(size);

	if (!a || !b) {
		printf("gpu to gpu: no regions\n");
		return;
	}
	memset(same, 'x', size);
	cuMemsetD8_v2(from, 'x', size);
	cuMemsetD8_v2(to, 'y', size);
	printf("gpu to gpu: %d", verbs.recorder_copy(a->lkey, from, b->rkey, to, size));
	cuMemcpyDtoH_v2(bytes, to, size);
	printf(", arrived: %d\n", memcmp(bytes, same, size) == 0);
	verbs.ibv_dereg_mr(a);
	verbs.ibv_dereg_mr(b);
	free(bytes);
	free(same);
}

/* As UCX and NCCL do: the descriptor is closed right after. */
static struct ibv_mr *reg_dmabuf(CUdeviceptr from)
{
	struct ibv_mr *mr;
	int fd;

	if (cuMemGetHandleForAddressRange(&fd, from, 1 << 20, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					  0))
		return NULL;
	mr = verbs.ibv_reg_dmabuf_mr(pd, 4096, 8192, from + 4096, fd, ACCESS);
	close(fd);
	return mr;
}

static void by_dmabuf(CUdeviceptr from)
{
	unsigned before = verbs.recorder_calls(RECORDER_REG_DMABUF_MR);

	if (!verbs.ibv_reg_dmabuf_mr) {
		printf("dmabuf: there is no such call\n");
		return;
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_mr *mr = reg_dmabuf(from);

		if (!mr) {
			printf("dmabuf: %s\n", strerror(errno));
			continue;
		}
		printf("dmabuf: registered, its own offset and length: %d, dereg %d\n",
		       mr->addr == (void *)4096 && mr->length == 8192 && mr->pd == pd,
		       verbs.ibv_dereg_mr(mr));
	}
	printf("dmabuf: registrations %u\n", verbs.recorder_calls(RECORDER_REG_DMABUF_MR) - before);
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	struct ibv_context *context;
	CUcontext cuda;
	CUdeviceptr p, q;
	char *host = malloc(65536);

	find(argc > 1 ? argv[1] : "");
	if (!verbs.ibv_reg_mr || !verbs.recorder_calls) {
		printf("no libibverbs%s\n", verbs.ibv_reg_mr ? ", but somebody's ibv_reg_mr" : "");
		return 1;
	}
	cuInit(0);
	cuCtxCreate_v2(&cuda, 0, 0);
	cuMemAlloc_v2(&p, 1 << 21);
	cuMemAlloc_v2(&q, 1 << 21);
	list = verbs.ibv_get_device_list(NULL);
	context = verbs.ibv_open_device(list[0]);
	verbs.ibv_free_device_list(list);
	pd = verbs.ibv_alloc_pd(context);
	for (int how = 0; how < 3; how++)
		print_result("host", how, host, 65536);
	printf("host: calls of libibverbs %u\n",
	       verbs.recorder_calls(RECORDER_REG_MR) + verbs.recorder_calls(RECORDER_REG_MR_IOVA) +
		       verbs.recorder_calls(RECORDER_REG_MR_IOVA2));
	for (int how = 0; how < 3; how++)
		print_result("gpu", how, (void *)(p + 4096), 8192);
	copy(p, q, 1 << 20);
	printf("gpu: registrations %u\n", verbs.recorder_calls(RECORDER_REG_DMABUF_MR));
	by_dmabuf(p);
	cuMemFree_v2(p);
	printf("gpu: open after one free %u\n", verbs.recorder_open_mrs());
	printf("dealloc_pd %d\n", verbs.ibv_dealloc_pd(pd));
	printf("open %u, close_device %d\n", verbs.recorder_open_mrs(),
	       verbs.ibv_close_device(context));
	cuMemFree_v2(q);
	free(host);
	return 0;
}
