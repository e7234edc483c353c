/* SPDX-License-Identifier: MIT */
/*
 * The API's version 0.2: what create is given, objects that serve by more rights or a wider range,
 * calls that do not wait, vectors, enumeration, statistics of a consumer, results, and callbacks
 * that call what could wait for them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/hook_events.h"
#include "cache/pindown.h"
#include "tests/unit/support/objects_test.h"

/*
 * The layout of 0.2, as tests/exports is the list of its functions: a program that was built with
 * it runs with every later 0.x. Members may be added at the end, where the caller's size is passed
 * or the library fills the structure in.
 */
#if __SIZEOF_POINTER__ == 8
#define SIZE(type, bytes)	  _Static_assert(sizeof(struct type) == (bytes), #type)
#define MEMBER(type, name, place) _Static_assert(offsetof(struct type, name) == (place), #type)
SIZE(pindown_range, 16);
SIZE(pindown_key, 24);
MEMBER(pindown_invalidation, in_use, 28);
MEMBER(pindown_invalidation, region, 32);
MEMBER(pindown_object_request, region, 24);
MEMBER(pindown_object_request, addr, 32);
MEMBER(pindown_object_request, request, 48);
MEMBER(pindown_object_end, data, 24);
MEMBER(pindown_object_end, in_use, 44);
MEMBER(pindown_consumer, arg, 24);
MEMBER(pindown_consumer, rights, 32);
MEMBER(pindown_consumer, flags, 40);
MEMBER(pindown_stats, backend, 152);
MEMBER(pindown_stats, exports_saved, 232);
MEMBER(pindown_consumer_stats, objects_revoked, 40);
MEMBER(pindown_region_info, context, 40);
MEMBER(pindown_region_info, in_use, 60);
MEMBER(pindown_object_info, base, 24);
MEMBER(pindown_object_info, in_use, 48);
#endif

/* ---- what create is given ------------------------------------------------------------------- */

START_TEST(create_gets_the_range_that_was_asked_for)
{
	pindown_region *region = must_get(AT(1), 1);
	pindown_object *object[3];

	ck_assert_int_eq(pindown_attach(consumer, AT(0) + 5, 100, 0, KEY(1, 1), NULL, &object[0]),
			 PINDOWN_OK);
	ck_assert_uint_eq(made_by(object[0])->addr, AT(0) + 5);
	ck_assert_uint_eq(made_by(object[0])->length, 100);
	ck_assert_int_eq(pindown_attach_region(consumer, region, AT(1) + 7, 9, 0, KEY(1, 1), NULL,
					       &object[1]),
			 PINDOWN_OK);
	ck_assert_uint_eq(made_by(object[1])->addr, AT(1) + 7);
	ck_assert_uint_eq(made_by(object[1])->length, 9);
	ck_assert_int_eq(
		pindown_attach_region(consumer, region, 3, 0, 0, KEY(2, 1), NULL, &object[2]),
		PINDOWN_OK);
	ck_assert_uint_eq(made_by(object[2])->addr, AT(1));
	ck_assert_uint_eq(made_by(object[2])->length, MIB(2));
	for (unsigned i = 0; i < 3; i++)
		pindown_detach(object[i]);
	pindown_put(region);
}
END_TEST

START_TEST(a_range_outside_of_the_region_is_refused)
{
	const struct pindown_range bad[] = {
		{AT(1) - 1, 1}, {AT(1) + MIB(2), 1}, {AT(1), MIB(2) + 1}, {AT(1) + 1, SIZE_MAX}};
	pindown_region *region = must_get(AT(1), 1);
	pindown_object *object = NULL;

	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pindown_attach_region(consumer, region, bad[i].addr, bad[i].length,
						       0, KEY(1, 1), NULL, &object),
				 PINDOWN_ERR_RANGE);
	ck_assert_uint_eq(books.creates, 0);
	ck_assert_ptr_null(object);
	pindown_put(region);
}
END_TEST

/* ---- objects that serve besides that of the key --------------------------------------------- */

#define READ   1u
#define WRITE  2u
#define ATOMIC 4u
#define ORDER  8u /* no right */

static struct books wide;

static int open_wide(uint64_t rights, uint64_t flags)
{
	const struct pindown_consumer ops = {.name = "wide",
					     .create = books_create,
					     .destroy = books_destroy,
					     .arg = &wide,
					     .rights = rights,
					     .flags = flags};
	int id = pindown_consumer_add(&ops, sizeof(ops));

	ck_assert_int_gt(id, 0);
	return id;
}

/* Which of the objects, by the order in which they were made, is found or made for this key. */
static unsigned served(int whose, uint64_t owner, uint64_t word0, uint64_t word1)
{
	const struct pindown_key key = {.owner = owner, .word = {word0, word1}};
	pindown_object *object = must_attach(whose, AT(0), &key);
	unsigned place = (unsigned)(made_by(object) - wide.made);

	pindown_detach(object);
	return place;
}

