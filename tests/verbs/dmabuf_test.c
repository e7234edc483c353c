/* SPDX-License-Identifier: MIT */
/* Memory that the program has exported itself, and its registrations: see dmabuf_test.h. */
#include "dmabuf_test.h"

CUdeviceptr p;
int fd;

int export_range(CUdeviceptr addr, size_t size, unsigned long long flags)
{
	int made = -1;

	OK(cuMemGetHandleForAddressRange(&made, addr, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					 flags));
	return made;
}

void begin_with_export(void)
{
	begin();
	p = gpu_alloc(MIB(4));
	fd = export_range(p, MIB(4), 0);
}

struct ibv_mr *reg(struct ibv_pd *in, uint64_t offset, size_t length, uint64_t iova, int by,
		   int access)
{
	struct ibv_mr *mr;

	errno = 4321;
	mr = ibv_reg_dmabuf_mr(in, offset, length, iova, by, access);
	ck_assert_msg(mr != NULL, "ibv_reg_dmabuf_mr: errno %d", errno);
	ck_assert_int_eq(errno, 4321);
	ck_assert_ptr_eq(mr->context, in->context);
	ck_assert_ptr_eq(mr->pd, in);
	ck_assert_uint_eq((uintptr_t)mr->addr, offset);
	ck_assert_uint_eq(mr->length, length);
	return mr;
}

struct ibv_mr *reg_at(uint64_t offset, size_t length)
{
	return reg(pd, offset, length, p + offset, fd, ALL_ACCESS);
}

void once(uint64_t offset, size_t length)
{
	must_deregister(reg_at(offset, length));
}

bool was_untouched(struct ibv_pd *in, uint64_t offset, size_t length, uint64_t iova, int by,
		   int access)
{
	struct recorder_call call = last_call(RECORDER_REG_DMABUF_MR);

	return call.pd == in && call.addr == offset && call.length == length && call.iova == iova &&
	       call.fd == by && call.access == access;
}
