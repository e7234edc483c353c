/* SPDX-License-Identifier: MIT */
/* What becomes of the holders and objects of a region that is replaced by a wider one. */
#include <string.h>

#include "tests/unit/support/growth_test.h"
#include "tests/unit/support/objects_test.h"

/* ---- holders and objects ---- */

/* Each of the two is unpinned at its own last put, and the memory is there until then. */
START_TEST(a_replaced_region_is_kept_for_its_holder)
{
	map_segment();
	pindown_region *old = get_over(MAPPING(0), 2 * PIECE, 0, 2);
	pindown_region *wide = cross(0, 4);
	ck_assert(!pindown_region_is_live(old));
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().kept_bytes, 2 * PIECE);
	ck_assert_uint_eq(fake_open_exports(), 2);
	if (_i)
		pindown_put(wide);
	pindown_put(old);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(fake_open_exports(), 1);
	if (!_i)
		pindown_put(wide);
	unmap_segment();
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

/* Its holder can ask for its dma-buf, until its memory ends. */
START_TEST(a_replaced_region_has_its_dmabuf)
{
	uint64_t offset;
	int fd;

	map_segment();
	pindown_region *old = get_over(MAPPING(0), 2 * PIECE, 0, 2);
	pindown_region_close_dmabuf(old);
	pindown_put(cross(0, 4));
	ck_assert_int_eq(pindown_region_dmabuf(old, MAPPING(1), &fd, &offset), PINDOWN_OK);
	ck_assert_uint_eq(offset, PIECE);
	ck_assert_uint_eq(fake_open_exports_of(fake_id(MAPPING(0))), 2);
	pindown_region_close_dmabuf(old);
	ck_assert_int_eq(watched_unmap(MAPPING(_i), PIECE), FAKE_SUCCESS);
	ck_assert_int_eq(pindown_region_dmabuf(old, MAPPING(1), &fd, &offset),
			 PINDOWN_ERR_NOT_DEVICE);
	pindown_put(old);
	ck_assert_uint_eq(fake_open_exports(), 0);
	for (unsigned n = 0; n < 4; n++)
		if (n != (unsigned)_i)
			watched_unmap(MAPPING(n), PIECE);
}
END_TEST

/* A registration that is made on a region while it is replaced is made again on the new one. */
static void replace_and_open(struct books *own, pindown_region *region)
{
	uint64_t offset;
	int fd;

	own->in_create = NULL;
	pindown_region_close_dmabuf(region);
	pindown_put(cross(0, 4));
	ck_assert_int_eq(pindown_region_dmabuf(region, MAPPING(0), &fd, &offset), PINDOWN_OK);
}

START_TEST(a_region_is_replaced_while_an_object_is_made)
{
	pin_first_two();
	books.in_create = replace_and_open;
	pindown_object *object = must_attach(consumer, MAPPING(0), KEY(1, 1));

	ck_assert_uint_eq(books.creates, 2);
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_uint_eq(pindown_region_length(pindown_object_region(object)), 4 * PIECE);
	ck_assert_uint_eq(stats().regions, 1);
	pindown_detach(object);
	unmap_segment();
}
END_TEST