START_TEST(an_object_with_more_rights_serves)
{
	int id = open_wide(READ | WRITE | ATOMIC, 0);

	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 0);
	ck_assert_uint_eq(served(id, 1, 0, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ | ATOMIC, 0), 1);
	ck_assert_uint_eq(served(id, 1, ATOMIC, 0), 1);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1); /* both serve: the newer one */
	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ | ORDER, 0), 2); /* the rest of the word is compared */
	ck_assert_uint_eq(served(id, 1, READ, 5), 3);	      /* and the other words */
	ck_assert_uint_eq(served(id, 2, READ, 0), 4);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	ck_assert_uint_eq(wide.destroys, 5);
}
END_TEST

START_TEST(without_a_mask_rights_are_compared)
{
	int id = open_wide(0, 0);

	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

START_TEST(the_mask_of_an_earlier_consumer_is_forgotten)
{
	int id = open_wide(~0ull, PINDOWN_CONSUMER_RANGES);

	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	id = open_wide(0, 0);
	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

#define RANGE(first, count) PINDOWN_KEY_RANGE(AT(0) + (first)*PAGE, (count)*PAGE)

START_TEST(an_object_of_a_wider_range_serves)
{
	int id = open_wide(READ | WRITE, PINDOWN_CONSUMER_RANGES);

	ck_assert_uint_eq(served(id, 1, READ, RANGE(4, 4)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(4, 4)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(5, 2)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(7, 1)), 0);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(7, 2)), 1);
	ck_assert_uint_eq(served(id, 1, READ, RANGE(3, 2)), 2);
	ck_assert_uint_eq(served(id, 1, READ | WRITE, RANGE(5, 1)), 3);
	ck_assert_uint_eq(served(id, 1, WRITE, RANGE(5, 1)), 3);
	ck_assert_uint_eq(served(id, 1, WRITE, RANGE(0, 32)), 4);
	ck_assert_uint_eq(served(id, 1, WRITE, RANGE(0, 1)), 4);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

START_TEST(a_range_as_a_word_of_a_key)
{
	uint64_t word = PINDOWN_KEY_RANGE(0x7f4400012345, 0x20000);

	ck_assert_uint_eq(PINDOWN_KEY_RANGE_BASE(word), 0x7f4400010000);
	ck_assert_uint_eq(PINDOWN_KEY_RANGE_LENGTH(word), 0x30000);
	word = PINDOWN_KEY_RANGE(0xffffffff0000, 0x10000);
	ck_assert_uint_eq(PINDOWN_KEY_RANGE_BASE(word), 0xffffffff0000);
	ck_assert_uint_eq(PINDOWN_KEY_RANGE_LENGTH(word), 0x10000);
}
END_TEST

/* A hit on another object than that of the key is one like any other. */
static int wide_consumer;

static void attach_less(void *arg)
{
	pindown_object *object;

	(void)arg;
	for (unsigned i = 0; i < 2; i++) {
		if (pindown_attach(wide_consumer, AT(0), 1, 0, KEY(1, READ), NULL, &object) != 0)
			_exit(1);
		pindown_detach(object);
	}
}

static void attach_more(void *arg)
{
	attach_and_detach(wide_consumer, AT(0), KEY(1, READ | WRITE));
	attach_less(arg);
}

START_TEST(a_hit_by_more_rights_makes_no_system_call)
{
	wide_consumer = open_wide(READ | WRITE, 0);
	assert_no_system_call(attach_more, attach_less, NULL);
}
END_TEST

START_TEST(an_object_that_has_ended_serves_nobody)
{
	int id = open_wide(READ | WRITE, 0);
	pindown_object *object = must_attach(id, AT(0), KEY(1, READ | WRITE));

	ck_assert_int_eq(pindown_end_owner(id, 1), 1);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	pindown_detach(object);
	ck_assert_uint_eq(wide.destroys, 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(wide.destroys, 2);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	ck_assert_uint_eq(served(id, 1, 0, 0), 2);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

START_TEST(a_consumer_of_fewer_members_or_unknown_flags)
{
	const struct pindown_consumer ops = {.name = "short",
					     .create = books_create,
					     .destroy = books_destroy,
					     .arg = &wide,
					     .rights = ~0ull,
					     .flags = 2};
	int id;

	ck_assert_int_eq(pindown_consumer_add(&ops, sizeof(ops)), PINDOWN_ERR_INVALID);
	id = pindown_consumer_add(&ops, offsetof(struct pindown_consumer, rights));
	ck_assert_int_gt(id, 0);
	ck_assert_uint_eq(served(id, 1, READ | WRITE, 0), 0);
	ck_assert_uint_eq(served(id, 1, READ, 0), 1);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
}
END_TEST

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

static int attach_nowait(uint64_t addr, uint64_t owner)
{
	pindown_object *untouched = (pindown_object *)&books, *object = untouched;
	int result =
		pindown_attach(consumer, addr, 1, PINDOWN_GET_NOWAIT, KEY(owner, 1), NULL, &object);

	if (result == PINDOWN_OK)
		pindown_detach(object);
	else
		ck_assert_ptr_eq(object, untouched);
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

/* Two mappings side by side, of which the first is pinned. */
#define SEGMENT (BASE + GIB(1))
#define PIECE	MIB(2)

static void pin_half_a_segment(void)
{
	fake_reserved = SEGMENT;
	fake_reserved_size = 2 * PIECE;
	for (unsigned i = 0; i < 2; i++)
		watched_alloc(SEGMENT + i * PIECE, PIECE, FAKE_VMM);
	for (unsigned i = 0; i < 3; i++) /* a thread's first hit is looked at more closely */
		get_and_put(SEGMENT, 1);
}

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

/* ---- vectors ---- */

#define MANY 64

static void same_as_gets(const struct pindown_range *ranges, size_t n)
{
	pindown_region *regions[MANY];

	ck_assert_int_eq(pindown_getv(ranges, n, 0, regions, NULL), PINDOWN_OK);
	for (size_t i = 0; i < n; i++) {
		pindown_region *region = must_get(ranges[i].addr, ranges[i].length);

		ck_assert_ptr_eq(regions[i], region);
		pindown_put(region);
	}
	pindown_putv(regions, n);
}

/* Equal, overlapping and unordered ranges; the fixture sees whether all holds were given back. */
START_TEST(a_vector_is_as_good_as_gets)
{
	struct pindown_range ranges[MANY];

	for (size_t i = 0; i < MANY; i++)
		ranges[i] = (struct pindown_range){AT(i / 3 % 4) + i % 5, 1 + i % 7};
	for (size_t n = 0; n <= MANY; n++)
		same_as_gets(ranges, n);
	ck_assert_uint_eq(stats().pins, 4);
	ck_assert_uint_eq(stats().misses, 4);
	ck_assert_uint_eq(stats().hits, MANY * (MANY + 1) - 4);
	ck_assert_int_eq(pindown_flush(), 4);
}
END_TEST

/* Between two ranges of one region lies another, which is pinned meanwhile, or just a hit. */
START_TEST(a_vector_that_comes_back_to_a_region)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(1), 1}, {AT(0), 2}, {AT(1), 2}};
	pindown_region *regions[4];

	for (unsigned i = 0; i < 3; i++) /* a thread's first hit is looked at more closely */
		get_and_put(AT(0), 1);
	for (unsigned round = 0; round < 2; round++) {
		ck_assert_int_eq(pindown_getv(ranges, 4, 0, regions, NULL), PINDOWN_OK);
		for (unsigned i = 0; i < 4; i++)
			ck_assert_uint_eq(pindown_region_base(regions[i]), AT(i % 2));
		pindown_putv(regions, 4);
	}
	ck_assert_uint_eq(stats().pins, 2);
}
END_TEST

START_TEST(each_hold_of_a_vector_counts)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(0), 1}, {AT(0) + MIB(1), MIB(1)}};
	pindown_region *regions[3];

	ck_assert_int_eq(pindown_getv(ranges, 3, 0, regions, NULL), PINDOWN_OK);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(pindown_flush(), 0);
		pindown_putv(&regions[i], 1);
	}
	ck_assert_int_eq(pindown_flush(), 1);
}
END_TEST

