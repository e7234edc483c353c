/* SPDX-License-Identifier: MIT */
/*
 * Memory of cuMemAlloc that is freed with cuMemFreeAsync, on the simulated driver: it stays, with
 * its buffer id, until the stream's turn, of which nobody is told. What is got in between.
 */
#define _GNU_SOURCE
#include "cache/dmabuf/foreign_dmabufs.h"
#include "tests/unit/support/retired_test.h"

static uint64_t used_before;

static CUdeviceptr alloc_first(uint64_t size)
{
	used_before = sim_used_bytes(0);
	return alloc(size);
}

static void nothing_is_left(void)
{
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(stats().bytes, 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}

/* Other memory is there, whose end will be seen. */
static void is_trusted_again(CUdeviceptr p, uint64_t size)
{
	pindown_region *region;

	ck_assert_uint_eq(alloc(size), p);
	region = must_get(p, size);
	ck_assert(!pindown_region_is_volatile(region));
	ck_assert(pindown_region_is_live(region));
	pindown_put(region);
	ck_assert(is_cached(p, size));
	OK(sim_free(p));
}

/* ---- regions ---- */

START_TEST(what_is_got_before_the_turn_ends_with_its_put)
{
	CUdeviceptr p = alloc_first(MIB(64));

	free_later(p, MIB(64));
	for (unsigned round = 0; round < 3; round++) {
		pindown_region *region = must_get(p + MIB(8), 1), *other;

		ck_assert_uint_eq(pindown_region_base(region), p);
		ck_assert(!pindown_region_is_live(region));
		ck_assert(!is_cached(p, 1));
		ck_assert_uint_eq(stats().kept_bytes, MIB(64));
		other = must_get(p, MIB(64));
		ck_assert_ptr_ne(other, region);
		pindown_put(region);
		pindown_put(other);
		nothing_is_left();
	}
	take_turn();
	ck_assert_uint_eq(sim_used_bytes(0), used_before);
	must_refuse(p, 1, PINDOWN_ERR_NOT_DEVICE);
	is_trusted_again(p, MIB(64));
}
END_TEST

START_TEST(what_was_got_before_the_free_ends_too)
{
	CUdeviceptr p = alloc_first(MIB(4));
	pindown_region *held;

	get_and_put(p, 1);
	held = must_get(p, 1);
	free_later(p, MIB(4));
	ck_assert(!pindown_region_is_live(held));
	get_and_put(p, 1);
	ck_assert_uint_eq(stats().kept_regions, 1);
	take_turn();
	pindown_put(held);
	nothing_is_left();
	ck_assert_uint_eq(sim_used_bytes(0), used_before);
}
END_TEST

/* It can be read until its put, and shows the old memory. */
START_TEST(one_that_is_held_over_the_turn_keeps_its_memory)
{
	CUdeviceptr p = alloc_first(MIB(4));
	uint64_t word = 42;
	pindown_region *held, *fresh;

	OK(cuMemcpyHtoD_v2(p, &word, sizeof(word)));
	free_later(p, MIB(4));
	held = must_get(p, 1);
	take_turn();
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	ck_assert_uint_eq(stats().kept_bytes, MIB(4));
	ck_assert_uint_eq(alloc(MIB(4)), p);
	word = 43;
	OK(cuMemcpyHtoD_v2(p, &word, sizeof(word)));
	fresh = must_get(p, 1);
	ck_assert_uint_eq(word_at(held, p), 42);
	ck_assert_uint_eq(word_at(fresh, p), 43);
	pindown_put(held);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	pindown_put(fresh);
	ck_assert(is_cached(p, 1));
	OK(sim_free(p));
}
END_TEST

START_TEST(a_vector_of_such_memory)
{
	CUdeviceptr p = alloc_first(MIB(4)), q = alloc(MIB(4));
	const struct pindown_range ranges[] = {{p, 1}, {q, 1}, {p + MIB(2), 1}, {p + 1, 1}};
	pindown_region *regions[4];

	free_later(p, MIB(4));
	ck_assert_int_eq(pindown_getv(ranges, 4, 0, regions, NULL), PINDOWN_OK);
	ck_assert(pindown_region_is_live(regions[1]));
	ck_assert_ptr_ne(regions[2], regions[3]);
	pindown_putv(regions, 4);
	ck_assert_uint_eq(stats().regions, 1);
	take_turn();
	ck_assert_int_eq(pindown_getv(ranges, 4, 0, regions, NULL), PINDOWN_ERR_NOT_DEVICE);
	ck_assert(is_cached(q, 1));
	OK(sim_free(q));
	nothing_is_left();
}
END_TEST

/* Its neighbour in the page stays trusted, and a pin of it does not count as one of the memory. */
START_TEST(small_memory_beside_such_memory)
{
	CUdeviceptr p = alloc_first(512), q = alloc(512);

	ck_assert_uint_eq(q, p + 512);
	get_and_put(q, 1);
	free_later(p, 512);
	ck_assert(is_cached(q, 1));
	get_and_put(p, 1);
	ck_assert(is_cached(q, 1));
	OK(sim_free(q));
	take_turn();
	nothing_is_left();
}
END_TEST

START_TEST(memory_whose_free_fails_is_cached_as_before)
{
	CUdeviceptr p = alloc_first(MIB(4));

	ck_assert_int_ne(sim_free_later(p, MIB(4), (CUstream)0x1234), CUDA_SUCCESS);
	get_and_put(p, 1);
	ck_assert(is_cached(p, 1));
	free_later(p, MIB(4));
	/* Once more, which fails: the first one holds. */
	ck_assert_int_ne(sim_free_later(p, MIB(4), NULL), CUDA_SUCCESS);
	get_and_put(p, 1);
	ck_assert(!is_cached(p, 1));
	take_turn();
	nothing_is_left();
}
END_TEST

/* Memory of another kind, in a part of its range. */
START_TEST(mapped_memory_in_its_place)
{
	CUdeviceptr p = alloc_first(MIB(64)), range;

	free_later(p, MIB(64));
	take_turn();
	OK(cuMemAddressReserve(&range, MIB(64), 0, p, 0));
	ck_assert_uint_eq(range, p);
	sim_map_new(p + MIB(8), MIB(4));
	get_and_put(p + MIB(8), 1);
	ck_assert(is_cached(p + MIB(8), 1));
	sim_unmap(p + MIB(8), MIB(4));
	OK(cuMemAddressFree(p, MIB(64)));
}
END_TEST

/* Its context may end before the stream has its turn. */
START_TEST(the_context_ends_before_the_turn)
{
	pindown_region *region;
	CUcontext own, other;
	CUdeviceptr p;
	pdn_guard guard;

	OK(cuCtxGetCurrent(&own));
	OK(cuCtxCreate_v2(&other, 0, 0));
	p = alloc_first(MIB(4));
	free_later(p, MIB(4));
	region = must_get(p, 1);
	guard = pdn_end_context(other);
	OK(cuCtxDestroy_v2(other));
	pdn_ended(guard);
	must_refuse(p, 1, PINDOWN_ERR_NOT_DEVICE);
	pindown_put(region);
	nothing_is_left();
	OK(cuCtxSetCurrent(own));
}
END_TEST

/* ---- objects ---- */

START_TEST(a_registration_before_the_turn_ends_with_its_detach)
{
	CUdeviceptr p = alloc_first(MIB(4));
	pindown_object *one, *other;
	struct registration *of_one, *of_other;

	free_later(p, MIB(4));
	one = hold(p);
	other = hold(p); /* the same key: nothing is found */
	of_one = registration_of(one);
	of_other = registration_of(other);
	ck_assert_ptr_ne(of_one, of_other);
	ck_assert_uint_eq(stats().unprotected, 2);
	pindown_detach(other);
	ck_assert_uint_eq(of_other->ended, 1);
	ck_assert(of_other->in_time);
	ck_assert_uint_eq(stats().object_kept_bytes, MIB(4));
	take_turn();
	ck_assert_uint_eq(of_one->ended, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	pindown_detach(one);
	ck_assert_uint_eq(of_one->ended, 1);
	ck_assert_uint_eq(stats().objects, 0);
	nothing_is_left();
	is_trusted_again(p, MIB(4));
}
END_TEST

#define SEVERAL 6 /* more than are looked at one by one */

static pindown_object *several[SEVERAL];
static struct registration *of_several[SEVERAL];

/* By the region that a get has returned, as the verbs do it for a part. */
static void register_several(CUdeviceptr p)
{
	const struct pindown_key key = {.owner = 2};
	pindown_region *region = must_get(p, 1);

	for (unsigned i = 0; i < SEVERAL; i++) {
		ck_assert_int_eq(pindown_attach_region(retired_consumer, region, 0, 0, 0, &key,
						       NULL, &several[i]),
				 PINDOWN_OK);
		of_several[i] = registration_of(several[i]);
	}
	pindown_put(region);
}

START_TEST(registrations_on_a_held_region)
{
	CUdeviceptr p = alloc_first(MIB(4));

	free_later(p, MIB(4));
	register_several(p);
	for (unsigned i = 0; i < SEVERAL; i++) {
		ck_assert_uint_eq(sim_open_exports(0), 1);
		ck_assert_uint_eq(stats().objects, SEVERAL - i);
		ck_assert_uint_eq(of_several[i]->ended, 0);
		pindown_detach(several[i]);
		ck_assert_uint_eq(of_several[i]->ended, 1);
	}
	nothing_is_left();
	take_turn();
}
END_TEST

/* With PINDOWN_HELD=revoke, up to the next allocation there. */
START_TEST(registrations_are_revoked)
{
	CUdeviceptr p = alloc_first(MIB(4));

	free_later(p, MIB(4));
	register_several(p);
	take_turn();
	ck_assert_uint_eq(stats().objects, SEVERAL);
	ck_assert_uint_eq(alloc(MIB(4)), p);
	nothing_is_left();
	for (unsigned i = 0; i < SEVERAL; i++) {
		ck_assert_uint_eq(of_several[i]->ended, 1);
		ck_assert_ptr_null(registration_of(several[i]));
		pindown_detach(several[i]);
	}
	get_and_put(p, 1);
	ck_assert(is_cached(p, 1));
	OK(sim_free(p));
}
END_TEST

START_TEST(its_owner_ends_while_it_is_held)
{
	CUdeviceptr p = alloc_first(MIB(4));
	pindown_object *object;

	free_later(p, MIB(4));
	object = hold(p);
	pindown_end_owner(retired_consumer, 1);
	pindown_detach(object);
	ck_assert_uint_eq(stats().objects, 0);
	nothing_is_left();
	take_turn();
}
END_TEST

/* One of the region that is no longer live has nothing to do with those that are kept otherwise. */
START_TEST(a_region_that_ended_otherwise_takes_no_registrations)
{
	const struct pindown_key key = {.owner = 2};
	CUdeviceptr p = alloc_first(MIB(4));
	pindown_region *region = must_get(p, 1);
	pindown_object *object;

	free_later(p, MIB(4));
	ck_assert_int_eq(
		pindown_attach_region(retired_consumer, region, 0, 0, 0, &key, NULL, &object),
		PINDOWN_ERR_NOT_DEVICE);
	pindown_put(region);
	take_turn();
}
END_TEST

/* ---- dma-bufs of the program ---- */

START_TEST(an_export_before_the_turn_is_not_remembered)
{
	CUdeviceptr p = alloc_first(MIB(4));
	struct pdn_exported part;
	uint64_t before;
	int fd;

	free_later(p, MIB(4));
	before = pdn_export_begins(p, MIB(4));
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(4), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	pdn_exported(p, MIB(4), 0, fd, before, NULL);
	ck_assert(!pdn_export_find(fd, 0, 4096, &part));
	take_turn();
	close(fd);
	nothing_is_left();
}
END_TEST

static void begin_with_revoke(void)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	retired_begin();
}

int main(void)
{
	Suite *suite = suite_create("memory that a stream frees later");
	TCase *tc = retired_case(suite, "regions");

	tcase_add_test(tc, what_is_got_before_the_turn_ends_with_its_put);
	tcase_add_test(tc, what_was_got_before_the_free_ends_too);
	tcase_add_test(tc, one_that_is_held_over_the_turn_keeps_its_memory);
	tcase_add_test(tc, a_vector_of_such_memory);
	tcase_add_test(tc, small_memory_beside_such_memory);
	tcase_add_test(tc, memory_whose_free_fails_is_cached_as_before);
	tcase_add_test(tc, mapped_memory_in_its_place);
	tcase_add_test(tc, the_context_ends_before_the_turn);
	tc = retired_case(suite, "registrations");
	tcase_add_test(tc, a_registration_before_the_turn_ends_with_its_detach);
	tcase_add_test(tc, registrations_on_a_held_region);
	tcase_add_test(tc, its_owner_ends_while_it_is_held);
	tcase_add_test(tc, a_region_that_ended_otherwise_takes_no_registrations);
	tcase_add_test(tc, an_export_before_the_turn_is_not_remembered);
	tc = suite_case(suite, "revoke", begin_with_revoke, sim_end);
	tcase_add_test(tc, registrations_are_revoked);
	return run_suite(suite);
}
