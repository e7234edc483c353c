/* SPDX-License-Identifier: MIT */
/*
 * Access flags and other options beside address and length, and network cards that lack some of
 * them.
 */
#include "verbs_test.h"

static CUdeviceptr p; /* 4 MiB */

static void begin_with_memory(void)
{
	begin();
	p = gpu_alloc(MIB(4));
}

/* ---- access ---- */

static const int left_to_libibverbs[] = {
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
	IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB,
	IBV_ACCESS_LOCAL_WRITE | 1 << 8, /* FLUSH_GLOBAL */
};

/* A kernel accepts none of these for a dma-buf, and a provider binds no window to one. */
START_TEST(flags_that_no_dmabuf_can_have_are_left_to_libibverbs)
{
	struct recorder_call call;

	begin_with_memory();
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, left_to_libibverbs[_i]));
	ck_assert_int_eq(errno, EFAULT);
	recorder_peermem(true);
	must_deregister(ibv_reg_mr(pd, (void *)p, 4096, left_to_libibverbs[_i]));
	ck_assert_uint_eq(dmabuf_calls(), 0);
	ck_assert_uint_eq(host_calls(), 2);
	ck_assert(recorder_last(RECORDER_REG_MR, &call));
	ck_assert_int_eq(call.access, left_to_libibverbs[_i]);
	ck_assert_uint_eq(dereg_calls(), 1);
}
END_TEST

START_TEST(paging_on_demand_is_refused_as_without_us)
{
	begin_with_memory();
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, IBV_ACCESS_ON_DEMAND));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_uint_eq(dmabuf_calls(), 0);
}
END_TEST

START_TEST(relaxed_ordering_is_passed_on_and_a_registration_of_its_own)
{
	struct ibv_mr *a, *b;

	begin_with_memory();
	a = must_register(pd, p, 4096, ALL_ACCESS);
	b = ibv_reg_mr_iova2(pd, (void *)p, 4096, p, ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	ck_assert_ptr_nonnull(b);
	ck_assert_int_eq(last_call(RECORDER_REG_DMABUF_MR).access,
			 ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	ck_assert_uint_ne(a->lkey, b->lkey);
	must_deregister(a);
	must_deregister(b);
	ck_assert_uint_eq(dmabuf_calls(), 2);
}
END_TEST

START_TEST(other_optional_flags_are_left_out)
{
	begin_with_memory();
	must_deregister(ibv_reg_mr_iova2(pd, (void *)p, 4096, p, ALL_ACCESS | 1u << 25));
	ck_assert_int_eq(last_call(RECORDER_REG_DMABUF_MR).access, ALL_ACCESS);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 1);
}
END_TEST

START_TEST(remote_write_without_local_write_is_refused)
{
	begin_with_memory();
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, IBV_ACCESS_REMOTE_WRITE));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(host_calls(), 1);
}
END_TEST

START_TEST(nothing_is_no_length)
{
	begin_with_memory();
	recorder_peermem(true);
	must_deregister(ibv_reg_mr(pd, (void *)p, 0, ALL_ACCESS));
	ck_assert_uint_eq(host_calls(), 1);
	ck_assert_uint_eq(dmabuf_calls(), 0);
}
END_TEST

/* ---- addresses of the program's own ---- */

static struct ibv_mr *with_iova(CUdeviceptr addr, size_t length, uint64_t iova)
{
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, (void *)addr, length, iova, ALL_ACCESS);

	ck_assert_ptr_nonnull(mr);
	ck_assert_uint_eq((uintptr_t)mr->addr, addr);
	return mr;
}

/* A byte at [addr] of the GPU is read and written through the region at iova. */
static void assert_leads_to(const struct ibv_mr *mr, uint64_t iova, CUdeviceptr addr)
{
	CUdeviceptr other = gpu_alloc(4096);
	struct ibv_mr *there = must_register(pd, other, 4096, ALL_ACCESS);

	gpu_fill(addr, 'x', 4096);
	ck_assert_int_eq(recorder_copy(mr->lkey, iova, there->rkey, other, 4096), RECORDER_OK);
	ck_assert(gpu_holds(other, 'x', 4096));
	gpu_fill(other, 'y', 4096);
	ck_assert_int_eq(recorder_copy(there->lkey, other, mr->rkey, iova, 4096), RECORDER_OK);
	ck_assert(gpu_holds(addr, 'y', 4096));
	must_deregister(there);
	gpu_free(other);
}