START_TEST(a_vector_fails_as_a_whole)
{
	struct pindown_range ranges[] = {
		{AT(0), 1}, {AT(0), 2}, {AT(1), 1}, {AT(9), 1}, {AT(2), 1}};
	const struct {
		struct pindown_range range;
		int result;
	} bad[] = {{{AT(9), 1}, PINDOWN_ERR_NOT_DEVICE},
		   {{AT(1), 0}, PINDOWN_ERR_INVALID},
		   {{AT(1), SIZE_MAX}, PINDOWN_ERR_INVALID},
		   {{AT(1), MIB(2) + 1}, PINDOWN_ERR_RANGE}};
	pindown_region *regions[5];

	for (unsigned i = 0; i < 4; i++) {
		size_t failed = 99;

		memset(regions, 0x55, sizeof(regions));
		ranges[3] = bad[i].range;
		ck_assert_int_eq(pindown_getv(ranges, 5, 0, regions, &failed), bad[i].result);
		ck_assert_uint_eq(failed, 3);
		for (unsigned k = 0; k < 5; k++)
			ck_assert_ptr_null(regions[k]);
		ck_assert_int_eq(pindown_getv(ranges, 5, 0, regions, NULL), bad[i].result);
		pindown_putv(regions, 5); /* NULLs are ignored */
		ck_assert_int_eq(pindown_flush(), 2);
	}
}
END_TEST

START_TEST(a_vector_of_cached_regions)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(1), 1}};
	pindown_region *regions[2];
	size_t failed = 99;

	get_and_put(AT(0), 1);
	ck_assert_int_eq(pindown_getv(ranges, 2, PINDOWN_GET_CACHED, regions, &failed),
			 PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(failed, 1);
	ck_assert_uint_eq(stats().pins, 1);
}
END_TEST

