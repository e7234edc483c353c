/* SPDX-License-Identifier: MIT */
/*
 * PINDOWN_HELD=retire, the default: registrations that the program holds when it frees their memory
 * end with it, and the address is not handed out again until it has dropped them. Where that is not
 * done: test_verbs_kept.c.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "retire_test.h"

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
	freed_before = UINT64_MAX;
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
	tc = verbs_case(suite, "other holders");
	tcase_add_test(tc, an_object_of_another_consumer_is_kept);
	tcase_add_test(tc, a_region_that_a_get_holds);
	tc = verbs_case(suite, "others that want the addresses");
	tcase_add_loop_test(tc, the_program_reserves_there_itself, 0, 4);
	tcase_add_test(tc, a_reservation_of_the_programs_anywhere_takes_none_back);
	tc = verbs_case(suite, "processes");
	tcase_add_test(tc, a_child_has_no_ranges);
	return run_verbs_tests(argc, argv, suite);
}
