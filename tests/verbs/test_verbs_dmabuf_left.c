/* SPDX-License-Identifier: MIT */
/* Which calls of ibv_reg_dmabuf_mr are left to libibverbs, and reach it untouched. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "dmabuf_test.h"

/* NCCL asks so whether the card takes dma-bufs. */
START_TEST(the_probe_gets_its_own_answer)
{
	const int answers[] = {EOPNOTSUPP, EPROTONOSUPPORT, EBADF};

	begin();
	for (unsigned round = 0; round < 2; round++) {
		unsigned before = dmabuf_calls();

		errno = 0;
		ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0));
		ck_assert_int_eq(errno, EINVAL); /* of the recording libibverbs */
		for (unsigned i = 0; i < 3; i++) {
			recorder_fail(RECORDER_REG_DMABUF_MR, 1, answers[i]);
			errno = 0;
			ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0));
			ck_assert_int_eq(errno, answers[i]);
			ck_assert(was_untouched(pd, 0, 0, 0, -1, 0));
		}
		ck_assert_uint_eq(dmabuf_calls(), before + 4);
		/* The same when exports are known. */
		p = gpu_alloc(MIB(4));
		fd = export_range(p, MIB(4), 0);
	}
	once(0, 4096); /* it is no limit of the card */
	once(0, 4096);
	ck_assert_uint_eq(dmabuf_calls(), 9);
}
END_TEST

START_TEST(a_descriptor_that_is_not_known)
{
	struct ibv_mr *mr;
	int unknown;

	begin_with_export();
	unknown = memfd_create("unknown", MFD_CLOEXEC);
	for (unsigned i = 0; i < 2; i++) {
		mr = reg(pd, 0, 4096, p, unknown, ALL_ACCESS);
		ck_assert(was_untouched(pd, 0, 4096, p, unknown, ALL_ACCESS));
		must_deregister(mr);
	}
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_uint_eq(dereg_calls(), 2);
	/* Its number has been that of a known one. */
	close(fd);
	ck_assert_int_eq(dup2(unknown, fd), fd);
	mr = reg_at(0, 4096);
	ck_assert(was_untouched(pd, 0, 4096, p, fd, ALL_ACCESS));
	must_deregister(mr);
	ck_assert_uint_eq(stats().misses, 0);
}
END_TEST

START_TEST(what_no_dmabuf_can_do)
{
	begin_with_export();
	errno = 0;
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, IBV_ACCESS_ON_DEMAND));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert(was_untouched(pd, 0, 4096, p, fd, IBV_ACCESS_ON_DEMAND));
	errno = 0;
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 4096, p + 1, fd, ALL_ACCESS));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert(was_untouched(pd, 0, 4096, p + 1, fd, ALL_ACCESS));
	errno = 0;
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 0, p, fd, ALL_ACCESS));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_uint_eq(dmabuf_calls(), 3);
	ck_assert_uint_eq(stats().misses, 0);
}
END_TEST

/* The card may look further than the export reaches; pindown does not. */
START_TEST(a_range_beyond_the_export)
{
	int part;

	begin_with_export();
	part = export_range(p, KIB(64), 0);
	must_deregister(reg(pd, KIB(60), 8192, p, part, ALL_ACCESS));
	ck_assert(was_untouched(pd, KIB(60), 8192, p, part, ALL_ACCESS));
	ck_assert_uint_eq(stats().misses, 0);
}
END_TEST

/* Of three allocations the one in the middle is taken for the exported one. */
START_TEST(a_range_over_several_allocations)
{
	CUdeviceptr three[3];
	int by;

	begin();
	for (unsigned i = 0; i < 3; i++)
		three[i] = gpu_alloc(KIB(64));
	ck_assert_uint_eq(three[2], three[0] + KIB(128));
	by = export_range(three[0], KIB(192), 0);
	must_deregister(reg(pd, 0, KIB(192), three[0], by, ALL_ACCESS));
	ck_assert(was_untouched(pd, 0, KIB(192), three[0], by, ALL_ACCESS));
	must_deregister(reg(pd, KIB(128), KIB(64), three[2], by, ALL_ACCESS));
	ck_assert(was_untouched(pd, KIB(128), KIB(64), three[2], by, ALL_ACCESS));
	must_deregister(reg(pd, KIB(64), KIB(128), three[1], by, ALL_ACCESS));
	ck_assert(was_untouched(pd, KIB(64), KIB(128), three[1], by, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 3);
	for (unsigned i = 0; i < 2; i++)
		must_deregister(reg(pd, KIB(64), KIB(64), three[1], by, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 4);
	ck_assert_uint_eq(dereg_calls(), 3);
}
END_TEST

START_TEST(a_dmabuf_of_memory_that_was_freed)
{
	struct ibv_mr *mr;

	begin_with_export();
	once(0, 4096);
	gpu_free(p);
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	gpu_fill(p, 'n', KIB(64));
	mr = reg_at(0, KIB(64)); /* of the old memory, as without pindown */
	ck_assert(was_untouched(pd, 0, KIB(64), p, fd, ALL_ACCESS));
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 4096), RECORDER_OK);
	ck_assert(gpu_holds(p, 'n', KIB(64)));
	must_deregister(mr);
	ck_assert_uint_eq(dereg_calls(), 2);
}
END_TEST

static CUdeviceptr taken;