START_TEST(bad_vectors_are_refused)
{
	const struct pindown_range range = {AT(0), 1};
	pindown_region *region = NULL;
	size_t failed = 99;

	ck_assert_int_eq(pindown_getv(NULL, 0, 0, NULL, NULL), PINDOWN_OK);
	ck_assert_int_eq(pindown_getv(NULL, 1, 0, &region, &failed), PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(failed, 0);
	failed = 99;
	ck_assert_int_eq(pindown_getv(&range, 1, 0, NULL, &failed), PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(failed, 0);
	ck_assert_int_eq(pindown_getv(&range, 1, 4, &region, NULL), PINDOWN_ERR_INVALID);
	ck_assert_ptr_null(region);
	pindown_putv(NULL, 0);
}
END_TEST

static void free_in_this_thread(void *arg)
{
	(void)arg;
	watched_free(AT(0));
}

static void free_first(void *arg)
{
	in_other_thread(free_in_this_thread, arg);
}

/* The memory of a range ends while a later one is pinned: it is not found again after that. */
START_TEST(a_range_that_ends_in_the_middle_of_a_vector)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(1), 1}, {AT(0), 1}};
	pindown_region *regions[3];
	size_t failed = 99;

	get_and_put(AT(0), 1);
	fake_at_edge(FAKE_EXPORT, FAKE_ENTERING(0), free_first, NULL);
	ck_assert_int_eq(pindown_getv(ranges, 3, 0, regions, &failed), PINDOWN_ERR_NOT_DEVICE);
	ck_assert(fake_edge_met());
	ck_assert_uint_eq(failed, 2);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}
END_TEST

static unsigned unmapped;

static void unmap_segment(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	if (what->reason == PINDOWN_REASON_EVICTED && !unmapped++)
		for (unsigned i = 0; i < 2; i++)
			ck_assert_int_eq(watched_unmap(SEGMENT + i * PIECE, PIECE), FAKE_SUCCESS);
}

/*
 * The first range makes a region over both mappings; before the get returns it, the memory ends in
 * a callback. The second range lies in the region that was just got, and must not be found there.
 */
START_TEST(a_region_that_has_ended_is_not_held_again)
{
	const struct pindown_range ranges[] = {{SEGMENT + PIECE - 1, 2}, {SEGMENT, 1}};
	pindown_region *regions[2];
	size_t failed = 99;
	int id;

	pin_half_a_segment();
	id = pindown_subscribe(unmap_segment, NULL);
	ck_assert_int_eq(pindown_getv(ranges, 2, 0, regions, &failed), PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(unmapped, 1);
	ck_assert_uint_eq(failed, 1);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
}
END_TEST

/* ---- enumeration ---- */

static struct pindown_consumer_stats stats_of(int id)
{
	struct pindown_consumer_stats of;

	ck_assert_int_eq(pindown_consumer_stats(id, &of, sizeof(of)), PINDOWN_OK);
	return of;
}

struct visits {
	struct pindown_region_info regions[8];
	struct pindown_object_info objects[8];
	int count, stop_at;
	void (*act)(void);
	jmp_buf *out;
};

static int see_region(const struct pindown_region_info *info, void *arg)
{
	struct visits *visits = arg;

	ck_assert_int_lt(visits->count, 8);
	visits->regions[visits->count++] = *info;
	if (visits->act)
		visits->act();
	if (visits->out)
		longjmp(*visits->out, 1);
	return visits->count == visits->stop_at;
}

static int see_object(const struct pindown_object_info *info, void *arg)
{
	struct visits *visits = arg;

	ck_assert_int_lt(visits->count, 8);
	visits->objects[visits->count++] = *info;
	if (visits->act)
		visits->act();
	return visits->count == visits->stop_at;
}

static const struct pindown_region_info *visit_of(const struct visits *visits, uint64_t base)
{
	const struct pindown_region_info *found = NULL;

	for (int i = 0; i < visits->count; i++)
		if (visits->regions[i].base == base) {
			ck_assert_ptr_null(found);
			found = &visits->regions[i];
		}
	return found;
}

START_TEST(each_region_is_visited_once)
{
	pindown_region *held, *kept;
	const struct pindown_region_info *info;
	struct visits visits = {0};

	ck_assert_int_eq(pindown_each_region(see_region, &visits), 0);
	get_and_put(AT(0), 1);
	held = must_get(AT(1), 1);
	kept = must_get(AT(2), 1);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_int_eq(watched_free(AT(2)), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 3);
	ck_assert_int_eq(visits.count, 3);
	info = visit_of(&visits, AT(0));
	ck_assert_ptr_nonnull(info);
	ck_assert(info->is_live && !info->in_use && !info->is_volatile);
	info = visit_of(&visits, AT(1));
	ck_assert_ptr_nonnull(info);
	ck_assert(info->is_live && info->in_use);
	ck_assert_uint_eq(info->length, pindown_region_length(held));
	ck_assert_uint_eq(info->pin_base, pindown_region_pin_base(held));
	ck_assert_uint_eq(info->pin_length, pindown_region_pin_length(held));
	ck_assert_uint_eq(info->buffer_id, pindown_region_buffer_id(held));
	ck_assert_ptr_eq(info->context, pindown_region_context(held));
	ck_assert_int_eq(info->device, pindown_region_device(held));
	info = visit_of(&visits, AT(2));
	ck_assert_ptr_nonnull(info);
	ck_assert(!info->is_live && info->in_use);
	pindown_put(held);
	pindown_put(kept);
	ck_assert_int_eq(pindown_each_region(NULL, NULL), PINDOWN_ERR_INVALID);
}
END_TEST

START_TEST(a_region_is_in_use_by_its_object)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));
	struct visits visits = {0};

	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_int_eq(visits.regions[0].in_use, 1);
	pindown_detach(object);
	visits.count = 0;
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_int_eq(visits.regions[0].in_use, 0);
}
END_TEST

