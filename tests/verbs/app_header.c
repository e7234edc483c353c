/* SPDX-License-Identifier: MIT */
/*
 * A program built with rdma-core's own header, whose inline functions choose the call and go
 * through the context to the provider, which is the recording library here.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

/* The declarations of cuda.h that are needed here. */
int cuInit(unsigned);
int cuCtxCreate_v2(void **, unsigned, int);
int cuMemAlloc_v2(unsigned long long *, size_t);

unsigned recorder_strangers(void);

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	int access = argc > 100 ? 0 : IBV_ACCESS_LOCAL_WRITE; /* not a compile-time constant */
	struct ibv_mr *constant, *variable, *relaxed, *iova, *null;
	struct ibv_mw_bind bind = {0};
	struct ibv_mw *mw;
	struct ibv_qp qp = {0};
	struct ibv_sge sge;
	unsigned long long p;
	void *cuda, *gpu;

	(void)argv;
	cuInit(0);
	cuCtxCreate_v2(&cuda, 0, 0);
	cuMemAlloc_v2(&p, 1 << 21);
	gpu = (void *)(uintptr_t)p;
	constant = ibv_reg_mr(pd, gpu, 4096, IBV_ACCESS_LOCAL_WRITE);
	variable = ibv_reg_mr(pd, gpu, 4096, access);
	relaxed = ibv_reg_mr(pd, gpu, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	iova = ibv_reg_mr_iova(pd, gpu, 4096, 0x10000, access);
	if (!constant || !variable || !relaxed || !iova) {
		printf("not registered: errno %d\n", errno);
		return 0;
	}
	printf("one key: %d, others: %d %d\n", constant->lkey == variable->lkey,
	       relaxed->lkey != constant->lkey, iova->lkey != constant->lkey);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	bind.bind_info.mr = constant;
	bind.bind_info.addr = p;
	bind.bind_info.length = 4096;
	qp.context = context;
	printf("bind_mw: %d\n", ibv_bind_mw(&qp, mw, &bind) == ENOTSUP);
	sge = (struct ibv_sge){.addr = p, .length = 4096, .lkey = constant->lkey};
	printf("advise_mr: %d\n", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	null = ibv_alloc_null_mr(pd);
	printf("null_mr: %d, dereg %d\n", null != NULL, ibv_dereg_mr(null));
	printf("rereg: %d\n", ibv_rereg_mr(variable, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0));
	printf("dereg: %d %d %d %d\n", ibv_dereg_mr(constant), ibv_dereg_mr(variable),
	       ibv_dereg_mr(relaxed), ibv_dereg_mr(iova));
	printf("dealloc: %d %d, strangers %u\n", ibv_dealloc_mw(mw), ibv_dealloc_pd(pd),
	       recorder_strangers());
	ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