/* The memory passes to another allocation while the card registers it, and nobody sees that. */
static void replace(void *arg)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) =
		(CUresult(*)(CUdeviceptr *, size_t))unwatched("cuMemAlloc_v2");

	(void)arg;
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, NULL, NULL);
	ck_assert_int_eq(sim_free_unseen(p), CUDA_SUCCESS);
	ck_assert_int_eq(alloc(&taken, MIB(4)), CUDA_SUCCESS);
}

START_TEST(memory_that_is_replaced_while_it_is_registered)
{
	struct ibv_mr *mr;

	begin_with_export();
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, replace, NULL);
	mr = reg_at(0, 4096);
	ck_assert_uint_eq(taken, p);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert(was_untouched(pd, 0, 4096, p, fd, ALL_ACCESS));
	ck_assert_uint_eq(dereg_calls(), 1);
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	gpu_free(p);
}
END_TEST

/* Nobody saw the free of the region's memory; the program's dma-buf is of what took its place. */
START_TEST(a_region_of_memory_that_was_freed_unseen)
{
	CUresult (*alloc)(CUdeviceptr *, size_t) =
		(CUresult(*)(CUdeviceptr *, size_t))unwatched("cuMemAlloc_v2");
	pindown_region *region;
	struct ibv_mr *mr;

	begin();
	p = gpu_alloc(MIB(4));
	/* A thread's first hit is compared with the driver, and then few. */
	for (unsigned i = 0; i < 10; i++) {
		ck_assert_int_eq(pindown_get(p, 4096, 0, &region), PINDOWN_OK);
		pindown_put(region);
	}
	ck_assert_int_eq(sim_free_unseen(p), CUDA_SUCCESS);
	ck_assert_int_eq(alloc(&taken, MIB(4)), CUDA_SUCCESS);
	ck_assert_uint_eq(taken, p);
	gpu_fill(p, 'n', KIB(64));
	fd = export_range(p, MIB(4), 0);
	mr = reg_at(0, KIB(64));
	gpu_fill(p, 'm', KIB(4));
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + KIB(32), KIB(4)), RECORDER_OK);
	ck_assert(gpu_holds(p + KIB(32), 'm', KIB(4)));
	must_deregister(mr);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* An answer of the driver that is an error leaves *handle alone: that is no export. */
START_TEST(an_export_that_fails)
{
	int unknown;
	CUresult result;

	begin_with_export();
	unknown = memfd_create("unknown", MFD_CLOEXEC);
	result = cuMemGetHandleForAddressRange(&unknown, p + 1, MIB(2),
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	ck_assert_int_ne(result, CUDA_SUCCESS);
	result = cuMemGetHandleForAddressRange(&unknown, p, ~0ull << 12,
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	ck_assert_int_ne(result, CUDA_SUCCESS);
	must_deregister(reg(pd, 0, 4096, p, unknown, ALL_ACCESS));
	ck_assert(was_untouched(pd, 0, 4096, p, unknown, ALL_ACCESS));
	once(0, 4096);
}
END_TEST

START_TEST(a_card_that_refuses_the_regions_dmabuf)
{
	struct ibv_mr *mr;

	begin_with_export();
	recorder_fail(RECORDER_REG_DMABUF_MR, 1, EIO);
	mr = reg_at(0, 4096);
	ck_assert(was_untouched(pd, 0, 4096, p, fd, ALL_ACCESS));
	must_deregister(mr);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	recorder_fail(RECORDER_REG_DMABUF_MR, 2, EIO);
	errno = 0;
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS));
	ck_assert_int_eq(errno, EIO);
	/* The structure that was taken for it is not lost. */
	mr = reg_at(0, 4096);
	must_deregister(mr);
	for (unsigned i = 0; i < 3; i++) {
		recorder_fail(RECORDER_REG_DMABUF_MR, 2, EIO);
		ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 4096, 4096, p, fd, ALL_ACCESS));
	}
	ck_assert_ptr_eq(reg_at(0, 4096), mr);
}
END_TEST

START_TEST(a_card_that_takes_no_dmabufs_is_asked_once)
{
	begin_with_export();
	recorder_fail(RECORDER_REG_DMABUF_MR, 3, EOPNOTSUPP);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)gpu_alloc(MIB(4)), 4096, ALL_ACCESS));
	errno = 0;
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_uint_eq(dmabuf_calls(), 3);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: dma-bufs that are left to libibverbs");
	TCase *tc = verbs_case(suite, "left to libibverbs");

	setenv("SIM_EXPORT_PCIE", "1", 1);
	tcase_add_test(tc, the_probe_gets_its_own_answer);
	tcase_add_test(tc, a_descriptor_that_is_not_known);
	tcase_add_test(tc, what_no_dmabuf_can_do);
	tcase_add_test(tc, a_range_beyond_the_export);
	tcase_add_test(tc, a_range_over_several_allocations);
	tcase_add_test(tc, a_dmabuf_of_memory_that_was_freed);
	tcase_add_test(tc, memory_that_is_replaced_while_it_is_registered);
	tcase_add_test(tc, a_region_of_memory_that_was_freed_unseen);
	tcase_add_test(tc, an_export_that_fails);
	tcase_add_test(tc, a_card_that_refuses_the_regions_dmabuf);
	tcase_add_test(tc, a_card_that_takes_no_dmabufs_is_asked_once);
	return run_verbs_tests(argc, argv, suite);
}