START_TEST(an_iova_is_what_rdma_uses)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = with_iova(p + 8192, 8192, 0x700000000000);
	assert_leads_to(mr, 0x700000000000, p + 8192);
	assert_leads_to(mr, 0x700000001000, p + 12288);
	must_deregister(mr);
	ck_assert_uint_eq(host_calls(), 0);
}
END_TEST

START_TEST(iovas_at_the_same_distance_share_a_registration)
{
	struct ibv_mr *a, *b, *c;

	begin_with_memory();
	a = with_iova(p + 8192, 4096, 0x700000000000);
	b = with_iova(p + MIB(1), 4096, 0x700000000000 + MIB(1) - 8192);
	c = with_iova(p, 4096, 0x600000000000);
	ck_assert_uint_eq(a->lkey, b->lkey);
	ck_assert_uint_ne(a->lkey, c->lkey);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	must_deregister(a);
	must_deregister(b);
	must_deregister(c);
	must_deregister(with_iova(p, 4096, 0x600000000000));
	ck_assert_uint_eq(dmabuf_calls(), 2);
}
END_TEST

START_TEST(an_iova_of_0_in_the_midst_of_a_region)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = with_iova(p + 8192, MIB(1), 0);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 8192);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, MIB(4) - 8192);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).iova, 0);
	assert_leads_to(mr, 0, p + 8192);
	assert_leads_to(mr, MIB(1), p + 8192 + MIB(1));
	must_deregister(mr);
	must_deregister(with_iova(p + 12288, 4096, 4096));
	ck_assert_uint_eq(host_calls(), 0);
}
END_TEST

START_TEST(an_iova_up_to_the_end_of_all_addresses)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = with_iova(p + 4096, 4096, -4096ull);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 0);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, 8192);
	assert_leads_to(mr, -4096ull, p + 4096);
	must_deregister(mr);
}
END_TEST

START_TEST(an_iova_in_another_place_of_its_page_is_refused)
{
	begin_with_memory();
	ck_assert_ptr_null(ibv_reg_mr_iova(pd, (void *)p, 4096, 0x700000000100, ALL_ACCESS));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_uint_eq(dmabuf_calls(), 0);
	ck_assert_uint_eq(host_calls(), 1);
}
END_TEST

/* ---- cards that can't ---- */

static const int never[] = {EOPNOTSUPP, ENOSYS, EPROTONOSUPPORT};

START_TEST(a_card_without_dmabufs_is_served_by_libibverbs)
{
	CUdeviceptr other;

	begin_with_memory();
	other = gpu_alloc(MIB(4));
	recorder_fail(RECORDER_REG_DMABUF_MR, UINT32_MAX, never[_i]);
	recorder_peermem(true);
	must_deregister(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	must_deregister(ibv_reg_mr(pd, (void *)(p + 4096), 4096, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 2); /* of one region: it may take another */
	for (int i = 0; i < 3; i++)
		must_deregister(ibv_reg_mr(pd, (void *)other, 4096, ALL_ACCESS));
	ck_assert_uint_eq(host_calls(), 5);
	ck_assert_uint_eq(dereg_calls(), 5);
	ck_assert_uint_eq(dmabuf_calls(), 3); /* and it is not called again */
	recorder_peermem(false);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_uint_eq(dmabuf_calls(), 3);
}
END_TEST

/* It took one between two that it refused. */
START_TEST(a_card_that_refuses_some_regions_is_asked_about_each)
{
	CUdeviceptr others[2];

	begin_with_memory();
	others[0] = gpu_alloc(MIB(4));
	others[1] = gpu_alloc(MIB(4));
	recorder_fail(RECORDER_REG_DMABUF_MR, 1, never[_i]);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	register_once(pd, others[0], 4096, ALL_ACCESS);
	recorder_fail(RECORDER_REG_DMABUF_MR, 1, never[_i]);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)others[1], 4096, ALL_ACCESS));
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(pd, others[1], 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 5);
	ck_assert_uint_eq(stats().left_to_card, 2);
}
END_TEST

static void refuse_two_regions(int error)
{
	recorder_fail(RECORDER_REG_DMABUF_MR, 2, error);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)gpu_alloc(MIB(4)), 4096, ALL_ACCESS));
}

START_TEST(another_card_may_be_able_to)
{
	struct ibv_context *other_device;
	struct ibv_pd *other;

	begin_with_memory();
	other_device = open_device(1);
	other = ibv_alloc_pd(other_device);
	refuse_two_regions(EOPNOTSUPP);
	register_once(other, p, 4096, ALL_ACCESS);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	register_once(other, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 3);
}
END_TEST

