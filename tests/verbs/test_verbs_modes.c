/* SPDX-License-Identifier: MIT */
/*
 * The verbs with other configurations, which a process reads when it starts: the program's name
 * selects one, test_verbs_exact, test_verbs_off and so on.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "verbs_test.h"

/* ---- PINDOWN_VERBS=exact ---- */

START_TEST(a_key_is_good_for_the_pages_that_were_named)
{
	struct ibv_mr *mr;
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p + 5000, 10000, ALL_ACCESS);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 4096);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, 12288);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).iova, p + 4096);
	ck_assert_int_eq(recorder_copy(mr->lkey, p + 5000, mr->rkey, p + 8192, 100), RECORDER_OK);
	ck_assert_int_eq(recorder_copy(mr->lkey, p + 5000, mr->rkey, p + 16384, 100),
			 RECORDER_REMOTE_ERROR);
	must_deregister(mr);
	register_once(pd, p + 4100, 12000, ALL_ACCESS); /* the same pages */
	ck_assert_uint_eq(dmabuf_calls(), 1);
	register_once(pd, p + 4096, 12289, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(an_exact_iova)
{
	CUdeviceptr p;
	struct ibv_mr *mr;

	begin();
	p = gpu_alloc(MIB(4));
	mr = ibv_reg_mr_iova(pd, (void *)(p + 8192), 4096, 0, ALL_ACCESS);
	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 8192);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, 4096);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).iova, 0);
	must_deregister(mr);
}
END_TEST

/* Each has an object of its own; the address is retired for both. */
START_TEST(exact_ones_end_with_their_memory)
{
	struct ibv_mr *mr[2];
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	mr[0] = must_register(pd, p + 8192, 4096, ALL_ACCESS);
	mr[1] = must_register(pd, p + MIB(2), MIB(1), ALL_ACCESS);
	ck_assert_uint_ne(mr[0]->lkey, mr[1]->lkey);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_ne(gpu_alloc(MIB(4)), p);
	must_deregister(mr[0]);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	must_deregister(mr[1]);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(dereg_calls(), 2);
}
END_TEST

/* ---- PINDOWN_VERBS=0 ---- */

START_TEST(switched_off_everything_is_libibverbs_own)
{
	CUdeviceptr p;
	struct ibv_mr *mr;

	begin();
	p = gpu_alloc(MIB(4));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
	recorder_peermem(true);
	mr = ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	ck_assert_uint_eq(dmabuf_calls(), 0);
	ck_assert_uint_eq(host_calls(), 2);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_uint_eq(stats().hits + stats().misses, 0);
}
END_TEST

static int export_of(CUdeviceptr p, size_t size)
{
	int fd = -1;

	OK(cuMemGetHandleForAddressRange(&fd, p, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	return fd;
}

START_TEST(switched_off_a_programs_dmabuf_is_libibverbs_own)
{
	CUdeviceptr p;
	struct ibv_mr *mr;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	for (unsigned i = 0; i < 2; i++) {
		mr = ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS);
		ck_assert_int_eq(last_call(RECORDER_REG_DMABUF_MR).fd, fd);
		ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	}
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_uint_eq(dereg_calls(), 2);
	ck_assert_uint_eq(stats().hits + stats().misses, 0);
}
END_TEST

START_TEST(switched_off_the_other_calls_are_left_alone)
{
	struct ibv_mr_init_attr attr = {
		.length = 4096, .access = ALL_ACCESS, .comp_mask = IBV_REG_MR_MASK_ADDR};
	CUdeviceptr p;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	attr.addr = (void *)p;
	ck_assert_ptr_null(ibv_reg_mr_ex(pd, &attr));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_ptr_null(mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE));
	ck_assert_int_eq(errno, EFAULT);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(
			ibv_dereg_mr(mlx5dv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS, 0)), 0);
	ck_assert_uint_eq(recorder_calls(RECORDER_MLX5_REG_DMABUF_MR), 2);
	ck_assert_uint_eq(dereg_calls(), 2);
	ck_assert_uint_eq(stats().hits + stats().misses, 0);
	close(fd);
	gpu_free(p);
}
END_TEST

/* ---- PINDOWN_HELD=revoke ---- */

START_TEST(a_registration_in_use_ends_with_its_memory)
{
	struct ibv_mr *mr, *again;
	uint32_t old;
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	old = mr->rkey;
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	again = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(recorder_copy(again->lkey, p, old, p + 4096, 10), RECORDER_REMOTE_ERROR);
	must_deregister(mr); /* harmless */
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_int_eq(recorder_copy(again->lkey, p, again->rkey, p + 4096, 10), RECORDER_OK);
	must_deregister(again);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

/* The free takes effect later: a transfer that precedes it in the stream continues. */
START_TEST(what_is_freed_in_stream_order_ends_when_it_is_handed_out_again)
{
	CUdeviceptr p, q, again;
	struct ibv_mr *mr, *idle;

	begin();
	OK(cuMemAllocAsync(&p, MIB(4), NULL));
	OK(cuMemAllocAsync(&q, MIB(4), NULL));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	idle = must_register(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	must_deregister(idle);
	OK(cuMemFreeAsync(p, NULL));
	ck_assert_uint_eq(recorder_open_mrs(), 1); /* the one that nobody held has ended at once */
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 10), RECORDER_OK);
	OK(cuMemFreeAsync(q, NULL));
	OK(cuMemAllocAsync(&again, MIB(4), NULL));
	while (again != p) {
		ck_assert_uint_eq(recorder_open_mrs(), 1); /* other memory does not affect it */
		OK(cuMemAllocAsync(&again, MIB(4), NULL));
	}
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	must_deregister(mr);
	ck_assert_uint_eq(dereg_calls(), 2);
}
END_TEST

