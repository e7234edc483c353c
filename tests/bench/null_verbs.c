// SPDX-License-Identifier: MIT
/*
 * A libibverbs.so.1 whose calls return at once, so that the cost of a wrapper can be measured. It
 * registers nothing, and is only for measurements.
 */
#include "hook/verbs/abi.h"

#define EXPORT __attribute__((visibility("default")))

static struct ibv_device a_device;
static struct ibv_context a_context = {.device = &a_device};
static struct ibv_pd a_pd = {.context = &a_context};
static struct ibv_mr a_mr = {.context = &a_context, .pd = &a_pd, .lkey = 1, .rkey = 1};

/* By this pindown knows a libibverbs. */
EXPORT int ibv_cmd_reg_mr(void)
{
	return -1;
}

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	(void)context;
	return &a_pd;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	(void)pd;
	(void)addr;
	(void)length;
	(void)access;
	return &a_mr;
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	(void)pd;
	(void)offset;
	(void)length;
	(void)iova;
	(void)fd;
	(void)access;
	return &a_mr;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}