START_TEST(each_object_of_a_consumer_is_visited)
{
	int id = open_wide(0, 0);
	pindown_object *held = must_attach(consumer, AT(1), KEY(7, 3)), *kept;
	struct visits visits = {0};

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(id, AT(0), KEY(1, 1));
	kept = must_attach(consumer, AT(2), KEY(8, 1));
	ck_assert_int_eq(watched_free(AT(2)), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_each_object(consumer, see_object, &visits), 3);
	for (int i = 0; i < 3; i++) {
		const struct pindown_object_info *info = &visits.objects[i];

		ck_assert_int_eq(info->consumer, consumer);
		ck_assert_uint_eq(info->length, MIB(2));
		ck_assert_int_eq(info->in_use, info->base != AT(0));
		ck_assert_int_eq(info->is_live, info->base != AT(2));
		ck_assert_uint_eq(info->key.owner, info->base == AT(0)	 ? 1
						   : info->base == AT(1) ? 7
									 : 8);
	}
	visits.count = 0;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 4);
	visits.count = 0;
	ck_assert_int_eq(pindown_each_object(id, see_object, &visits), 1);
	visits.count = 0;
	visits.stop_at = 2;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 2);
	ck_assert_int_eq(pindown_each_object(-1, see_object, &visits), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_each_object(0, NULL, NULL), PINDOWN_ERR_INVALID);
	pindown_detach(held);
	pindown_detach(kept);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	visits.count = visits.stop_at = 0;
	ck_assert_int_eq(pindown_each_object(id, see_object, &visits), 0);
}
END_TEST

static void free_all(void)
{
	for (unsigned i = 0; i < 4; i++)
		watched_free(AT(i));
}

START_TEST(a_visitor_may_free_all_memory)
{
	struct visits visits = {.act = free_all};

	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 1);
	ck_assert_uint_eq(stats().regions, 0);
	visits.count = 0;
	ck_assert_int_eq(pindown_each_object(0, see_object, &visits), 0);
}
END_TEST

static void remove_own_consumer(void)
{
	pindown_consumer_remove(consumer);
}

START_TEST(a_visitor_may_remove_the_consumer)
{
	struct visits visits = {.act = remove_own_consumer};

	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	ck_assert_int_eq(pindown_each_object(consumer, see_object, &visits), 1);
	ck_assert_uint_eq(books.destroys, 4);
}
END_TEST

static void quit(void)
{
	pthread_exit(NULL);
}

static void visit_and_quit(void *arg)
{
	struct visits visits = {.act = quit};

	(void)arg;
	pindown_each_region(see_region, &visits);
}

static void *quitting(void *arg)
{
	visit_and_quit(arg);
	return arg; /* not reached */
}

/* Nothing of pindown's is left behind by a visitor that does not return. */
START_TEST(a_visitor_need_not_return)
{
	struct visits visits = {0};
	pthread_t thread;
	void *result = &visits;
	jmp_buf out;

	get_and_put(AT(0), 1);
	visits.out = &out;
	if (!setjmp(out))
		pindown_each_region(see_region, &visits);
	ck_assert_int_eq(visits.count, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, quitting, &visits), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_null(result);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	get_and_put(AT(1), 1);
}
END_TEST

static void *cancelled(void *arg)
{
	struct visits *visits = arg;

	pindown_each_region(see_region, visits);
	return arg; /* not reached */
}

static void cancel_oneself(void)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

START_TEST(a_visitor_may_be_cancelled)
{
	struct visits visits = {.act = cancel_oneself};
	pthread_t thread;
	void *result = NULL;

	get_and_put(AT(0), 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, cancelled, &visits), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}
END_TEST

static pid_t child;

static void fork_here(void)
{
	child = fork();
}

