/* SPDX-License-Identifier: MIT */
/* A program of 2006, bound to IBVERBS_1.0, which has other structures. */
#include <stdio.h>
#include <stdlib.h>

#include "hook/cuda/abi.h"
#include "recorder.h"

struct recorder_mr_1_0 *old_reg_mr(struct recorder_pd_1_0 *pd, void *addr, size_t length,
				   int access);
int old_dereg_mr(struct recorder_mr_1_0 *mr);
__asm__(".symver old_reg_mr, ibv_reg_mr@IBVERBS_1.0");
__asm__(".symver old_dereg_mr, ibv_dereg_mr@IBVERBS_1.0");

static void print_result(const char *what, struct recorder_pd_1_0 *pd, void *addr)
{
	struct recorder_mr_1_0 *mr = old_reg_mr(pd, addr, 4096, IBV_ACCESS_LOCAL_WRITE);

	if (!mr) {
		printf("%s: not registered\n", what);
		return;
	}
	printf("%s: of the domain %d, key %d", what, mr->pd == pd, mr->lkey == mr->real_mr->lkey);
	printf(", dereg %d\n", old_dereg_mr(mr));
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct recorder_pd_1_0 pd = {.real_pd = ibv_alloc_pd(ibv_open_device(list[0]))};
	void *host = malloc(4096);
	CUcontext cuda;
	CUdeviceptr p;

	cuInit(0);
	cuCtxCreate_v2(&cuda, 0, 0);
	cuMemAlloc_v2(&p, 1 << 21);
	print_result("host", &pd, host);
	print_result("gpu", &pd, (void *)p);
	printf("strangers %u\n", recorder_strangers());
	ibv_free_device_list(list);
	free(host);
	return 0;
}
