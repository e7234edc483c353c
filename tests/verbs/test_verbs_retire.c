/* SPDX-License-Identifier: MIT */
/*
 * PINDOWN_HELD=retire, the default: registrations that the program holds when it frees their memory
 * end with it, and the address is not handed out again until it has dropped them. And where that is
 * not done, and they are kept.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dmabuf_test.h"
#include "tests/unit/support/suite.h"

#define EVER 1000000u

static struct ibv_mr *mr;

static void begin_with(size_t size)
{
	begin();
	p = gpu_alloc(size);
	mr = must_register(pd, p, 4096, ALL_ACCESS);
}

/* Does the driver refuse this address to others? Asked behind pindown's back. */
static bool is_reserved(CUdeviceptr at, size_t size)
{
	__typeof__(&cuMemAddressReserve) reserve = unwatched("cuMemAddressReserve");
	__typeof__(&cuMemAddressFree) unreserve = unwatched("cuMemAddressFree");
	CUdeviceptr got;

	OK(reserve(&got, size, 0, at, 0));
	OK(unreserve(got, size));
	return got != at;
}

/* Nothing of what the program has freed is kept; so many ranges are retired. */
static void all_ended(unsigned ranges, uint64_t bytes)
{
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(stats().retired_ranges, ranges);
	ck_assert_uint_eq(stats().retired_bytes, bytes);
	ck_assert_uint_eq(stats().unprotected, 0);
	ck_assert_uint_eq(stats().escapes, 0);
}

/* A registration is kept, the address is not, and that is counted. */
static void is_kept(void)
{
	ck_assert_uint_eq(recorder_open_mrs() + recorder_open_umems(), 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().unprotected, 1);
}

/* It has ended already: nobody is asked for anything. */
static void drop_ended(struct ibv_mr *ended)
{
	uint64_t calls = sim_calls_all();
	unsigned deregs = dereg_calls();

	must_deregister(ended);
	ck_assert_uint_eq(sim_calls_all(), calls);
	ck_assert_uint_eq(dereg_calls(), deregs);
}

static void drop_kept(struct ibv_mr *kept)
{
	must_deregister(kept);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}

/* ---- one registration ---- */

static uint64_t freed_before;

static void look(void *arg)
{
	(void)arg;
	freed_before = sim_calls("cuMemFree_v2");
}

START_TEST(it_ends_before_the_driver_frees)
{
	begin_with(MIB(4));
	freed_before = EVER;
	recorder_meanwhile(RECORDER_DEREG_MR, look, NULL);
	gpu_free(p);
	ck_assert_uint_eq(freed_before, 0);
	all_ended(1, MIB(4));
	ck_assert(is_reserved(p, MIB(4)));
}
END_TEST

START_TEST(a_cache_by_address_misses)
{
	uint32_t old;
	CUdeviceptr q;
	struct ibv_mr *again;

	begin_with(MIB(4));
	old = mr->rkey;
	gpu_free(p);
	for (unsigned i = 0; i < 20; i++) {
		q = gpu_alloc(MIB(4));
		ck_assert(q + MIB(4) <= p || p + MIB(4) <= q);
		if (i % 2)
			gpu_free(q);
	}
	q = gpu_alloc(MIB(4));
	again = must_register(pd, q, 4096, ALL_ACCESS);
	ck_assert_int_eq(recorder_copy(again->lkey, q, old, p, 10), RECORDER_REMOTE_ERROR);
	ck_assert_int_eq(recorder_copy(again->lkey, q, again->rkey, q + 512, 10), RECORDER_OK);
	drop_ended(mr);
	ck_assert_int_eq(recorder_copy(again->lkey, q, again->rkey, q + 512, 10), RECORDER_OK);
	must_deregister(again);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

START_TEST(its_structure_stays_readable)
{
	struct ibv_mr before;

	begin_with(MIB(4));
	before = *mr;
	gpu_free(p);
	must_register(pd, gpu_alloc(MIB(4)), 4096, ALL_ACCESS);
	ck_assert_mem_eq(mr, &before, sizeof(before));
	drop_ended(mr);
	ck_assert_int_eq(ibv_dereg_mr(mr), EINVAL);
}
END_TEST

START_TEST(the_address_goes_back_with_the_next_allocation)
{
	CUdeviceptr q;

	begin_with(MIB(4));
	gpu_free(p);
	drop_ended(mr);
	all_ended(0, 0);
	ck_assert(is_reserved(p, MIB(4)));
	q = gpu_alloc(MIB(8));
	ck_assert(!is_reserved(p, MIB(4)));
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	register_once(pd, p, 4096, ALL_ACCESS);
	gpu_free(q);
	gpu_free(p);
	all_ended(0, 0);
	ck_assert_uint_eq(stats().retired_dropped, 0);
}
END_TEST

START_TEST(or_with_the_next_free_of_one_that_is_held)
{
	CUdeviceptr q;
	struct ibv_mr *other;

	begin_with(MIB(4));
	q = gpu_alloc(MIB(4));
	other = must_register(pd, q, 4096, ALL_ACCESS);
	gpu_free(p);
	drop_ended(mr);
	gpu_free(q);
	ck_assert(!is_reserved(p, MIB(4)));
	ck_assert(is_reserved(q, MIB(4)));
	drop_ended(other);
}
END_TEST

/* The driver reserves whole blocks. */
START_TEST(the_range_is_rounded_up)
{
	begin_with(MIB(3));
	gpu_free(p);
	all_ended(1, MIB(4));
	ck_assert(is_reserved(p + MIB(2), MIB(2)));
	drop_ended(mr);
}
END_TEST

START_TEST(nothing_is_retired_for_what_nobody_holds)
{
	begin_with(MIB(4));
	must_deregister(mr);
	gpu_free(p);
	all_ended(0, 0);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
}
END_TEST

/* The program changes its mind: it is a registration of other memory then. */
START_TEST(one_that_has_ended_is_changed)
{
	CUdeviceptr q;

	begin_with(MIB(4));
	q = gpu_alloc(MIB(4));
	gpu_free(p);
	ck_assert_int_eq(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)q, 4096, 0), 0);
	ck_assert_int_eq(recorder_copy(mr->lkey, q, mr->rkey, q + 512, 10), RECORDER_OK);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	gpu_free(gpu_alloc(KIB(4)));
	ck_assert(!is_reserved(p, MIB(4)));
	must_deregister(mr);
	gpu_free(q);
	all_ended(0, 0);
}
END_TEST