/* The child's cache is empty: there is nothing else to be visited in it. */
START_TEST(a_visitor_may_fork)
{
	struct visits visits = {.act = fork_here};
	int count, status;

	for (unsigned i = 0; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	visits.stop_at = 1;
	count = pindown_each_region(see_region, &visits);
	if (child == 0) {
		visits = (struct visits){0};
		if (count == 1 && pindown_each_region(see_region, &visits) == 0 &&
		    pindown_each_object(0, see_object, &visits) == 0 &&
		    stats_of(consumer).objects_made == 0)
			_exit(0);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	visits = (struct visits){0};
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 4);
}
END_TEST

/* ---- statistics of a consumer ---- */

START_TEST(a_consumer_is_counted_alone)
{
	int id = open_wide(0, 0);
	struct pindown_consumer_stats of;
	pindown_object *object, *held;

	attach_and_detach(id, AT(0), KEY(1, 1));
	object = must_attach(consumer, AT(0), KEY(1, 1));
	held = must_attach(consumer, AT(1), KEY(1, 1));
	attach_and_detach(consumer, AT(2), KEY(1, 1));
	books.fail = EIO;
	ck_assert_int_eq(attach_nowait(AT(3), 5), PINDOWN_CREATE_FAILED(EIO));
	books.fail = 0;
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	of = stats_of(consumer);
	ck_assert_uint_eq(of.objects, 3);
	ck_assert_uint_eq(of.held_objects, 2);
	ck_assert_uint_eq(of.kept_objects, 1);
	ck_assert_uint_eq(of.objects_made, 3);
	ck_assert_uint_eq(of.create_errors, 1);
	ck_assert_uint_eq(of.objects_revoked, 0);
	ck_assert_uint_eq(stats_of(id).objects_made, 1);
	ck_assert_uint_eq(stats_of(id).create_errors, 0);
	pindown_detach(object);
	pindown_detach(held);
	ck_assert_int_eq(pindown_consumer_remove(id), PINDOWN_OK);
	ck_assert_int_eq(pindown_consumer_stats(id, &of, sizeof(of)), PINDOWN_ERR_INVALID);
}
END_TEST

START_TEST(revoked_objects_are_counted)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(stats_of(consumer).objects_revoked, 1);
	ck_assert_uint_eq(stats_of(consumer).objects, 0);
	pindown_detach(object);
}
END_TEST

static void open_books_that_revoke(void)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	open_books();
}

START_TEST(statistics_of_another_size)
{
	struct {
		struct pindown_consumer_stats of;
		uint64_t more;
	} larger;
	uint64_t smaller[2] = {9, 9};

	attach_and_detach(consumer, AT(0), KEY(1, 1));
	memset(&larger, 0x55, sizeof(larger));
	ck_assert_int_eq(pindown_consumer_stats(consumer, &larger.of, sizeof(larger)), PINDOWN_OK);
	ck_assert_uint_eq(larger.of.objects, 1);
	ck_assert_uint_eq(larger.more, 0);
	ck_assert_int_eq(pindown_consumer_stats(consumer, (void *)smaller, 8), PINDOWN_OK);
	ck_assert_uint_eq(smaller[0], 1);
	ck_assert_uint_eq(smaller[1], 9);
	ck_assert_int_eq(pindown_consumer_stats(consumer, NULL, 8), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_stats(consumer, &larger.of, 0), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_stats(0, &larger.of, 8), PINDOWN_ERR_INVALID);
}
END_TEST

/* ---- results ---- */

START_TEST(each_result_has_a_sentence)
{
	const char *unknown = pindown_strerror(-999), *own = pindown_strerror(-1001);

	for (int i = 0; i > -17; i--) {
		ck_assert_str_ne(pindown_strerror(i), unknown);
		for (int k = 0; k > i; k--)
			ck_assert_str_ne(pindown_strerror(i), pindown_strerror(k));
	}
	ck_assert_str_eq(pindown_strerror(-17), unknown);
	ck_assert_str_ne(own, unknown);
	ck_assert_str_eq(pindown_strerror(INT_MIN), own);
	ck_assert_str_eq(pindown_strerror(INT_MAX), pindown_strerror(0)); /* a count */
	ck_assert_int_eq(PINDOWN_CREATE_ERROR(PINDOWN_CREATE_FAILED(EIO)), EIO);
	ck_assert_int_eq(PINDOWN_CREATE_ERROR(PINDOWN_ERR_TIMED_OUT), 0);
	ck_assert_int_eq(PINDOWN_CREATE_ERROR(7), 0);
}
END_TEST

static int result_of_create(int own)
{
	books.fail = own;
	return attach_nowait(AT(0), 1);
}

START_TEST(what_create_returns_is_carried_in_the_result)
{
	ck_assert_int_eq(result_of_create(EPERM), PINDOWN_CREATE_FAILED(EPERM));
	ck_assert_int_eq(result_of_create(INT_MAX), PINDOWN_CREATE_FAILED(1 << 30));
	ck_assert_int_eq(result_of_create(PINDOWN_ERR_NO_DMABUF), PINDOWN_ERR_NO_DMABUF);
	ck_assert_int_eq(result_of_create(-1000), -1000);
	ck_assert_int_eq(result_of_create(INT_MIN), INT_MIN);
	ck_assert_uint_eq(stats_of(consumer).create_errors, 5);
}
END_TEST