START_TEST(a_card_that_is_opened_again_is_asked_again)
{
	struct ibv_context *before;

	begin_with_memory();
	before = device;
	refuse_two_regions(EOPNOTSUPP);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_int_eq(ibv_close_device(device), 0);
	device = open_device(1);
	ck_assert_ptr_eq(device, before);
	pd = ibv_alloc_pd(device);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 3);
}
END_TEST

START_TEST(an_error_of_the_moment_is_not_remembered)
{
	begin_with_memory();
	recorder_fail(RECORDER_REG_DMABUF_MR, 2, ENOMEM); /* whole, and then the part */
	recorder_fail(RECORDER_REG_MR, 1, EAGAIN);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_int_eq(errno, EAGAIN); /* the error of the original call */
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 3);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, MIB(4));
}
END_TEST

START_TEST(a_region_that_is_too_long_for_the_card_is_registered_in_part)
{
	begin_with_memory();
	recorder_limit(MIB(1), 0);
	register_once(pd, p + 100, 10000, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 0);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, 12288);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).iova, p);
	register_once(pd, p + 200, 10000, ALL_ACCESS); /* the same pages */
	ck_assert_uint_eq(dmabuf_calls(), 2);
	register_once(pd, p + MIB(2), MIB(1), ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 3); /* the whole memory is not tried again */
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, MIB(2));
	assert_leads_to(must_register(pd, p + MIB(2), MIB(1), ALL_ACCESS), p + MIB(2), p + MIB(2));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, MIB(2), ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
}
END_TEST

START_TEST(a_card_that_is_full_gets_room_by_itself)
{
	CUdeviceptr q;

	begin_with_memory();
	q = gpu_alloc(MIB(2));
	recorder_limit(0, 1);
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(pd, q, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(host_calls(), 0);
}
END_TEST

START_TEST(a_card_that_is_full_has_room_for_the_hosts_memory)
{
	void *host = malloc(4096);
	struct ibv_mr *mr;

	begin_with_memory();
	recorder_limit(0, 1);
	register_once(pd, p, 4096, ALL_ACCESS);
	errno = 4321;
	mr = ibv_reg_mr(pd, host, 4096, ALL_ACCESS);
	ck_assert_ptr_nonnull(mr);
	ck_assert_int_eq(errno, 4321);
	ck_assert_uint_eq(recorder_open_dmabuf_mrs(), 0);
	ck_assert_ptr_null(ibv_reg_mr(pd, host, 4096, ALL_ACCESS));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_int_eq(ibv_dereg_mr(mr), 0);
	free(host);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs, flags and cards");
	TCase *tc = verbs_case(suite, "access");

	tcase_add_loop_test(tc, flags_that_no_dmabuf_can_have_are_left_to_libibverbs, 0,
			    sizeof(left_to_libibverbs) / sizeof(left_to_libibverbs[0]));
	tcase_add_test(tc, paging_on_demand_is_refused_as_without_us);
	tcase_add_test(tc, relaxed_ordering_is_passed_on_and_a_registration_of_its_own);
	tcase_add_test(tc, other_optional_flags_are_left_out);
	tcase_add_test(tc, remote_write_without_local_write_is_refused);
	tcase_add_test(tc, nothing_is_no_length);
	tc = verbs_case(suite, "iovas");
	tcase_add_test(tc, an_iova_is_what_rdma_uses);
	tcase_add_test(tc, iovas_at_the_same_distance_share_a_registration);
	tcase_add_test(tc, an_iova_of_0_in_the_midst_of_a_region);
	tcase_add_test(tc, an_iova_up_to_the_end_of_all_addresses);
	tcase_add_test(tc, an_iova_in_another_place_of_its_page_is_refused);
	tc = verbs_case(suite, "cards that can't");
	tcase_add_loop_test(tc, a_card_without_dmabufs_is_served_by_libibverbs, 0, 3);
	tcase_add_loop_test(tc, a_card_that_refuses_some_regions_is_asked_about_each, 0, 3);
	tcase_add_test(tc, another_card_may_be_able_to);
	tcase_add_test(tc, a_card_that_is_opened_again_is_asked_again);
	tcase_add_test(tc, an_error_of_the_moment_is_not_remembered);
	tcase_add_test(tc, a_region_that_is_too_long_for_the_card_is_registered_in_part);
	tcase_add_test(tc, a_card_that_is_full_gets_room_by_itself);
	tcase_add_test(tc, a_card_that_is_full_has_room_for_the_hosts_memory);
	return run_verbs_tests(argc, argv, suite);
}
