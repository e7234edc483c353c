/* SPDX-License-Identifier: MIT */
/*
 * GPU memory registered with ibv_reg_mr is registered once for all callers, and deregistered before
 * its memory is freed; the bytes arrive.
 */
#include "verbs_test.h"

#include <unistd.h>

#include "tests/unit/support/suite.h"

/* ---- one registration ---- */

START_TEST(gpu_memory_is_registered_as_a_dmabuf_of_the_whole_region)
{
	struct recorder_call call;
	CUdeviceptr p;
	struct ibv_mr *mr;

	begin();
	p = gpu_alloc(MIB(4));
	mr = must_register(pd, p + 12345, 100, ALL_ACCESS);
	ck_assert_uint_eq(host_calls(), 0);
	ck_assert(recorder_last(RECORDER_REG_DMABUF_MR, &call));
	ck_assert_ptr_eq(call.pd, pd);
	ck_assert_uint_eq(call.addr, 0);
	ck_assert_uint_eq(call.length, MIB(4));
	ck_assert_uint_eq(call.iova, p);
	ck_assert_int_eq(call.access, ALL_ACCESS);
	ck_assert_uint_eq(mr->lkey, call.lkey);
	ck_assert_uint_eq(mr->rkey, call.lkey);
	ck_assert_uint_ne(mr->handle, 0);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(ten_thousand_times_are_one_registration)
{
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(64));
	for (int i = 0; i < 10000; i++)
		register_once(pd, p + (uint64_t)i * 4096, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(dereg_calls(), 0);
	ck_assert_uint_eq(host_calls(), 0);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(several_at_a_time_are_one_registration)
{
	struct ibv_mr *mr[3000];
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(2));
	for (int i = 0; i < 3000; i++) {
		mr[i] = must_register(pd, p + (uint64_t)i, 1, ALL_ACCESS);
		ck_assert_uint_eq(mr[i]->lkey, mr[0]->lkey);
		ck_assert(!i || mr[i] != mr[i - 1]);
	}
	for (int i = 0; i < 3000; i++) {
		ck_assert_uint_eq((uintptr_t)mr[i]->addr, p + (uint64_t)i);
		must_deregister(mr[i]);
	}
	ck_assert_uint_eq(dmabuf_calls(), 1);
	gpu_free(p);
}
END_TEST

START_TEST(each_access_and_each_domain_has_its_own)
{
	struct ibv_mr *a, *b, *c, *d;
	struct ibv_pd *other;
	CUdeviceptr p;

	begin();
	other = ibv_alloc_pd(device);
	p = gpu_alloc(MIB(2));
	a = must_register(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	b = must_register(pd, p, 4096, ALL_ACCESS);
	c = must_register(other, p, 4096, ALL_ACCESS);
	d = must_register(pd, p, 4096, 0);
	ck_assert_uint_eq(dmabuf_calls(), 4);
	ck_assert(a->lkey != b->lkey && b->lkey != c->lkey && c->lkey != d->lkey &&
		  d->lkey != a->lkey);
	must_deregister(a);
	must_deregister(b);
	must_deregister(c);
	must_deregister(d);
	register_once(other, p, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, 0);
	ck_assert_uint_eq(dmabuf_calls(), 4);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(every_kind_of_call_finds_the_same)
{
	struct ibv_mr *mr;
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(2));
	register_once(pd, p, 4096, ALL_ACCESS);
	mr = ibv_reg_mr_iova(pd, (void *)p, 4096, p, ALL_ACCESS);
	must_deregister(mr);
	mr = ibv_reg_mr_iova2(pd, (void *)p, 4096, p, ALL_ACCESS);
	must_deregister(mr);
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(host_calls(), 0);
	gpu_free(p);
}
END_TEST

/* ---- the bytes ---- */

START_TEST(rdma_between_two_gpu_buffers)
{
	CUdeviceptr from, to;
	struct ibv_mr *a, *b;

	begin();
	from = gpu_alloc(MIB(3));
	to = gpu_alloc(MIB(3));
	gpu_fill(from, 'x', MIB(3));
	gpu_fill(to, 'y', MIB(3));
	a = must_register(pd, from, MIB(3), IBV_ACCESS_LOCAL_WRITE);
	b = must_register(pd, to + 4096, MIB(1), ALL_ACCESS);
	ck_assert_int_eq(recorder_copy(a->lkey, from + MIB(1), b->rkey, to + 4096, MIB(1)),
			 RECORDER_OK);
	ck_assert(gpu_holds(to, 'y', 4096));
	ck_assert(gpu_holds(to + 4096, 'x', MIB(1)));
	ck_assert(gpu_holds(to + 4096 + MIB(1), 'y', MIB(2) - 4096));
	ck_assert_int_eq(recorder_copy(b->lkey, to, a->rkey, from, 1), RECORDER_REMOTE_ERROR);
	must_deregister(a);
	must_deregister(b);
	gpu_free(from);
	gpu_free(to);
}
END_TEST

START_TEST(small_neighbours_have_their_own)
{
	CUdeviceptr p[4];
	struct ibv_mr *mr[4];

	begin();
	for (int i = 0; i < 4; i++) {
		p[i] = gpu_alloc(1000);
		gpu_fill(p[i], (char)('a' + i), 1000);
		mr[i] = must_register(pd, p[i], 1000, ALL_ACCESS);
	}
	ck_assert_int_eq(recorder_copy(mr[0]->lkey, p[0], mr[3]->rkey, p[3], 1000), RECORDER_OK);
	ck_assert(gpu_holds(p[1], 'b', 1000) && gpu_holds(p[2], 'c', 1000) &&
		  gpu_holds(p[3], 'a', 1000));
	for (int i = 0; i < 4; i++) {
		must_deregister(mr[i]);
		gpu_free(p[i]);
	}
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(other_memory_at_the_same_address_has_another_key)
{
	CUdeviceptr p, again;
	struct ibv_mr *mr, *source;
	uint32_t old;

	begin();
	again = gpu_alloc(MIB(2));
	source = must_register(pd, again, MIB(2), ALL_ACCESS);
	p = gpu_alloc(MIB(64));
	mr = must_register(pd, p, MIB(64), ALL_ACCESS);
	old = mr->rkey;
	ck_assert_int_eq(recorder_copy(source->lkey, again, old, p, 100), RECORDER_OK);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_int_eq(recorder_copy(source->lkey, again, old, p, 100), RECORDER_REMOTE_ERROR);
	ck_assert_uint_eq(gpu_alloc(MIB(64)), p);
	ck_assert_int_eq(recorder_copy(source->lkey, again, old, p, 100), RECORDER_REMOTE_ERROR);
	mr = must_register(pd, p, MIB(64), ALL_ACCESS);
	ck_assert_uint_ne(mr->rkey, old);
	ck_assert_int_eq(recorder_copy(source->lkey, again, mr->rkey, p, 100), RECORDER_OK);
	ck_assert_uint_eq(dmabuf_calls(), 3);
	must_deregister(mr);
	must_deregister(source);
}
END_TEST

/* ---- other kinds of memory ---- */

START_TEST(the_hosts_memory_goes_straight_through)
{
	void *host = malloc(65536), *pinned = NULL;
	struct recorder_call call;
	struct ibv_mr *mr;

	if (emulator_lacks("process_vm_readv"))
		return;
	begin();
	gpu_alloc(MIB(2));
	OK(cuMemHostAlloc(&pinned, 65536, 0));
	for (int i = 0; i < 2; i++) {
		void *memory = i ? pinned : host;

		mr = ibv_reg_mr(pd, memory, 65536, ALL_ACCESS);
		ck_assert_ptr_nonnull(mr);
		ck_assert(recorder_last(RECORDER_REG_MR, &call));
		ck_assert_uint_eq(call.addr, (uintptr_t)memory);
		ck_assert_uint_eq(call.length, 65536);
		ck_assert_int_eq(call.access, ALL_ACCESS);
		ck_assert_uint_eq(call.lkey, mr->lkey);
		ck_assert_int_eq(ibv_dereg_mr(mr), 0);
		ck_assert_uint_eq(dereg_calls(), (unsigned)i + 1);
	}
	ck_assert_uint_eq(dmabuf_calls(), 0);
	ck_assert_uint_eq(stats().hits + stats().misses, 0);
	free(host);
}
END_TEST

START_TEST(the_hosts_memory_costs_no_call_of_the_driver)
{
	void *host = malloc(65536);
	uint64_t before;

	if (emulator_lacks("process_vm_readv"))
		return;
	begin();
	gpu_free(gpu_alloc(MIB(2)));
	before = sim_calls_all();
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(ibv_dereg_mr(ibv_reg_mr(pd, host, 65536, ALL_ACCESS)), 0);
	ck_assert_uint_eq(sim_calls_all(), before);
	free(host);
}
END_TEST

START_TEST(memory_of_pools_and_mappings_is_registered_too)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr pool, mapped;

	begin();
	OK(cuMemAllocAsync(&pool, MIB(2), NULL));
	register_once(pd, pool, MIB(2), ALL_ACCESS);
	OK(cuMemFreeAsync(pool, NULL));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	OK(cuMemAddressReserve(&mapped, MIB(2), 0, 0, 0));
	OK(cuMemCreate(&handle, MIB(2), &prop, 0));
	OK(cuMemMap(mapped, MIB(2), 0, handle, 0));
	register_once(pd, mapped, MIB(2), ALL_ACCESS);
	OK(cuMemUnmap(mapped, MIB(2)));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_uint_eq(host_calls(), 0);
}
END_TEST

/*
 * All of it is known as device memory, although the call names no length: the cache is asked first.
 * The driver exports no such memory, so the registration is libibverbs' own.
 */
START_TEST(memory_of_a_shared_pool_is_no_host_memory)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemPoolPtrExportData data;
	CUmemoryPool pool, imported;
	CUdeviceptr p, at;
	uint64_t before;
	int fd;

	begin();
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, MIB(16), pool, NULL));
	OK(cuMemPoolExportToShareableHandle(&fd, pool, props.handleTypes, 0));
	OK(cuMemPoolExportPointer(&data, p));
	OK(cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)fd, props.handleTypes,
					      0));
	OK(cuMemPoolImportPointer(&at, imported, &data));
	recorder_peermem(true);
	before = sim_calls_all();
	must_deregister(ibv_reg_mr(pd, (void *)(at + MIB(8)), MIB(2), ALL_ACCESS));
	ck_assert_uint_gt(sim_calls_all(), before);
	ck_assert_uint_eq(host_calls(), 1);
	OK(cuMemFreeAsync(at, NULL));
	close(fd);
}
END_TEST