/* It is the consumer that has no memory: other regions don't make room for it. */
START_TEST(a_create_without_memory_evicts_nothing)
{
	for (unsigned i = 1; i < 4; i++)
		attach_and_detach(consumer, AT(i), KEY(1, 1));
	ck_assert_int_eq(result_of_create(PINDOWN_ERR_NO_MEMORY), PINDOWN_ERR_NO_MEMORY);
	ck_assert_uint_eq(stats_of(consumer).create_errors, 1);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_uint_eq(stats().objects, 3);
}
END_TEST

/* ---- callbacks that call what could wait for them ---- */

static int ids[2], answers[2];
static pthread_barrier_t both;

/* Each of two callbacks, in two threads, ends what the other belongs to. */
static void remove_the_other(struct books *own, pindown_region *region)
{
	unsigned me = own == &wide;

	(void)region;
	own->in_create = NULL;
	pthread_barrier_wait(&both);
	answers[me] = pindown_consumer_remove(ids[!me]);
}

static void attach_to_wide(void *arg)
{
	pindown_object *object;

	(void)arg;
	if (pindown_attach(ids[1], AT(1), 1, 0, KEY(1, 1), NULL, &object) == PINDOWN_OK)
		pindown_detach(object);
}

static bool is_refused_or_done(int answer)
{
	return answer == PINDOWN_OK || answer == PINDOWN_ERR_DEADLOCK;
}

START_TEST(callbacks_that_remove_each_others_consumers_are_refused)
{
	struct worker worker;
	pindown_object *object;

	restore_wait_limit();
	pthread_barrier_init(&both, NULL, 2);
	ids[0] = consumer;
	ids[1] = open_wide(0, 0);
	books.in_create = wide.in_create = remove_the_other;
	worker_start(&worker, attach_to_wide, NULL);
	if (pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object) == PINDOWN_OK)
		pindown_detach(object);
	worker_join(&worker);
	ck_assert(is_refused_or_done(answers[0]) && is_refused_or_done(answers[1]));
	ck_assert(answers[0] == PINDOWN_ERR_DEADLOCK || answers[1] == PINDOWN_ERR_DEADLOCK);
	/* Both are gone by now, whoever was refused. */
	ck_assert_int_eq(pindown_consumer_remove(ids[0]), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_consumer_remove(ids[1]), PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(wide.creates, wide.destroys);
}
END_TEST

/* While one callback runs, its thread has not yet ended the objects on the region. */
static void remove_meanwhile(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	pthread_barrier_wait(&both);
	if (what->base == AT(1))
		answers[0] = pindown_consumer_remove(consumer);
	pthread_barrier_wait(&both);
}

static void free_the_first(void *arg)
{
	(void)arg;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

START_TEST(a_consumer_is_removed_while_another_thread_ends_its_objects)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));
	struct worker worker;
	int id;

	attach_and_detach(consumer, AT(0), KEY(2, 1));
	get_and_put(AT(1), 1);
	restore_wait_limit();
	pthread_barrier_init(&both, NULL, 2);
	id = pindown_subscribe(remove_meanwhile, NULL);
	worker_start(&worker, free_the_first, NULL);
	pindown_invalidate(AT(1), 1);
	worker_join(&worker);
	ck_assert_int_eq(answers[0], PINDOWN_ERR_DEADLOCK);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_int_eq(books.made[0].in_use, 1);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), PINDOWN_ERR_INVALID);
	pindown_detach(held);
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

static unsigned met[2];

static void unsubscribe_the_other(const struct pindown_invalidation *what, void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;

	if (what->base != AT(me) || met[me]++)
		return;
	pthread_barrier_wait(&both);
	answers[me] = pindown_unsubscribe(ids[!me]);
}

static void invalidate_the_second(void *arg)
{
	(void)arg;
	pindown_invalidate(AT(1), 1);
}

START_TEST(callbacks_that_unsubscribe_each_other_are_refused)
{
	struct worker worker;

	restore_wait_limit();
	pthread_barrier_init(&both, NULL, 2);
	ids[0] = pindown_subscribe(unsubscribe_the_other, (void *)0);
	ids[1] = pindown_subscribe(unsubscribe_the_other, (void *)1);
	get_and_put(AT(0), 1);
	get_and_put(AT(1), 1);
	worker_start(&worker, invalidate_the_second, NULL);
	pindown_invalidate(AT(0), 1);
	worker_join(&worker);
	ck_assert(is_refused_or_done(answers[0]) && is_refused_or_done(answers[1]));
	ck_assert(answers[0] == PINDOWN_ERR_DEADLOCK || answers[1] == PINDOWN_ERR_DEADLOCK);
	ck_assert_int_eq(pindown_unsubscribe(ids[0]), PINDOWN_ERR_INVALID);
	ck_assert_int_eq(pindown_unsubscribe(ids[1]), PINDOWN_ERR_INVALID);
}
END_TEST

