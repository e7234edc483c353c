/* SPDX-License-Identifier: MIT */
/*
 * Regions by mlx5dv_reg_dmabuf_mr and by ibv_reg_mr_ex: what comes from the cache, and what is left
 * to the libraries.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs_test.h"

#define DIRECT	     MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT
#define BY_FD	     (IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA)
#define ex_calls()   recorder_calls(RECORDER_REG_MR_EX)
#define mlx5_calls() recorder_calls(RECORDER_MLX5_REG_DMABUF_MR)

static CUdeviceptr p; /* 4 MiB */
static int fd;	      /* all of it */

static void begin_with_export(void)
{
	begin();
	p = gpu_alloc(MIB(4));
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(4), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static void is_a_region(const struct ibv_mr *mr, uint64_t addr, size_t length)
{
	ck_assert_msg(mr != NULL, "errno %d", errno);
	ck_assert_int_eq(errno, 4321);
	ck_assert_ptr_eq(mr->context, device);
	ck_assert_ptr_eq(mr->pd, pd);
	ck_assert_uint_eq((uintptr_t)mr->addr, addr);
	ck_assert_uint_eq(mr->length, length);
}

/* ---- mlx5dv_reg_dmabuf_mr ---- */

static struct ibv_mr *reg(uint64_t offset, size_t length, int mlx5_access)
{
	struct ibv_mr *mr;

	errno = 4321;
	mr = mlx5dv_reg_dmabuf_mr(pd, offset, length, p + offset, fd, ALL_ACCESS, mlx5_access);
	is_a_region(mr, offset, length);
	return mr;
}

START_TEST(the_second_one_of_mlx5_is_the_first_one)
{
	struct ibv_mr *first, *second;
	struct recorder_call call;

	begin_with_export();
	first = reg(8192, KIB(64), DIRECT);
	second = reg(8192, KIB(64), DIRECT);
	ck_assert_ptr_ne(first, second);
	ck_assert_uint_eq(first->lkey, second->lkey);
	ck_assert_uint_eq(first->rkey, second->rkey);
	call = last_call(RECORDER_MLX5_REG_DMABUF_MR);
	ck_assert_int_ne(call.fd, fd); /* the region's, which all share */
	ck_assert_uint_eq(call.addr, 8192);
	ck_assert_uint_eq(call.length, KIB(64));
	ck_assert_uint_eq(call.iova, p + 8192);
	ck_assert_int_eq(call.access, ALL_ACCESS);
	ck_assert_uint_eq(call.flags, DIRECT);
	gpu_fill(p, 'a', KIB(128));
	gpu_fill(p + 8192, 'b', 4096);
	ck_assert_int_eq(recorder_copy(first->lkey, p + 8192, first->rkey, p + 16384, 4096),
			 RECORDER_OK);
	ck_assert(gpu_holds(p + 16384, 'b', 4096));
	must_deregister(first);
	must_deregister(second);
	close(fd);
	ck_assert_uint_eq(mlx5_calls(), 1);
	ck_assert_uint_eq(dmabuf_calls(), 0);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* A card may refuse one of the calls and take another one. */
START_TEST(each_call_and_its_flags_make_one_of_their_own)
{
	begin_with_export();
	for (unsigned i = 0; i < 2; i++) {
		must_deregister(reg(0, 8192, DIRECT));
		must_deregister(reg(0, 8192, 0));
		must_deregister(ibv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS));
		ck_assert_uint_eq(mlx5_calls(), 2);
		ck_assert_uint_eq(last_call(RECORDER_MLX5_REG_DMABUF_MR).flags, 0);
		ck_assert_uint_eq(dmabuf_calls(), 1);
	}
}
END_TEST

/* Flags that pindown does not know are the card's to judge; and a card of another vendor. */
START_TEST(mlx5_gives_its_own_answers)
{
	begin_with_export();
	must_deregister(reg(0, 8192, 1 << 30));
	ck_assert_uint_eq(last_call(RECORDER_MLX5_REG_DMABUF_MR).flags, 1 << 30);
	recorder_fail(RECORDER_MLX5_REG_DMABUF_MR, UINT32_MAX, EOPNOTSUPP);
	errno = 0;
	ck_assert_ptr_null(mlx5dv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS, DIRECT));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(last_call(RECORDER_MLX5_REG_DMABUF_MR).fd, fd);
	/* It is no limit of the card for the other calls. */
	must_deregister(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS));
	must_deregister(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	recorder_fail(RECORDER_MLX5_REG_DMABUF_MR, 0, 0);
	errno = 0;
	ck_assert_ptr_null(mlx5dv_reg_dmabuf_mr(pd, 0, 4096, p, -1, ALL_ACCESS, DIRECT));
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

START_TEST(a_region_of_mlx5_that_is_held)
{
	struct ibv_mr *mr;

	begin_with_export();
	mr = reg(0, 8192, DIRECT);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	must_deregister(mr);
	ck_assert_uint_eq(dereg_calls(), 1);
}
END_TEST

START_TEST(a_region_of_mlx5_is_no_other_in_its_next_life)
{
	begin_with_export();
	must_deregister(reg(0, 8192, DIRECT));
	gpu_free(p);
	close(fd);
	begin_with_export();
	for (unsigned i = 0; i < 3; i++)
		must_deregister(ibv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(mlx5_calls(), 1);
}
END_TEST

/* ---- ibv_reg_mr_ex ---- */

static struct ibv_mr *reg_ex(uint64_t mask, uint64_t addr, uint64_t iova, size_t length)
{
	struct ibv_mr_init_attr attr;

	/* Members that the mask does not name hold anything. */
	memset(&attr, 0xa5, sizeof(attr));
	attr.length = length;
	attr.access = ALL_ACCESS;
	attr.comp_mask = mask;
	if (mask & IBV_REG_MR_MASK_IOVA)
		attr.iova = iova;
	if (mask & IBV_REG_MR_MASK_ADDR)
		attr.addr = (void *)addr;
	if (mask & IBV_REG_MR_MASK_FD)
		attr.fd = fd;
	if (mask & IBV_REG_MR_MASK_FD_OFFSET)
		attr.fd_offset = addr;
	errno = 4321;
	return ibv_reg_mr_ex(pd, &attr);
}

START_TEST(gpu_memory_by_its_address)
{
	struct ibv_mr *mr;

	begin_with_export();
	for (unsigned i = 0; i < 2; i++) {
		mr = reg_ex(IBV_REG_MR_MASK_ADDR, p + 100, 0, 5000);
		is_a_region(mr, p + 100, 5000);
		must_deregister(mr);
	}
	register_once(pd, p, MIB(1), ALL_ACCESS); /* the same registration */
	ck_assert_uint_eq(dmabuf_calls(), 1);
	mr = reg_ex(IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA, p + 4096, 0, 5000);
	is_a_region(mr, p + 4096, 5000);
	ck_assert_int_eq(recorder_copy(mr->lkey, 0, mr->rkey, 4096, 100), RECORDER_OK);
	must_deregister(mr);
	ck_assert_uint_eq(ex_calls(), 0);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(gpu_memory_by_a_dmabuf)
{
	struct ibv_mr *mr;

	begin_with_export();
	for (unsigned i = 0; i < 2; i++) {
		mr = reg_ex(BY_FD, 8192, p + 8192, 5000);
		is_a_region(mr, 8192, 5000);
		must_deregister(mr);
	}
	/* It is what ibv_reg_dmabuf_mr makes. */
	must_deregister(ibv_reg_dmabuf_mr(pd, 8192, 5000, p + 8192, fd, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(ex_calls(), 0);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(host_memory_is_libibverbs_own)
{
	char *host = malloc(8192);
	struct ibv_mr *mr;

	begin();
	mr = reg_ex(IBV_REG_MR_MASK_ADDR, (uintptr_t)host, 0, 8192);
	is_a_region(mr, (uintptr_t)host, 8192);
	must_deregister(mr);
	ck_assert_uint_eq(ex_calls(), 1);
	ck_assert_uint_eq(dereg_calls(), 1);
	free(host);
}
END_TEST

/* The call reaches libibverbs as the program made it, for whatever pindown does not serve. */
START_TEST(what_reg_mr_ex_leaves_to_libibverbs)
{
	const uint64_t wrong[] = {0,
				  IBV_REG_MR_MASK_FD,
				  IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET,
				  BY_FD | IBV_REG_MR_MASK_ADDR,
				  IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF,
				  IBV_REG_MR_MASK_ADDR | 1ull << 40};
	struct ibv_mr *mr;

	begin_with_export();
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_ptr_null(reg_ex(wrong[i], p, p, 4096));
		ck_assert_int_eq(errno, EINVAL);
		ck_assert_uint_eq(last_call(RECORDER_REG_MR_EX).flags, wrong[i]);
		ck_assert_uint_eq(ex_calls(), i + 1);
	}
	ck_assert_uint_eq(dmabuf_calls(), 0);
	/* With a DMA handle, which belongs to the registration. */
	mr = reg_ex(BY_FD | IBV_REG_MR_MASK_DMAH, 0, p, 4096);
	is_a_region(mr, 0, 4096);
	ck_assert_int_eq(last_call(RECORDER_REG_MR_EX).fd, fd);
	must_deregister(mr);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(stats().misses, 0);
}
END_TEST

START_TEST(what_reg_mr_ex_can_not_cache)
{
	begin_with_export();
	recorder_fail(RECORDER_REG_DMABUF_MR, UINT32_MAX, EOPNOTSUPP);
	ck_assert_ptr_null(reg_ex(IBV_REG_MR_MASK_ADDR, p, 0, 4096));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(reg_ex(IBV_REG_MR_MASK_ADDR, gpu_alloc(MIB(4)), 0, 4096));
	must_deregister(reg_ex(BY_FD, 0, p, 4096));
	ck_assert_uint_eq(ex_calls(), 3);
	ck_assert_uint_eq(dmabuf_calls(), 2); /* a card without dma-bufs is asked twice */
}
END_TEST

START_TEST(a_full_card_gets_room_for_all_calls)
{
	begin_with_export();
	recorder_limit(0, 1);
	for (uint64_t i = 0; i < 2; i++) {
		must_deregister(reg(i * 4096, 4096, DIRECT));
		must_deregister(reg_ex(BY_FD, i * 4096, p, 4096));
		must_deregister(reg_ex(BY_FD | IBV_REG_MR_MASK_DMAH, 0, p, 4096));
	}
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(allocated_behind_pindown)
{
	CUresult (*alloc)(CUdeviceptr *, size_t);
	struct ibv_mr *mr;

	begin();
	alloc = (CUresult(*)(CUdeviceptr *, size_t))unwatched("cuMemAlloc_v2");
	OK(alloc(&p, MIB(4)));
	mr = reg_ex(IBV_REG_MR_MASK_ADDR, p, 0, 4096);
	is_a_region(mr, p, 4096);
	must_deregister(mr);
	ck_assert_uint_eq(dmabuf_calls(), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: libmlx5's regions, and ibv_reg_mr_ex");
	TCase *tc = verbs_case(suite, "mlx5dv_reg_dmabuf_mr");

	tcase_add_test(tc, the_second_one_of_mlx5_is_the_first_one);
	tcase_add_test(tc, each_call_and_its_flags_make_one_of_their_own);
	tcase_add_test(tc, mlx5_gives_its_own_answers);
	tcase_add_test(tc, a_region_of_mlx5_that_is_held);
	tcase_add_test(tc, a_region_of_mlx5_is_no_other_in_its_next_life);
	tc = verbs_case(suite, "ibv_reg_mr_ex");
	tcase_add_test(tc, gpu_memory_by_its_address);
	tcase_add_test(tc, gpu_memory_by_a_dmabuf);
	tcase_add_test(tc, host_memory_is_libibverbs_own);
	tcase_add_test(tc, what_reg_mr_ex_leaves_to_libibverbs);
	tcase_add_test(tc, what_reg_mr_ex_can_not_cache);
	tcase_add_test(tc, a_full_card_gets_room_for_all_calls);
	tcase_add_test(tc, allocated_behind_pindown);
	return run_verbs_tests(argc, argv, suite);
}