/* For the card there is nothing in them any more. */
START_TEST(its_domain_and_its_device_can_go)
{
	begin_with(MIB(4));
	gpu_free(p);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(device), 0);
	all_ended(1, MIB(4));
	drop_ended(mr);
	all_ended(0, 0);
}
END_TEST

START_TEST(one_whose_domain_was_to_go)
{
	begin_with(MIB(4));
	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	gpu_free(p);
	all_ended(1, MIB(4));
	drop_ended(mr);
}
END_TEST

/* The region is no longer in the cache; the registration is still held. */
START_TEST(one_that_was_held_over_a_flush)
{
	begin_with(MIB(4));
	pindown_flush();
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 512, 10), RECORDER_OK);
	gpu_free(p);
	all_ended(1, MIB(4));
	drop_ended(mr);
}
END_TEST

START_TEST(memory_of_another_device)
{
	CUcontext other;

	begin();
	OK(cuCtxCreate_v2(&other, 0, 1));
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	OK(cuCtxSetCurrent(cuda));
	gpu_free(p);
	all_ended(1, MIB(4));
	ck_assert_uint_eq(sim_kept_bytes(1), 0);
	drop_ended(mr);
}
END_TEST

/* ---- several, of one allocation ---- */

START_TEST(the_range_waits_for_the_last_one)
{
	struct ibv_mr *held[4];

	begin_with(MIB(4));
	held[0] = mr;
	held[1] = must_register(pd, p + MIB(1), 8192, ALL_ACCESS); /* the same object */
	held[2] = must_register(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	held[3] = must_register(ibv_alloc_pd(device), p, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	gpu_free(p);
	all_ended(1, MIB(4));
	ck_assert_uint_eq(stats().retired, 1);
	for (int i = 3; i >= 0; i--) {
		gpu_free(gpu_alloc(MIB(2)));
		ck_assert(is_reserved(p, MIB(4)));
		ck_assert_uint_eq(stats().retired_ranges, 1);
		drop_ended(held[i]);
	}
	all_ended(0, 0);
	gpu_free(gpu_alloc(MIB(2)));
	ck_assert(!is_reserved(p, MIB(4)));
}
END_TEST

/* Dropped in its create order, and the second one by another free's: each range has its own. */
START_TEST(ranges_do_not_depend_on_each_other)
{
	struct ibv_mr *held[8];
	CUdeviceptr at[8];

	begin();
	for (unsigned i = 0; i < 8; i++) {
		at[i] = gpu_alloc(MIB(2) * (i + 1));
		held[i] = must_register(pd, at[i], 4096, ALL_ACCESS);
	}
	for (unsigned i = 0; i < 8; i++)
		gpu_free(at[i]);
	all_ended(8, MIB(72));
	for (unsigned i = 0; i < 8; i += 2)
		drop_ended(held[i]);
	for (unsigned i = 0; i < 4; i++)
		gpu_free(gpu_alloc(KIB(4)));
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(is_reserved(at[i], MIB(2)), i % 2);
	all_ended(4, MIB(40));
	for (unsigned i = 1; i < 8; i += 2)
		drop_ended(held[i]);
}
END_TEST

/* ---- the other ways to register ---- */

START_TEST(one_by_a_programs_dmabuf)
{
	begin_with_export();
	mr = reg_at(8192, 8192);
	close(fd);
	gpu_free(p);
	all_ended(1, MIB(4));
	ck_assert(is_reserved(p, MIB(4)));
	drop_ended(mr);
}
END_TEST

/* The program's own descriptor keeps the memory, not the registration. */
START_TEST(a_dmabuf_that_stays_open)
{
	begin_with_export();
	mr = reg_at(0, 8192);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	ck_assert_uint_ne(gpu_alloc(MIB(4)), p);
	close(fd);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	drop_ended(mr);
}
END_TEST

START_TEST(one_of_mlx5)
{
	begin_with_export();
	mr = mlx5dv_reg_dmabuf_mr(pd, 0, 8192, p, fd, ALL_ACCESS,
				  MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT);
	close(fd);
	gpu_free(p);
	all_ended(1, MIB(4));
	ck_assert(is_reserved(p, MIB(4)));
	drop_ended(mr);
}
END_TEST

START_TEST(one_of_reg_mr_ex)
{
	struct ibv_mr_init_attr attr = {
		.length = 4096, .access = ALL_ACCESS, .comp_mask = IBV_REG_MR_MASK_ADDR};

	begin_with_export();
	close(fd);
	attr.addr = (void *)p;
	mr = ibv_reg_mr_ex(pd, &attr);
	gpu_free(p);
	all_ended(1, MIB(4));
	drop_ended(mr);
}
END_TEST

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

/* ---- other holders of the memory ---- */

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	(void)what;
	*data = arg;
	return 0;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)what;
	(void)arg;
	return 0;
}

