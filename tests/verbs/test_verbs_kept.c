/* SPDX-License-Identifier: MIT */
/*
 * Registrations that the program holds when it frees their memory, where PINDOWN_HELD=retire does
 * not end them: they are kept, and counted.
 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "retire_test.h"
#include "tests/unit/support/suite.h"

#define EVER 1000000u

/* ---- what is kept ---- */

START_TEST(one_with_another_iova)
{
	begin();
	p = gpu_alloc(MIB(4));
	mr = ibv_reg_mr_iova(pd, (void *)(p + 8192), 4096, 0, ALL_ACCESS);
	gpu_free(p);
	is_kept();
	drop_kept(mr);
}
END_TEST

START_TEST(one_with_another_iova_by_a_dmabuf)
{
	begin_with_export();
	mr = reg(pd, 0, 8192, 0, fd, ALL_ACCESS);
	close(fd);
	gpu_free(p);
	is_kept();
	drop_kept(mr);
}
END_TEST

/* One ends, and the address is retired only for as long as the program has that. */
static void one_is_kept(void)
{
	ck_assert_uint_eq(recorder_open_mrs() + recorder_open_umems(), 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(stats().retired, 1);
	ck_assert_uint_eq(stats().unprotected, 1);
	ck_assert(is_reserved(p & -MIB(2), MIB(2)));
	drop_ended(mr);
}

static const size_t sizes[] = {MIB(4), KIB(64)};

START_TEST(one_with_another_iova_beside_one_that_ends)
{
	struct ibv_mr *kept;

	begin_with(sizes[_i]);
	kept = ibv_reg_mr_iova(pd, (void *)p, 4096, 0, ALL_ACCESS);
	gpu_free(p);
	one_is_kept();
	drop_kept(kept);
	gpu_free(gpu_alloc(KIB(4)));
	ck_assert(!is_reserved(p & -MIB(2), MIB(2)));
}
END_TEST

START_TEST(a_umem_beside_one_that_ends)
{
	struct mlx5dv_devx_umem *umem;

	begin_with(MIB(4));
	umem = mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	gpu_free(p);
	one_is_kept();
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(umem), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(a_umem)
{
	struct mlx5dv_devx_umem *umem;

	begin();
	p = gpu_alloc(MIB(4));
	umem = mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_LOCAL_WRITE);
	gpu_free(p);
	is_kept();
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(umem), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

static CUmemoryPool pool_that_keeps(uint64_t threshold)
{
	CUmemoryPool pool;

	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	return pool;
}

static const struct pool_case {
	uint64_t threshold;
	unsigned counted;
	bool in_order;
} pool_cases[] = {
	{0, 1, true},	       {0, 1, false},	       {MIB(64), 1, true},
	{UINT64_MAX, 0, true}, {UINT64_MAX, 0, false},
};

/* A pool that keeps its memory hands out the same memory at the address: a hit there is right. */
START_TEST(memory_of_a_pool)
{
	const struct pool_case *c = &pool_cases[_i];

	begin();
	pool_that_keeps(c->threshold);
	OK(cuMemAllocAsync(&p, MIB(4), NULL));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	if (c->in_order)
		OK(cuMemFreeAsync(p, NULL));
	else
		gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(stats().unprotected, c->counted);
	drop_kept(mr);
}
END_TEST

START_TEST(linear_memory_that_is_freed_in_stream_order)
{
	begin_with(MIB(4));
	OK(cuMemFreeAsync(p, NULL));
	is_kept();
	drop_kept(mr);
}
END_TEST

/* The driver keeps the memory until the stream's turn: registered in between, it can be used. */
START_TEST(linear_memory_registered_before_its_free_takes_effect)
{
	struct ibv_mr *other, *by_iova;
	int by;

	begin();
	p = gpu_alloc(MIB(4));
	gpu_fill(p, 'a', 10);
	OK(cuMemFreeAsync(p, NULL));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	is_kept();
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 10), RECORDER_OK);
	other = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2); /* nothing is found */
	must_deregister(other);
	by_iova = ibv_reg_mr_iova(pd, (void *)(p + 8192), 4096, 0, ALL_ACCESS);
	ck_assert_ptr_nonnull(by_iova);
	must_deregister(by_iova);
	by = export_range(p, MIB(4), 0);
	must_deregister(reg(pd, 0, 4096, p, by, ALL_ACCESS));
	close(by);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	OK(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	drop_kept(mr);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	ck_assert_int_eq(stats().distrusted, 0);
}
END_TEST