START_TEST(managed_memory_is_libibverbs_business)
{
	CUdeviceptr p;

	begin();
	OK(cuMemAllocManaged(&p, MIB(2), CU_MEM_ATTACH_GLOBAL));
	recorder_peermem(true);
	must_deregister(ibv_reg_mr(pd, (void *)p, MIB(2), ALL_ACCESS));
	ck_assert_uint_eq(host_calls(), 1);
	ck_assert_uint_eq(dmabuf_calls(), 0);
}
END_TEST

START_TEST(a_range_beyond_its_allocation_is_refused_as_without_us)
{
	CUdeviceptr p;

	begin();
	p = gpu_alloc(MIB(2));
	errno = 0;
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, MIB(4), ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_uint_eq(host_calls(), 1);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)(p - MIB(1)), MIB(2), ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
}
END_TEST

START_TEST(memory_that_we_have_not_seen_is_asked_for_after_the_kernel_refused)
{
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUdeviceptr p;

	begin();
	alloc = (CUresult(*)(CUdeviceptr *, size_t))unwatched("cuMemAlloc_v2");
	ck_assert_int_eq(alloc(&p, MIB(64)), 0);
	register_once(pd, p, MIB(64), ALL_ACCESS);
	ck_assert_uint_eq(host_calls(), 1);
	ck_assert_uint_eq(dmabuf_calls(), 1);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs");
	TCase *tc = verbs_case(suite, "one registration");

	tcase_add_test(tc, gpu_memory_is_registered_as_a_dmabuf_of_the_whole_region);
	tcase_add_test(tc, ten_thousand_times_are_one_registration);
	tcase_add_test(tc, several_at_a_time_are_one_registration);
	tcase_add_test(tc, each_access_and_each_domain_has_its_own);
	tcase_add_test(tc, every_kind_of_call_finds_the_same);
	tc = verbs_case(suite, "the bytes");
	tcase_add_test(tc, rdma_between_two_gpu_buffers);
	tcase_add_test(tc, small_neighbours_have_their_own);
	tcase_add_test(tc, other_memory_at_the_same_address_has_another_key);
	tc = verbs_case(suite, "kinds of memory");
	tcase_add_test(tc, the_hosts_memory_goes_straight_through);
	tcase_add_test(tc, the_hosts_memory_costs_no_call_of_the_driver);
	tcase_add_test(tc, memory_of_pools_and_mappings_is_registered_too);
	tcase_add_test(tc, memory_of_a_shared_pool_is_no_host_memory);
	tcase_add_test(tc, managed_memory_is_libibverbs_business);
	tcase_add_test(tc, a_range_beyond_its_allocation_is_refused_as_without_us);
	tcase_add_test(tc, memory_that_we_have_not_seen_is_asked_for_after_the_kernel_refused);
	return run_verbs_tests(argc, argv, suite);
}