/* Memory of cuMemAlloc, which the driver keeps until the stream's turn: registered in between. */
START_TEST(what_is_registered_before_the_turn_ends_when_it_is_handed_out_again)
{
	struct ibv_mr *mr;
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	OK(cuMemFreeAsync(p, NULL));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	OK(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	must_deregister(mr);
	ck_assert_uint_eq(dereg_calls(), 1);
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	gpu_free(p);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
}
END_TEST

START_TEST(one_by_a_programs_dmabuf_ends_with_its_memory)
{
	struct ibv_mr *mr, *again;
	uint32_t old;
	CUdeviceptr p;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	mr = ibv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS);
	old = mr->rkey;
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	fd = export_of(p, MIB(4));
	again = ibv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS);
	ck_assert_uint_ne(again->rkey, old);
	ck_assert_int_eq(recorder_copy(again->lkey, p, old, p + 4096, 10), RECORDER_REMOTE_ERROR);
	must_deregister(mr); /* harmless */
	ck_assert_uint_eq(dereg_calls(), 1);
	must_deregister(again);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(a_revoked_one_can_be_changed_into_a_good_one)
{
	struct ibv_mr *mr;
	CUdeviceptr p, q;

	begin();
	p = gpu_alloc(MIB(4));
	q = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	gpu_free(p);
	ck_assert_int_eq(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)q, 4096, 0), 0);
	ck_assert_int_eq(recorder_copy(mr->lkey, q, mr->rkey, q + 4096, 10), RECORDER_OK);
	must_deregister(mr);
}
END_TEST

START_TEST(one_of_each_other_call_ends_with_its_memory)
{
	struct ibv_mr_init_attr attr = {.length = 4096, .access = ALL_ACCESS};
	struct ibv_mr *mr[3];
	CUdeviceptr p;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	attr.comp_mask = IBV_REG_MR_MASK_ADDR;
	attr.addr = (void *)p;
	mr[0] = ibv_reg_mr_ex(pd, &attr);
	attr.comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
	attr.fd = fd;
	attr.iova = p;
	mr[1] = ibv_reg_mr_ex(pd, &attr);
	mr[2] = mlx5dv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS,
				     MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_ptr_nonnull(mr[i]);
	ck_assert_uint_eq(recorder_open_mrs(), 3);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(recorder_copy(mr[i]->lkey, p, mr[i]->rkey, p + 1024, 1),
				 RECORDER_LOCAL_ERROR);
		must_deregister(mr[i]);
	}
	ck_assert_uint_eq(dereg_calls(), 3);
}
END_TEST

/* The program's pointer stays good, also when libmlx5 uses its memory for another umem. */
START_TEST(a_umem_in_use_ends_with_its_memory)
{
	struct mlx5dv_devx_umem *umem, *again;
	CUdeviceptr p;
	uint32_t old;

	begin();
	p = gpu_alloc(MIB(4));
	umem = mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_ptr_nonnull(umem);
	old = umem->umem_id;
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert(!recorder_umem_use(old, true));
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	again = mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_uint_eq(umem->umem_id, old);
	ck_assert_uint_ne(again->umem_id, old);
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(umem), 0);
	ck_assert_uint_eq(recorder_calls(RECORDER_UMEM_DEREG), 1);
	ck_assert_uint_eq(recorder_open_umems(), 1);
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(again), 0);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 0);
}
END_TEST

/* The program ends its object of the card first, then the umem. */
START_TEST(a_umem_that_the_card_uses_ends_after_its_object)
{
	struct mlx5dv_devx_umem *umem;
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	umem = mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert(recorder_umem_use(umem->umem_id, true));
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 1);
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	ck_assert(recorder_umem_use(umem->umem_id, false));
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(umem), 0);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* ---- PINDOWN_HELD=keep ---- */

START_TEST(a_region_that_the_program_holds_is_kept_and_counted)
{
	struct ibv_mr *mr, *again;
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().kept_bytes, MIB(4));
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), 0);
	again = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_ne(again->lkey, mr->lkey);
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	must_deregister(again);
}
END_TEST

static void keeps_until_deregistered(CUdeviceptr p, struct ibv_mr *mr)
{
	ck_assert_ptr_nonnull(mr);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}

START_TEST(one_by_a_programs_dmabuf_is_kept_and_counted)
{
	struct ibv_mr *mr;
	CUdeviceptr p;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	mr = ibv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS);
	close(fd);
	keeps_until_deregistered(p, mr);
}
END_TEST