START_TEST(idle_objects_go_with_the_replaced_region)
{
	pin_first_two();
	attach_and_detach(consumer, MAPPING(0), KEY(1, 1));
	pindown_put(cross(0, 4));
	destroyed(1, PINDOWN_REASON_EVICTED, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	unmap_segment();
}
END_TEST

/* A held object, and with it the replaced region, lives on; the next attach makes another one. */
START_TEST(held_objects_stay_on_the_replaced_region)
{
	pin_first_two();
	pindown_object *held = must_attach(consumer, MAPPING(0), KEY(1, 1));
	pindown_put(cross(0, 4));
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_uint_eq(stats().kept_bytes, 2 * PIECE);
	pindown_object *next = must_attach(consumer, MAPPING(0), KEY(1, 1));
	ck_assert_ptr_ne(held, next);
	pindown_detach(held);
	destroyed(1, PINDOWN_REASON_EVICTED, 0);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	pindown_detach(next);
	unmap_segment();
}
END_TEST

/*
 * With PINDOWN_HELD=revoke a held object on a replaced region ends before its memory does, not
 * earlier, whichever part of the memory that is; also when nothing is live there any more.
 */
START_TEST(objects_on_a_replaced_region_are_revoked_with_the_memory)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pin_first_two();
	pindown_object *held = must_attach(consumer, MAPPING(0), KEY(1, 1));
	pindown_put(cross(0, 4));
	if (_i & 1)
		pindown_flush();
	ck_assert_int_eq(watched_unmap(MAPPING(3), PIECE), FAKE_SUCCESS);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_int_eq(watched_unmap(MAPPING(_i >> 1), PIECE), FAKE_SUCCESS);
	destroyed(1, PINDOWN_REASON_FREED, 1);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	pindown_detach(held);
	for (unsigned n = 0; n < 3; n++)
		if (n != (unsigned)_i >> 1)
			watched_unmap(MAPPING(n), PIECE);
}
END_TEST

static void unmap_first(void)
{
	ck_assert_int_eq(watched_unmap(MAPPING(0), PIECE), FAKE_SUCCESS);
}

static void unmap_second(void)
{
	ck_assert_int_eq(watched_unmap(MAPPING(1), PIECE), FAKE_SUCCESS);
}

/* The memory of the segment ends once, in a callback. */
static bool has_unmapped;

static unsigned unmapped_at_once;

static void unmap_once(void)
{
	if (has_unmapped)
		return;
	has_unmapped = true;
	for (unsigned n = 0; n < unmapped_at_once; n++)
		ck_assert_int_eq(watched_unmap(MAPPING(n), PIECE), FAKE_SUCCESS);
}

static void unmap_what_is_replaced(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	if (what->reason == PINDOWN_REASON_EVICTED)
		unmap_once();
}

static void unmap_in_destroy(struct books *own, const struct pindown_object_end *what)
{
	(void)own, (void)what;
	unmap_once();
}

/*
 * A callback that is notified of the replacement frees the memory: a subscriber's, or the destroy
 * of an idle object. The held object is revoked all the same.
 */