START_TEST(mapped_memory)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	begin();
	OK(cuMemAddressReserve(&p, MIB(4), 0, 0, 0));
	OK(cuMemCreate(&handle, MIB(4), &prop, 0));
	OK(cuMemMap(p, MIB(4), 0, handle, 0));
	OK(cuMemSetAccess(p, MIB(4), &access, 1));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	OK(cuMemUnmap(p, MIB(4)));
	is_kept();
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), 1);
	must_deregister(mr);
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(p, MIB(4)));
}
END_TEST

START_TEST(what_ends_with_its_context)
{
	begin_with(MIB(4));
	OK(cuCtxDestroy_v2(cuda));
	is_kept();
	drop_kept(mr);
}
END_TEST

START_TEST(what_ends_with_a_primary_contexts_reset)
{
	begin();
	OK(cuDevicePrimaryCtxRetain(&cuda, 0));
	OK(cuCtxSetCurrent(cuda));
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	OK(cuDevicePrimaryCtxReset_v2(0));
	is_kept();
	drop_kept(mr);
}
END_TEST

/* It lives on, and is cached as before. */
START_TEST(a_free_in_stream_order_that_fails)
{
	CUstream stream;
	CUgraph graph;

	begin();
	p = gpu_alloc(MIB(4));
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_ne(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	cuStreamEndCapture(stream, &graph);
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(stats().regions, 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/* The first one has not taken effect yet, and will. */
START_TEST(a_second_free_in_stream_order)
{
	begin();
	p = gpu_alloc(MIB(4));
	OK(cuMemFreeAsync(p, NULL));
	ck_assert_int_ne(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().regions, 0);
	OK(cuStreamSynchronize(NULL));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
}
END_TEST

/* ---- small allocations share a block ---- */

START_TEST(a_small_one_that_is_alone)
{
	begin_with(KIB(64));
	gpu_free(p);
	all_ended(1, MIB(2));
	ck_assert(is_reserved(p & -MIB(2), MIB(2)));
	drop_ended(mr);
	gpu_free(gpu_alloc(MIB(4)));
	ck_assert(!is_reserved(p & -MIB(2), MIB(2)));
}
END_TEST

START_TEST(a_small_one_with_a_neighbour)
{
	CUdeviceptr q;
	struct ibv_mr *other;

	begin_with(KIB(64));
	q = gpu_alloc(KIB(64));
	ck_assert_uint_eq(p & -MIB(2), q & -MIB(2));
	other = must_register(pd, q, 4096, ALL_ACCESS);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 2);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().unprotected, 1);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert_int_eq(recorder_copy(other->lkey, q, other->rkey, q + 512, 10), RECORDER_OK);
	gpu_free(q); /* the last one in the block */
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert(is_reserved(p & -MIB(2), MIB(2)));
	drop_ended(other);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	drop_ended(mr);
	ck_assert_uint_eq(stats().retired_ranges, 0);
}
END_TEST

START_TEST(a_small_one_that_was_dropped_before_its_neighbour_went)
{
	CUdeviceptr q;
	struct ibv_mr *other;

	begin_with(KIB(64));
	q = gpu_alloc(KIB(64));
	other = must_register(pd, q, 4096, ALL_ACCESS);
	gpu_free(p);
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	gpu_free(q);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	drop_ended(other);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* ---- frees that fail ---- */

/* The memory lives, and the card reaches it. */
static void lives_on(void)
{
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(dereg_calls(), 0);
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 512, 10), RECORDER_OK);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(stats().escapes, 0);
	drop_kept(mr);
}

START_TEST(a_free_while_a_stream_is_captured)
{
	CUstream stream;
	CUgraph graph;

	begin_with(MIB(4));
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_ne(cuMemFree_v2(p), CUDA_SUCCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	cuStreamEndCapture(stream, &graph);
	lives_on();
}
END_TEST

START_TEST(a_free_of_an_address_inside)
{
	begin_with(MIB(4));
	ck_assert_int_ne(cuMemFree_v2(p + MIB(1)), CUDA_SUCCESS);
	lives_on();
}
END_TEST

static void in_a_thread(void *(*run)(void *), void *arg)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, run, arg), 0);
	pthread_join(thread, NULL);
}

static void *free_here(void *unused)
{
	gpu_free(p);
	return unused;
}

/* Such a free may fail, for all that is known before: what is held stays. */
START_TEST(a_free_by_a_thread_without_a_context)
{
	begin_with(MIB(4));
	in_a_thread(free_here, NULL);
	is_kept();
	drop_kept(mr);
}
END_TEST

