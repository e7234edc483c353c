/* SPDX-License-Identifier: MIT */
/*
 * Calls with PINDOWN_GET_NOWAIT: they return while another thread stands still in what they would
 * wait for.
 */
#define _GNU_SOURCE

#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "tests/unit/support/api_test.h"

/* ---- calls that do not wait ----------------------------------------------------------------- */

/* Another thread stands in the middle of something, until the test lets it go on. */
static struct {
	struct gate up, go;
	struct worker worker;
} other;

static void stand(void)
{
	gate_open(&other.up);
	gate_wait(&other.go);
}

static void other_starts(void (*fn)(void *))
{
	gate_init(&other.up);
	gate_init(&other.go);
	worker_start(&other.worker, fn, NULL);
	gate_wait(&other.up);
}

static void other_ends(void)
{
	gate_open(&other.go);
	worker_join(&other.worker);
}

static void free_slowly(void *arg)
{
	pdn_guard guard = pdn_end_range(AT(0), 0);

	(void)arg;
	stand();
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	pdn_ended(guard);
}

static int nowait(uint64_t addr)
{
	pindown_region *untouched = (pindown_region *)&books, *region = untouched;
	int result = pindown_get(addr, 1, PINDOWN_GET_NOWAIT, &region);

	if (result == PINDOWN_OK)
		pindown_put(region);
	else
		ck_assert_ptr_eq(region, untouched);
	return result;
}