/* Whatever a create may call, on the region and consumer that it works for. */
static void call_everything(struct books *own, pindown_region *region)
{
	const struct pindown_range ranges[] = {{AT(0), 1}, {AT(0), 9}, {AT(1), 1}};
	struct visits visits = {0};
	pindown_region *regions[3];

	own->in_create = NULL;
	ck_assert_int_eq(pindown_getv(ranges, 3, PINDOWN_GET_NOWAIT, regions, NULL), PINDOWN_OK);
	ck_assert_ptr_eq(regions[1], region);
	pindown_putv(regions, 3);
	attach_and_detach(consumer, AT(0), KEY(2, 1));
	ck_assert_int_eq(pindown_end_owner(consumer, 2), 0);
	ck_assert_int_eq(pindown_each_object(consumer, see_object, &visits), 0);
	ck_assert_int_eq(pindown_each_region(see_region, &visits), 2);
	ck_assert_uint_eq(stats_of(consumer).objects_made, 1);
	ck_assert_int_eq(pindown_flush(), 1);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_region_is_live(region), 0);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
}

START_TEST(create_may_call_everything)
{
	pindown_object *object;

	books.in_create = call_everything;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_INVALID);
	ck_assert_uint_eq(books.creates, 2);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cache_api");
	TCase *tc = objects_case(s, "objects");

	tcase_add_test(tc, create_gets_the_range_that_was_asked_for);
	tcase_add_test(tc, a_range_outside_of_the_region_is_refused);
	tcase_add_test(tc, an_object_with_more_rights_serves);
	tcase_add_test(tc, without_a_mask_rights_are_compared);
	tcase_add_test(tc, the_mask_of_an_earlier_consumer_is_forgotten);
	tcase_add_test(tc, an_object_of_a_wider_range_serves);
	tcase_add_test(tc, a_range_as_a_word_of_a_key);
	tcase_add_test(tc, a_hit_by_more_rights_makes_no_system_call);
	tcase_add_test(tc, an_object_that_has_ended_serves_nobody);
	tcase_add_test(tc, a_consumer_of_fewer_members_or_unknown_flags);

	tc = objects_case(s, "nowait");
	tcase_add_test(tc, nowait_does_not_wait_for_a_free);
	tcase_add_test(tc, nowait_does_not_wait_for_a_pin);
	tcase_add_test(tc, nowait_does_not_wait_for_a_create);
	tcase_add_loop_test(tc, nowait_does_not_wait_for_a_create_on_what_it_ends, 0, 2);
	tcase_add_test(tc, nowait_in_the_create_of_the_same_object_is_busy);
	tcase_add_test(tc, nowait_with_cached_is_a_hit_or_none);
	tc = suite_case(s, "little room", open_books_with_little_room, close_books);
	tcase_add_test(tc, nowait_does_not_wait_for_a_budget);

	tc = objects_case(s, "vectors");
	tcase_add_test(tc, a_vector_is_as_good_as_gets);
	tcase_add_test(tc, a_vector_that_comes_back_to_a_region);
	tcase_add_test(tc, each_hold_of_a_vector_counts);
	tcase_add_test(tc, a_vector_fails_as_a_whole);
	tcase_add_test(tc, a_vector_of_cached_regions);
	tcase_add_test(tc, bad_vectors_are_refused);
	tcase_add_test(tc, a_range_that_ends_in_the_middle_of_a_vector);
	tcase_add_test(tc, a_region_that_has_ended_is_not_held_again);

	tc = objects_case(s, "lists");
	tcase_add_test(tc, each_region_is_visited_once);
	tcase_add_test(tc, a_region_is_in_use_by_its_object);
	tcase_add_test(tc, each_object_of_a_consumer_is_visited);
	tcase_add_test(tc, a_visitor_may_free_all_memory);
	tcase_add_test(tc, a_visitor_may_remove_the_consumer);
	tcase_add_test(tc, a_visitor_need_not_return);
	tcase_add_test(tc, a_visitor_may_be_cancelled);
	tcase_add_test(tc, a_visitor_may_fork);
	tcase_add_test(tc, a_consumer_is_counted_alone);
	tcase_add_test(tc, statistics_of_another_size);
	tc = suite_case(s, "revoke", open_books_that_revoke, close_books);
	tcase_add_test(tc, revoked_objects_are_counted);

	tc = objects_case(s, "results");
	tcase_add_test(tc, each_result_has_a_sentence);
	tcase_add_test(tc, what_create_returns_is_carried_in_the_result);
	tcase_add_test(tc, a_create_without_memory_evicts_nothing);

	tc = objects_case(s, "callbacks");
	tcase_add_test(tc, callbacks_that_remove_each_others_consumers_are_refused);
	tcase_add_test(tc, a_consumer_is_removed_while_another_thread_ends_its_objects);
	tcase_add_test(tc, callbacks_that_unsubscribe_each_other_are_refused);
	tcase_add_test(tc, create_may_call_everything);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