START_TEST(a_second_free)
{
	begin_with(MIB(4));
	gpu_free(p);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_ne(cuMemFree_v2(p), CUDA_SUCCESS);
	all_ended(1, MIB(4));
	ck_assert(is_reserved(p, MIB(4)));
	drop_ended(mr);
	all_ended(0, 0);
	ck_assert_int_ne(cuMemFree_v2(p), CUDA_SUCCESS);
}
END_TEST

/* ---- drivers that do not reserve ---- */

static struct ibv_mr *held[64];

static void free_held_ones(void)
{
	for (unsigned i = 0; i < 64; i++) {
		CUdeviceptr q = gpu_alloc(MIB(4));

		held[i] = must_register(pd, q, 4096, ALL_ACCESS);
		gpu_free(q);
	}
}

static void all_are_kept(const char *line)
{
	ck_assert_msg(strstr(line, "does not reserve addresses as it is asked to"), "%s", line);
	ck_assert_uint_eq(lines_of(line), 2); /* and that a registration is kept */
	ck_assert_uint_eq(recorder_open_mrs(), 64);
	ck_assert_uint_eq(stats().object_kept_regions, 64);
	ck_assert_uint_eq(stats().unprotected, 64);
	ck_assert_uint_eq(stats().retired, 0);
	for (unsigned i = 0; i < 64; i++)
		must_deregister(held[i]);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}

START_TEST(a_driver_that_refuses)
{
	const char *line;

	begin();
	ck_assert_int_eq(sim_fail("cuMemAddressReserve:*"), 0);
	line = stderr_of(free_held_ones);
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), 1);
	all_are_kept(line);
}
END_TEST

START_TEST(a_driver_that_reserves_elsewhere)
{
	const char *line;

	begin();
	sim_lose_hints(EVER);
	line = stderr_of(free_held_ones);
	/* 16 probes, of one reservation anywhere and 64 tries. */
	ck_assert_uint_le(sim_calls("cuMemAddressReserve"), 16 * 65);
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), sim_calls("cuMemAddressFree"));
	all_are_kept(line);
}
END_TEST

/* It is not handed out all the same: the driver is asked for another one. */
#define MANY 1000 /* more than the reservation is tried for one address */
START_TEST(an_address_that_the_driver_does_not_reserve)
{
	CUdeviceptr other;
	struct ibv_mr *first;

	begin_with(MIB(4));
	gpu_free(p);
	first = mr;
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	sim_lose_hints(MANY);
	gpu_free(p);
	sim_lose_hints(0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().retired, 2);
	ck_assert_uint_eq(stats().retired_ranges, 2);
	other = gpu_alloc(MIB(4));
	ck_assert_uint_ne(other, p);
	ck_assert_uint_eq(stats().escapes, 0);
	drop_ended(mr);
	gpu_free(other);
	drop_ended(first);
	ck_assert_uint_eq(stats().retired_ranges, 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: held registrations that are kept");
	TCase *tc = verbs_case(suite, "kept");

	tcase_add_test(tc, one_with_another_iova);
	tcase_add_test(tc, one_with_another_iova_by_a_dmabuf);
	tcase_add_loop_test(tc, one_with_another_iova_beside_one_that_ends, 0, 2);
	tcase_add_test(tc, a_umem_beside_one_that_ends);
	tcase_add_test(tc, a_umem);
	tcase_add_loop_test(tc, memory_of_a_pool, 0, 5);
	tcase_add_test(tc, linear_memory_that_is_freed_in_stream_order);
	tcase_add_test(tc, linear_memory_registered_before_its_free_takes_effect);
	tcase_add_test(tc, mapped_memory);
	tcase_add_test(tc, what_ends_with_its_context);
	tcase_add_test(tc, what_ends_with_a_primary_contexts_reset);
	tc = verbs_case(suite, "small");
	tcase_add_test(tc, a_small_one_that_is_alone);
	tcase_add_test(tc, a_small_one_with_a_neighbour);
	tcase_add_test(tc, a_small_one_that_was_dropped_before_its_neighbour_went);
	tc = verbs_case(suite, "frees that fail");
	tcase_add_test(tc, a_free_while_a_stream_is_captured);
	tcase_add_test(tc, a_free_of_an_address_inside);
	tcase_add_test(tc, a_free_by_a_thread_without_a_context);
	tcase_add_test(tc, a_second_free);
	tcase_add_test(tc, a_free_in_stream_order_that_fails);
	tcase_add_test(tc, a_second_free_in_stream_order);
	tc = verbs_case(suite, "drivers");
	tcase_add_test(tc, a_driver_that_refuses);
	tcase_add_test(tc, a_driver_that_reserves_elsewhere);
	tcase_add_test(tc, an_address_that_the_driver_does_not_reserve);
	return run_verbs_tests(argc, argv, suite);
}