START_TEST(objects_on_a_replaced_region_whose_memory_ends_in_a_callback)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pin_first_two();
	pindown_object *held = must_attach(consumer, MAPPING(0), KEY(1, 1));
	attach_and_detach(consumer, MAPPING(0), KEY(2, 1));
	unmapped_at_once = _i < 2 ? 4 : 1; /* the held object is on the first */
	if (_i % 2)
		books.in_destroy = unmap_in_destroy;
	else
		ck_assert_int_gt(pindown_subscribe(unmap_what_is_replaced, NULL), 0);
	pindown_put(must_get(MAPPING(2) - MIB(1), MIB(2)));
	ck_assert(has_unmapped);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_ptr_null(made_by(held)); /* its data went with it */
	ck_assert_int_eq(books.made[0].reason, PINDOWN_REASON_FREED);
	ck_assert_int_eq(books.made[0].in_use, 1);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	pindown_detach(held);
	for (unsigned n = unmapped_at_once; n < 4; n++)
		ck_assert_int_eq(watched_unmap(MAPPING(n), PIECE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

/* With PINDOWN_HELD=warn there is a line when the memory of a replaced region ends, not before. */
START_TEST(a_line_says_that_a_replaced_region_keeps_its_memory)
{
	setenv("PINDOWN_HELD", "warn", 1);
	pin_first_two();
	pindown_object *held = must_attach(consumer, MAPPING(0), KEY(1, 1));
	pindown_put(cross(0, 4));
	if (_i)
		pindown_flush();
	const char *text = stderr_of(unmap_first);

	ck_assert_uint_eq(lines_of(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "4194304 bytes"));
	ck_assert_ptr_nonnull(strstr(text, "holds 1 registration "));
	ck_assert_str_eq(stderr_of(unmap_second), "");
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_uint_eq(stats().kept_bytes, 2 * PIECE);
	pindown_detach(held);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	for (unsigned n = 2; n < 4; n++)
		watched_unmap(MAPPING(n), PIECE);
}
END_TEST

/* ---- windows of one allocation, of 16 MiB where 8 can be pinned ---- */

START_TEST(a_window_replaces_those_that_it_overlaps)
{
	pin_two_windows();
	attach_and_detach(consumer, OTHER + MIB(7), KEY(1, 1));
	pindown_object *first = must_attach(consumer, OTHER + MIB(4), KEY(1, 1));
	pindown_region *both = must_get(OTHER + MIB(5) - 1, MIB(2) + 2);

	ck_assert_uint_eq(pindown_region_base(both), OTHER + MIB(4));
	ck_assert_uint_eq(pindown_region_length(both), MIB(4));
	destroyed(1, PINDOWN_REASON_EVICTED, 0);
	ck_assert_uint_eq(stats().kept_bytes, MIB(1));
	ck_assert_uint_eq(stats().evictions, 0);
	pindown_detach(first);
	pindown_put(both);
	ck_assert_uint_eq(stats().bytes, MIB(4));
	ck_assert_int_eq(watched_free(OTHER), FAKE_SUCCESS);
	ck_assert_uint_eq(stats().bytes, 0);
}
END_TEST

/* The free names only the beginning of the allocation, where nothing was pinned. */
START_TEST(objects_on_a_replaced_window_end_with_the_allocation)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pin_two_windows();
	pindown_object *held = must_attach(consumer, OTHER + MIB(4), KEY(1, 1));
	pindown_put(must_get(OTHER + MIB(5) - 1, 2));
	ck_assert_uint_eq(books.destroys, 0);
	if (_i)
		pindown_flush();
	ck_assert_int_eq(watched_free(OTHER), FAKE_SUCCESS);
	destroyed(1, PINDOWN_REASON_FREED, 1);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().bytes, 0);
	pindown_detach(held);
}
END_TEST

static void free_the_other(void)
{
	ck_assert_int_eq(watched_free(OTHER), FAKE_SUCCESS);
}

START_TEST(a_line_says_that_a_replaced_window_keeps_its_memory)
{
	setenv("PINDOWN_HELD", "warn", 1);
	pin_two_windows();
	pindown_object *held = must_attach(consumer, OTHER + MIB(4), KEY(1, 1));
	pindown_put(must_get(OTHER + MIB(5) - 1, 2));
	const char *text = stderr_of(free_the_other);

	ck_assert_uint_eq(lines_of(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "1048576 bytes"));
	pindown_detach(held);
	ck_assert_uint_eq(stats().bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: regions that were replaced");
	TCase *tc = objects_case(suite, "holders and objects");

	tcase_add_loop_test(tc, a_replaced_region_is_kept_for_its_holder, 0, 2);
	tcase_add_loop_test(tc, a_replaced_region_has_its_dmabuf, 0, 2);
	tcase_add_test(tc, a_region_is_replaced_while_an_object_is_made);
	tcase_add_test(tc, idle_objects_go_with_the_replaced_region);
	tcase_add_test(tc, held_objects_stay_on_the_replaced_region);
	tcase_add_loop_test(tc, objects_on_a_replaced_region_are_revoked_with_the_memory, 0, 4);
	tcase_add_loop_test(tc, objects_on_a_replaced_region_whose_memory_ends_in_a_callback, 0, 4);
	tcase_add_loop_test(tc, a_line_says_that_a_replaced_region_keeps_its_memory, 0, 2);
	tc = objects_case(suite, "windows");
	tcase_add_test(tc, a_window_replaces_those_that_it_overlaps);
	tcase_add_loop_test(tc, objects_on_a_replaced_window_end_with_the_allocation, 0, 2);
	tcase_add_test(tc, a_line_says_that_a_replaced_window_keeps_its_memory);
	return run_suite(suite);
}