START_TEST(one_of_mlx5_is_kept_and_counted)
{
	struct ibv_mr *mr;
	CUdeviceptr p;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	mr = mlx5dv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS,
				  MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT);
	close(fd);
	keeps_until_deregistered(p, mr);
}
END_TEST

/* ---- PINDOWN_BACKEND=none ---- */

START_TEST(a_programs_dmabuf_serves_without_a_regions)
{
	CUdeviceptr p;
	int fd;

	begin();
	p = gpu_alloc(MIB(4));
	fd = export_of(p, MIB(4));
	for (unsigned i = 0; i < 2; i++)
		must_deregister(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, ALL_ACCESS));
	ck_assert_int_ne(last_call(RECORDER_REG_DMABUF_MR).fd, fd); /* a duplicate of it */
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(dereg_calls(), 0);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 1);
}
END_TEST

START_TEST(without_a_descriptor_libibverbs_is_asked)
{
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(4));
	recorder_peermem(true);
	must_deregister(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_uint_eq(host_calls(), 1);
	ck_assert_uint_eq(dmabuf_calls(), 0);
}
END_TEST

/* ---- PINDOWN_MAX_REGIONS=4 ---- */

START_TEST(what_is_evicted_is_deregistered)
{
	CUdeviceptr p[20];

	begin();
	for (int i = 0; i < 20; i++) {
		p[i] = gpu_alloc(MIB(2));
		register_once(pd, p[i], 4096, ALL_ACCESS);
		ck_assert_uint_le(recorder_open_mrs(), 4);
	}
	ck_assert_uint_eq(dmabuf_calls(), 20);
	ck_assert_uint_eq(dereg_calls(), 16);
	register_once(pd, p[19], 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 20);
}
END_TEST

START_TEST(what_is_in_use_is_not_evicted)
{
	struct ibv_mr *mr[4];
	CUdeviceptr p[5];

	begin();
	for (int i = 0; i < 5; i++)
		p[i] = gpu_alloc(MIB(2));
	for (int i = 0; i < 4; i++)
		mr[i] = must_register(pd, p[i], 4096, ALL_ACCESS);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p[4], 4096, ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
	must_deregister(mr[2]);
	register_once(pd, p[4], 4096, ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 4);
}
END_TEST

static const struct mode {
	const char *program, *variable, *value;
} modes[] = {
	{"test_verbs_exact", "PINDOWN_VERBS", "exact"},
	{"test_verbs_off", "PINDOWN_VERBS", "0"},
	{"test_verbs_revoke", "PINDOWN_HELD", "revoke"},
	{"test_verbs_none", "PINDOWN_BACKEND", "none"},
	{"test_verbs_few", "PINDOWN_MAX_REGIONS", "4"},
	{"test_verbs_keep", "PINDOWN_HELD", "keep"},
};

static void add_tests(TCase *tc, unsigned mode)
{
	switch (mode) {
	case 0:
		tcase_add_test(tc, a_key_is_good_for_the_pages_that_were_named);
		tcase_add_test(tc, an_exact_iova);
		tcase_add_test(tc, exact_ones_end_with_their_memory);
		break;
	case 1:
		tcase_add_test(tc, switched_off_everything_is_libibverbs_own);
		tcase_add_test(tc, switched_off_a_programs_dmabuf_is_libibverbs_own);
		tcase_add_test(tc, switched_off_the_other_calls_are_left_alone);
		break;
	case 2:
		tcase_add_test(tc, a_registration_in_use_ends_with_its_memory);
		tcase_add_test(tc, what_is_freed_in_stream_order_ends_when_it_is_handed_out_again);
		tcase_add_test(tc,
			       what_is_registered_before_the_turn_ends_when_it_is_handed_out_again);
		tcase_add_test(tc, a_revoked_one_can_be_changed_into_a_good_one);
		tcase_add_test(tc, one_by_a_programs_dmabuf_ends_with_its_memory);
		tcase_add_test(tc, one_of_each_other_call_ends_with_its_memory);
		tcase_add_test(tc, a_umem_in_use_ends_with_its_memory);
		tcase_add_test(tc, a_umem_that_the_card_uses_ends_after_its_object);
		break;
	case 3:
		tcase_add_test(tc, without_a_descriptor_libibverbs_is_asked);
		tcase_add_test(tc, a_programs_dmabuf_serves_without_a_regions);
		break;
	case 4:
		tcase_add_test(tc, what_is_evicted_is_deregistered);
		tcase_add_test(tc, what_is_in_use_is_not_evicted);
		break;
	case 5:
		tcase_add_test(tc, a_region_that_the_program_holds_is_kept_and_counted);
		tcase_add_test(tc, one_by_a_programs_dmabuf_is_kept_and_counted);
		tcase_add_test(tc, one_of_mlx5_is_kept_and_counted);
		break;
	}
}

int main(int argc, char **argv)
{
	const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	Suite *suite = suite_create(program);
	TCase *tc = verbs_case(suite, program);

	for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(program, modes[i].program) == 0) {
			setenv(modes[i].variable, modes[i].value, 1);
			add_tests(tc, i);
		}
	return run_verbs_tests(argc, argv, suite);
}