/* Its holder may be reading what it has attached. */
START_TEST(an_object_of_another_consumer_is_kept)
{
	struct pindown_consumer other = {
		.name = "other", .create = create, .destroy = destroy, .arg = &other};
	const struct pindown_key key = {.owner = 1};
	pindown_object *object;
	int id = pindown_consumer_add(&other, sizeof(other));

	begin();
	p = gpu_alloc(MIB(4));
	ck_assert_int_eq(pindown_attach(id, p, 1, 0, &key, NULL, &object), PINDOWN_OK);
	gpu_free(p);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(stats().objects_revoked, 0);
	ck_assert_ptr_eq(pindown_object_data(object), &other);
	pindown_detach(object);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(a_region_that_a_get_holds)
{
	pindown_region *region;

	begin_with(MIB(4));
	ck_assert_int_eq(pindown_get(p, 1, 0, &region), PINDOWN_OK);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert(is_reserved(p, MIB(4)));
	drop_ended(mr);
	pindown_put(region);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	all_ended(0, 0);
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
	ck_assert_msg(strstr(line, "does not reserve addresses"), "%s", line);
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
	ck_assert_uint_le(sim_calls("cuMemAddressReserve"), 32);
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), sim_calls("cuMemAddressFree"));
	all_are_kept(line);
}
END_TEST

/* Somebody has got the address before: its registration has ended all the same. */
START_TEST(an_address_that_another_was_faster_to_take)
{
	struct ibv_mr *first;

	begin_with(MIB(4));
	gpu_free(p);
	first = mr;
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	sim_lose_hints(1);
	gpu_free(p);
	ck_assert_uint_eq(stats().escapes, 1);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().retired, 1);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(gpu_alloc(MIB(4)), p);
	drop_ended(mr);
	drop_ended(first);
	ck_assert_uint_eq(stats().retired_ranges, 0);
}
END_TEST

/* ---- others that want the addresses ---- */

static const struct wish {
	uint64_t from, size;
	bool is_there;
} wishes[] = {
	{0, MIB(4), true},
	{MIB(2), MIB(2), true},
	{0, MIB(2), true},
	{MIB(4), MIB(2), false},
};

START_TEST(the_program_reserves_there_itself)
{
	const struct wish *wish = &wishes[_i];
	CUdeviceptr got;

	begin_with(MIB(4));
	gpu_free(p);
	OK(cuMemAddressReserve(&got, wish->size, 0, p + wish->from, 0));
	ck_assert_uint_eq(got, p + wish->from);
	ck_assert_uint_eq(stats().retired_dropped, wish->is_there);
	ck_assert_uint_eq(stats().retired_ranges, !wish->is_there);
	drop_ended(mr); /* late */
	OK(cuMemAddressFree(got, wish->size));
	gpu_free(gpu_alloc(KIB(4)));
	all_ended(0, 0);
	ck_assert_uint_eq(stats().retired_dropped, wish->is_there);
	ck_assert(!is_reserved(p, MIB(4)));
}
END_TEST