/* The free ends only after these calls have returned. */
START_TEST(nowait_does_not_wait_for_a_free)
{
	const struct pindown_range ranges[] = {{AT(1), 1}, {AT(0), 1}};
	pindown_region *regions[2];
	size_t failed = 9;

	get_and_put(AT(0), 1);
	other_starts(free_slowly);
	ck_assert_int_eq(nowait(AT(0)), PINDOWN_ERR_WOULD_WAIT);
	ck_assert_int_eq(attach_nowait(AT(0), 1), PINDOWN_ERR_WOULD_WAIT);
	ck_assert_int_eq(pindown_getv(ranges, 2, PINDOWN_GET_NOWAIT, regions, &failed),
			 PINDOWN_ERR_WOULD_WAIT);
	ck_assert_uint_eq(failed, 1);
	ck_assert_int_eq(nowait(AT(1)), PINDOWN_OK); /* a miss and a hit of other memory */
	ck_assert_int_eq(nowait(AT(1)), PINDOWN_OK);
	ck_assert_int_eq(nowait(AT(2)), PINDOWN_OK);
	ck_assert_uint_eq(fake_open_exports(), 2);
	other_ends();
	ck_assert_int_eq(nowait(AT(0)), PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

static void stop_here(void *arg)
{
	(void)arg;
	stand();
}

static void pin_slowly(void *arg)
{
	(void)arg;
	fake_at_edge(FAKE_EXPORT, FAKE_ENTERING(0), stop_here, NULL);
	get_and_put(AT(0), 1);
}

START_TEST(nowait_does_not_wait_for_a_pin)
{
	other_starts(pin_slowly);
	ck_assert_int_eq(nowait(AT(0)), PINDOWN_ERR_WOULD_WAIT);
	ck_assert_int_eq(nowait(AT(1)), PINDOWN_OK);
	other_ends();
	ck_assert_int_eq(nowait(AT(0)), PINDOWN_OK);
	ck_assert_uint_eq(stats().pins, 2);
}
END_TEST

/* The other pin has the budget, which it may give up. */
START_TEST(nowait_does_not_wait_for_a_budget)
{
	other_starts(pin_slowly);
	ck_assert_int_eq(nowait(AT(1)), PINDOWN_ERR_WOULD_WAIT);
	other_ends();
	ck_assert_int_eq(nowait(AT(1)), PINDOWN_OK);
}
END_TEST

static void open_books_with_little_room(void)
{
	setenv("PINDOWN_MAX_BYTES", "2M", 1);
	open_books();
}

static void stand_in_create(struct books *own, pindown_region *region)
{
	(void)region;
	own->in_create = NULL;
	stand();
}

static void attach_slowly(void *arg)
{
	(void)arg;
	attach_and_detach(consumer, AT(0), KEY(1, 1));
}

START_TEST(nowait_does_not_wait_for_a_create)
{
	books.in_create = stand_in_create;
	other_starts(attach_slowly);
	ck_assert_int_eq(attach_nowait(AT(0), 1), PINDOWN_ERR_WOULD_WAIT);
	ck_assert_int_eq(attach_nowait(AT(0), 2), PINDOWN_OK);
	other_ends();
	ck_assert_int_eq(attach_nowait(AT(0), 1), PINDOWN_OK);
	ck_assert_uint_eq(books.creates, 2);
}
END_TEST

static void attach_to_segment_slowly(void *arg)
{
	pindown_object *object;

	(void)arg;
	/* It has been unmapped, or soon is. */
	if (pindown_attach(consumer, SEGMENT, 1, 0, KEY(1, 1), NULL, &object) == PINDOWN_OK)
		pindown_detach(object);
}

static void replace_nowait(void)
{
	pindown_region *region;

	ck_assert_int_eq(pindown_get(SEGMENT, PIECE + 1, PINDOWN_GET_NOWAIT, &region), PINDOWN_OK);
	pindown_put(region);
}

static void find_stale_nowait(void)
{
	ck_assert_int_eq(nowait(AT(0)), PINDOWN_OK);
}

static void unmap_first_half(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_unmap(SEGMENT, PIECE), FAKE_SUCCESS);
}

/*
 * The object is made on a region that the get replaces, or finds stale. A wait would end at once,
 * with a line. The free of a replaced region's memory waits instead.
 */
START_TEST(nowait_does_not_wait_for_a_create_on_what_it_ends)
{
	bool is_stale = _i;
	struct worker freeing;

	books.in_create = stand_in_create;
	pin_half_a_segment();
	other_starts(is_stale ? attach_slowly : attach_to_segment_slowly);
	if (is_stale) {
		pdn_volatile(AT(0), MIB(2));
		ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
		fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	}
	pdn_race_wait_ns = 0;
	ck_assert_str_eq(stderr_of(is_stale ? find_stale_nowait : replace_nowait), "");
	pdn_race_wait_ns = PATIENCE_NS;
	ck_assert_uint_eq(stats().kept_regions, 1);
	worker_start(&freeing, unmap_first_half, NULL);
	if (is_stale) {
		worker_join(&freeing);
		other_ends();
	} else {
		worker_wait_idle(&freeing);
		ck_assert(!worker_is_done(&freeing));
		gate_open(&other.go);
		worker_join(&freeing);
		worker_join(&other.worker);
	}
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	watched_unmap(SEGMENT + PIECE, PIECE);
}
END_TEST

static void attach_in_create(struct books *own, pindown_region *region)
{
	own->in_create = NULL;
	ck_assert_int_eq(attach_nowait(pindown_region_base(region), 1), PINDOWN_ERR_BUSY);
}

START_TEST(nowait_in_the_create_of_the_same_object_is_busy)
{
	books.in_create = attach_in_create;
	attach_and_detach(consumer, AT(0), KEY(1, 1));
}
END_TEST

START_TEST(nowait_with_cached_is_a_hit_or_none)
{
	pindown_region *region = NULL;

	ck_assert_int_eq(pindown_get(AT(0), 1, PINDOWN_GET_CACHED | PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_ERR_NOT_DEVICE);
	get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_get(AT(0), 1, PINDOWN_GET_CACHED | PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_OK);
	pindown_put(region);
	ck_assert_int_eq(pindown_get(AT(0), 1, 4, &region), PINDOWN_ERR_INVALID);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_nowait");
	TCase *tc = objects_case(s, "nowait");

	tcase_add_test(tc, nowait_does_not_wait_for_a_free);
	tcase_add_test(tc, nowait_does_not_wait_for_a_pin);
	tcase_add_test(tc, nowait_does_not_wait_for_a_create);
	tcase_add_loop_test(tc, nowait_does_not_wait_for_a_create_on_what_it_ends, 0, 2);
	tcase_add_test(tc, nowait_in_the_create_of_the_same_object_is_busy);
	tcase_add_test(tc, nowait_with_cached_is_a_hit_or_none);
	tc = suite_case(s, "little room", open_books_with_little_room, close_books);
	tcase_add_test(tc, nowait_does_not_wait_for_a_budget);
	return run_suite(s);
}