START_TEST(a_reservation_of_the_programs_anywhere_takes_none_back)
{
	CUdeviceptr got;

	begin_with(MIB(4));
	gpu_free(p);
	OK(cuMemAddressReserve(&got, MIB(4), 0, 0, 0));
	ck_assert_uint_ne(got, p);
	all_ended(1, MIB(4));
	drop_ended(mr);
}
END_TEST

/* ---- processes ---- */

static void in_child(void)
{
	uint64_t calls = sim_calls_all();

	if (stats().retired_ranges || stats().retired_bytes)
		_exit(1);
	if (ibv_dereg_mr(mr) != 0 || sim_calls_all() != calls)
		_exit(2);
	_exit(0);
}

START_TEST(a_child_has_no_ranges)
{
	int status;
	pid_t child;

	begin_with(MIB(4));
	gpu_free(p);
	child = fork();
	if (child == 0)
		in_child();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	all_ended(1, MIB(4));
	ck_assert(is_reserved(p, MIB(4)));
	drop_ended(mr);
	gpu_free(gpu_alloc(KIB(4)));
	ck_assert(!is_reserved(p, MIB(4)));
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: retired addresses");
	TCase *tc = verbs_case(suite, "one registration");

	tcase_add_test(tc, it_ends_before_the_driver_frees);
	tcase_add_test(tc, a_cache_by_address_misses);
	tcase_add_test(tc, its_structure_stays_readable);
	tcase_add_test(tc, the_address_goes_back_with_the_next_allocation);
	tcase_add_test(tc, or_with_the_next_free_of_one_that_is_held);
	tcase_add_test(tc, the_range_is_rounded_up);
	tcase_add_test(tc, nothing_is_retired_for_what_nobody_holds);
	tcase_add_test(tc, one_that_has_ended_is_changed);
	tcase_add_test(tc, its_domain_and_its_device_can_go);
	tcase_add_test(tc, one_whose_domain_was_to_go);
	tcase_add_test(tc, one_that_was_held_over_a_flush);
	tcase_add_test(tc, memory_of_another_device);
	tc = verbs_case(suite, "several");
	tcase_add_test(tc, the_range_waits_for_the_last_one);
	tcase_add_test(tc, ranges_do_not_depend_on_each_other);
	tc = verbs_case(suite, "other ways to register");
	tcase_add_test(tc, one_by_a_programs_dmabuf);
	tcase_add_test(tc, a_dmabuf_that_stays_open);
	tcase_add_test(tc, one_of_mlx5);
	tcase_add_test(tc, one_of_reg_mr_ex);
	tc = verbs_case(suite, "kept");
	tcase_add_test(tc, one_with_another_iova);
	tcase_add_test(tc, one_with_another_iova_by_a_dmabuf);
	tcase_add_loop_test(tc, one_with_another_iova_beside_one_that_ends, 0, 2);
	tcase_add_test(tc, a_umem_beside_one_that_ends);
	tcase_add_test(tc, a_umem);
	tcase_add_loop_test(tc, memory_of_a_pool, 0, 5);
	tcase_add_test(tc, linear_memory_that_is_freed_in_stream_order);
	tcase_add_test(tc, mapped_memory);
	tcase_add_test(tc, what_ends_with_its_context);
	tcase_add_test(tc, what_ends_with_a_primary_contexts_reset);
	tc = verbs_case(suite, "small");
	tcase_add_test(tc, a_small_one_that_is_alone);
	tcase_add_test(tc, a_small_one_with_a_neighbour);
	tcase_add_test(tc, a_small_one_that_was_dropped_before_its_neighbour_went);
	tc = verbs_case(suite, "other holders");
	tcase_add_test(tc, an_object_of_another_consumer_is_kept);
	tcase_add_test(tc, a_region_that_a_get_holds);
	tc = verbs_case(suite, "frees that fail");
	tcase_add_test(tc, a_free_while_a_stream_is_captured);
	tcase_add_test(tc, a_free_of_an_address_inside);
	tcase_add_test(tc, a_free_by_a_thread_without_a_context);
	tcase_add_test(tc, a_second_free);
	tc = verbs_case(suite, "drivers");
	tcase_add_test(tc, a_driver_that_refuses);
	tcase_add_test(tc, a_driver_that_reserves_elsewhere);
	tcase_add_test(tc, an_address_that_another_was_faster_to_take);
	tc = verbs_case(suite, "others that want the addresses");
	tcase_add_loop_test(tc, the_program_reserves_there_itself, 0, 4);
	tcase_add_test(tc, a_reservation_of_the_programs_anywhere_takes_none_back);
	tc = verbs_case(suite, "processes");
	tcase_add_test(tc, a_child_has_no_ranges);
	return run_verbs_tests(argc, argv, suite);
}
