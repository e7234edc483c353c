/* SPDX-License-Identifier: MIT */
/*
 * Consumer objects end: before their region is unpinned, with their owner, or with their consumer.
 */
#include <string.h>

#include "tests/unit/support/objects_test.h"

/* ---- with the region ---------------------------------------------------------------------- */

static unsigned exports_then;

static void look_at_exports(struct books *b, const struct pindown_object_end *what)
{
	(void)b;
	exports_then = fake_open_exports();
	ck_assert_uint_ne(fake_id(pindown_region_base(what->region)), 0);
}

START_TEST(an_idle_object_is_destroyed_before_the_free)
{
	books.in_destroy = look_at_exports;
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(consumer, AT(0), KEY(2, 1));
	pdn_guard guard = pdn_end_range(AT(0), 0);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_uint_eq(exports_then, 1);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	pdn_ended(guard);
	destroyed(2, PINDOWN_REASON_FREED, 0);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(books.creates, 3);
}
END_TEST

START_TEST(each_end_of_a_region_ends_its_objects)
{
	setenv("PINDOWN_MAX_REGIONS", "1", 1);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(consumer, AT(1), KEY(1, 1));
	destroyed(1, PINDOWN_REASON_EVICTED, 0);
	pindown_flush();
	destroyed(2, PINDOWN_REASON_FLUSHED, 0);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	pindown_invalidate(AT(0), 1);
	destroyed(3, PINDOWN_REASON_FLUSHED, 0);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	watched_context_destroy(FAKE_CONTEXT);
	destroyed(4, PINDOWN_REASON_CONTEXT, 0);
}
END_TEST

START_TEST(a_held_object_keeps_its_region_from_eviction)
{
	setenv("PINDOWN_MAX_REGIONS", "2", 1);
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	attach_and_detach(consumer, AT(1), KEY(1, 1));
	attach_and_detach(consumer, AT(2), KEY(1, 1));
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_uint_eq(books.made[1].destroyed, 1);
	ck_assert_int_eq(pindown_flush(), 1);
	ck_assert_int_eq(pindown_object_is_live(object), 1);
	pindown_detach(object);
	ck_assert_uint_eq(books.made[0].destroyed, 0);
	ck_assert_int_eq(pindown_flush(), 1);
	ck_assert_uint_eq(books.made[0].destroyed, 1);
}
END_TEST

/* ---- held when the memory ends ------------------------------------------------------------ */

START_TEST(keep_is_the_default)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_object *twice = must_attach(consumer, AT(0), KEY(1, 1));

	attach_and_detach(consumer, AT(0), KEY(2, 1)); /* idle: it is destroyed */
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_uint_eq(books.made[1].destroyed, 1);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 1);
	ck_assert_int_eq(pindown_object_is_live(held), 0);
	ck_assert_ptr_eq(pindown_object_data(held), &books.made[0]);
	ck_assert_uint_eq(stats().kept_bytes, MIB(2));
	ck_assert_uint_eq(stats().object_kept_bytes, MIB(2));
	ck_assert_uint_eq(device_stats(0).object_kept_regions, 1);

	/* other memory at the same address: another object */
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_object *new = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_ptr_ne(new, held);
	pindown_detach(new);

	pindown_detach(twice);
	ck_assert_uint_eq(books.made[0].destroyed, 0);
	pindown_detach(held);
	ck_assert_uint_eq(books.made[0].destroyed, 1);
	ck_assert_int_eq(books.made[0].reason, PINDOWN_REASON_FREED);
	ck_assert_int_eq(books.made[0].in_use, 0);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	ck_assert_uint_eq(stats().object_kept_bytes, 0);
	ck_assert_uint_eq(stats().objects_revoked, 0);
}
END_TEST

/* The region has holds of both kinds: the last of them to go unpins it. */
START_TEST(a_kept_region_may_be_held_in_two_ways)
{
	for (unsigned last = 0; last < 2; last++) {
		pindown_object *object = must_attach(consumer, AT(last), KEY(1, 1));
		pindown_region *region = must_get(AT(last), 1);

		ck_assert_int_eq(watched_free(AT(last)), FAKE_SUCCESS);
		ck_assert_uint_eq(stats().object_kept_regions, 1);
		if (last)
			pindown_put(region);
		else
			pindown_detach(object);
		ck_assert_uint_eq(stats().kept_regions, 1);
		ck_assert_uint_eq(stats().object_kept_regions, last);
		if (last)
			pindown_detach(object);
		else
			pindown_put(region);
		ck_assert_uint_eq(stats().kept_regions, 0);
		ck_assert_uint_eq(stats().object_kept_regions, 0);
	}
}
END_TEST

START_TEST(revoke_gives_the_memory_back_at_once)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_object *twice = must_attach(consumer, AT(0), KEY(1, 1));

	pdn_guard guard = pdn_end_range(AT(0), 0);
	destroyed(1, PINDOWN_REASON_FREED, 1);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
	pdn_ended(guard);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(stats().objects_revoked, 1);
	ck_assert_int_eq(pindown_object_is_live(held), 0);
	ck_assert_ptr_null(pindown_object_data(held));

	/* Later puts of it do no harm, not even to new memory at the same address. */
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_object *new = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_ptr_ne(new, held);
	pindown_detach(held);
	pindown_detach(twice);
	ck_assert_int_eq(pindown_object_is_live(new), 1);
	ck_assert_uint_eq(books.destroys, 1);
	pindown_detach(new);
}
END_TEST

/* A hold on the region itself can't be revoked. */
START_TEST(revoke_leaves_the_holders_of_the_region)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_region *region = must_get(AT(0), 1);

	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	destroyed(1, PINDOWN_REASON_FREED, 1);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().object_kept_regions, 0);
	pindown_detach(object);
	pindown_put(region);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

/* The memory was not freed: only the caller that asked for the end needs to know. */
START_TEST(revoke_is_for_memory_that_ends)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	ck_assert_int_eq(pindown_invalidate(AT(0), 1), 1);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_ptr_nonnull(pindown_object_data(object));
	pindown_detach(object);
	destroyed(1, PINDOWN_REASON_FLUSHED, 0);
}
END_TEST

/* ---- memory that is freed in stream order ---- */

static int told_reason, told_in_use;

static void note_reason(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	told_reason = what->reason;
	told_in_use = what->in_use;
}

START_TEST(a_free_in_order_destroys_what_is_idle_and_leaves_the_rest)
{
	pindown_object *held, *next;

	setenv("PINDOWN_HELD", "revoke", 1);
	held = must_attach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(consumer, AT(0), KEY(1, 2));
	pindown_subscribe(note_reason, NULL);
	ck_assert_int_eq(watched_free_in_order(AT(0)), FAKE_SUCCESS);
	ck_assert_int_eq(told_reason, PINDOWN_REASON_ORDERED);
	ck_assert_int_eq(told_in_use, 1);
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_int_eq(books.made[1].reason, PINDOWN_REASON_ORDERED);
	ck_assert_int_eq(pindown_object_is_live(held), 0);
	ck_assert_ptr_eq(pindown_object_data(held), &books.made[0]);
	ck_assert_uint_eq(stats().kept_regions, 1);

	watched_alloc(AT(7), MIB(2), FAKE_LINEAR); /* other memory */
	ck_assert_uint_eq(books.destroys, 1);
	watched_alloc(AT(0) + MIB(1), MIB(2), FAKE_LINEAR); /* a part of it */
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_int_eq(books.made[0].reason, PINDOWN_REASON_ORDERED);
	ck_assert_int_eq(books.made[0].in_use, 1);
	ck_assert_ptr_null(pindown_object_data(held));
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
	next = must_attach(consumer, AT(0) + MIB(1), KEY(1, 1));
	ck_assert_ptr_ne(next, held);
	pindown_detach(held);
	pindown_detach(next);
}
END_TEST

START_TEST(an_object_dropped_before_waits_for_nothing)
{
	pindown_object *object;

	setenv("PINDOWN_HELD", "revoke", 1);
	object = must_attach(consumer, AT(0), KEY(1, 1));
	watched_free_in_order(AT(0));
	pindown_detach(object);
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_int_eq(books.made[0].in_use, 0);
	ck_assert_uint_eq(stats().regions, 0);
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_int_eq(pindown_flush(), 1);
}
END_TEST

/* A hold on the region itself is not revoked, then or later. */
START_TEST(a_holder_of_the_region_stays)
{
	pindown_region *region;
	pindown_object *object;

	setenv("PINDOWN_HELD", "revoke", 1);
	object = must_attach(consumer, AT(0), KEY(1, 1));
	region = must_get(AT(0), 1);
	watched_free_in_order(AT(0));
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	ck_assert_uint_eq(books.destroys, 1);
	ck_assert_uint_eq(stats().kept_regions, 1);
	ck_assert_uint_eq(stats().object_kept_regions, 0);
	pindown_put(region);
	ck_assert_uint_eq(stats().kept_regions, 0);
	pindown_detach(object);
}
END_TEST

START_TEST(a_kept_object_stays_when_its_memory_is_handed_out_again)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	watched_free_in_order(AT(0));
	watched_alloc(AT(0), MIB(2), FAKE_LINEAR);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	pindown_detach(object);
	ck_assert_uint_eq(books.destroys, 1);
}
END_TEST

static void free_one_held_in_order(void)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	watched_free_in_order(AT(0));
	pindown_detach(object);
}

START_TEST(warn_tells_the_two_apart)
{
	setenv("PINDOWN_HELD", "warn", 1);
	const char *text = stderr_of(free_one_held_in_order);

	ck_assert_uint_eq(lines_of(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "were freed in stream order by "));
}
END_TEST

static pindown_object *mine;

static void detach_mine(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	pindown_detach(mine);
	mine = NULL;
}

/* A subscriber that detaches in its callback has done so in time. */
START_TEST(a_subscriber_may_detach)
{
	pindown_subscribe(detach_mine, NULL);
	mine = must_attach(consumer, AT(0), KEY(1, 1));
	pdn_guard guard = pdn_end_range(AT(0), 0);
	destroyed(1, PINDOWN_REASON_FREED, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	fake_free(AT(0));
	pdn_ended(guard);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

static void free_two_held(void)
{
	pindown_object *objects[3] = {must_attach(consumer, AT(0), KEY(1, 1)),
				      must_attach(consumer, AT(0), KEY(2, 1)),
				      must_attach(consumer, AT(1), KEY(1, 1))};

	watched_free(AT(0));
	watched_free(AT(1));
	for (unsigned i = 0; i < 3; i++)
		pindown_detach(objects[i]);
	attach_and_detach(consumer, AT(2), KEY(1, 1));
	watched_free(AT(2));
}

START_TEST(warn_says_a_line_for_each_region)
{
	setenv("PINDOWN_HELD", "warn", 1);
	const char *text = stderr_of(free_two_held);

	ck_assert_uint_eq(lines_of(text), 2);
	ck_assert_ptr_nonnull(strstr(text, "2097152 bytes"));
	ck_assert_ptr_nonnull(strstr(text, "holds 2 registrations"));
	ck_assert_ptr_nonnull(strstr(text, "holds 1 registration "));
}
END_TEST

START_TEST(retire_says_what_it_keeps_once)
{
	const char *text = stderr_of(free_two_held);

	ck_assert_uint_eq(lines_of(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "said once"));
	ck_assert_uint_eq(stats().unprotected, 2);
}
END_TEST

START_TEST(keep_says_nothing)
{
	setenv("PINDOWN_HELD", "keep", 1);
	ck_assert_str_eq(stderr_of(free_two_held), "");
}
END_TEST

/* ---- with the owner ----------------------------------------------------------------------- */

START_TEST(the_end_of_an_owner_ends_its_idle_objects)
{
	pindown_object *held;

	for (unsigned pd = 1; pd <= 2; pd++)
		for (unsigned i = 0; i < 3; i++)
			for (unsigned access = 0; access < 2; access++)
				attach_and_detach(consumer, AT(i), KEY(pd, access));
	held = must_attach(consumer, AT(1), KEY(1, 1));
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 1);
	ck_assert_uint_eq(books.destroys, 5);
	for (unsigned i = 0; i < 12; i++) {
		bool gone = books.made[i].owner == 1 && &books.made[i] != made_by(held);

		ck_assert_uint_eq(books.made[i].destroyed, gone);
		ck_assert_int_eq(books.made[i].reason, gone ? PINDOWN_REASON_OWNER : 0);
	}
	pindown_detach(held);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(pindown_end_owner(consumer, 77), 0);
	ck_assert_uint_eq(books.destroys, 6);
	ck_assert_uint_eq(stats().regions, 3); /* the regions stay */
	attach_and_detach(consumer, AT(0), KEY(1, 0));
	ck_assert_uint_eq(books.creates, 13);
}
END_TEST

/* The next owner of that number is another owner. */
START_TEST(a_held_object_of_an_ended_owner_is_not_found)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1)), *next, *untouched = held;
	pindown_region *region = must_get(AT(0), 1);

	ck_assert_int_eq(pindown_end_owner(consumer, 1), 1);
	ck_assert_int_eq(pindown_object_is_live(held), 0);
	/* valid until it is detached */
	ck_assert_ptr_eq(pindown_object_data(held), &books.made[0]);
	ck_assert_int_eq(
		pindown_attach(consumer, AT(0), 1, PINDOWN_GET_CACHED, KEY(1, 1), NULL, &untouched),
		PINDOWN_ERR_NOT_DEVICE);
	ck_assert_ptr_eq(untouched, held);
	next = must_attach(consumer, AT(0), KEY(1, 1));
	ck_assert_ptr_ne(next, held);
	ck_assert_int_eq(
		pindown_attach_region(consumer, region, 0, 0, 0, KEY(1, 1), NULL, &untouched),
		PINDOWN_OK);
	ck_assert_ptr_eq(untouched, next);
	ck_assert_uint_eq(books.creates, 2);
	pindown_put(region);
	pindown_detach(next);
	pindown_detach(next);
	ck_assert_uint_eq(books.destroys, 0);
	pindown_detach(held); /* no later attach can find it: it is destroyed at once */
	destroyed(1, PINDOWN_REASON_OWNER, 0);
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	ck_assert_uint_eq(books.creates, 2);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(pindown_flush(), 1);
}
END_TEST

START_TEST(it_keeps_its_region_as_before)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));

	pindown_end_owner(consumer, 1);
	ck_assert_int_eq(pindown_flush(), 0);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(books.destroys, 0);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 1);
	pindown_detach(held);
	destroyed(1, PINDOWN_REASON_FREED, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

START_TEST(it_is_revoked_as_before)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));

	pindown_end_owner(consumer, 1);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	destroyed(1, PINDOWN_REASON_FREED, 1);
	ck_assert_ptr_null(pindown_object_data(held));
	ck_assert_uint_eq(stats().regions, 0);
	pindown_detach(held);
}
END_TEST

START_TEST(idle_objects_of_an_owner_that_lives_on_can_go)
{
	pindown_object *held;

	attach_and_detach(consumer, AT(0), KEY(1, 2));
	held = must_attach(consumer, AT(0), KEY(1, 1));
	pdn_drop_idle_of(consumer, 1);
	destroyed(1, PINDOWN_REASON_OWNER, 0);
	ck_assert_ptr_eq(must_attach(consumer, AT(0), KEY(1, 1)), held);
	pindown_detach(held);
	pindown_detach(held);
	ck_assert_uint_eq(books.destroys, 1);
	pdn_drop_idle_of(0, 1);
	pdn_drop_idle_of(consumer + 1, 1);
}
END_TEST

START_TEST(kept_objects_count_as_in_use)
{
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	watched_free(AT(0));
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 1);
	ck_assert_uint_eq(books.destroys, 0);
	pindown_detach(object);
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
}
END_TEST

START_TEST(revoked_objects_do_not_count_as_in_use)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	pindown_object *object = must_attach(consumer, AT(0), KEY(1, 1));

	watched_free(AT(0));
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	pindown_detach(object);
}
END_TEST

static void end_own_memory(struct books *b, const struct pindown_object_end *what)
{
	b->in_destroy = NULL;
	ck_assert_int_eq(watched_free(pindown_region_base(what->region)), FAKE_SUCCESS);
}

/* A free in a destroy callback does not wait for that callback. */
START_TEST(destroy_may_free_the_memory)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	attach_and_detach(consumer, AT(0), KEY(1, 2));
	books.in_destroy = end_own_memory;
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
}
END_TEST

static int inner_result, inner_other;

static void attach_while_dying(struct books *b, const struct pindown_object_end *what)
{
	pindown_object *object;

	b->in_destroy = NULL;
	inner_result = pindown_attach(consumer, AT(0), 1, 0, &what->key, NULL, &object);
	inner_other = pindown_attach(consumer, AT(0), 1, 0, KEY(99, 1), NULL, &object);
	if (inner_other == PINDOWN_OK)
		pindown_detach(object);
}

START_TEST(destroy_may_attach_anything_but_itself)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	books.in_destroy = attach_while_dying;
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
	ck_assert_int_eq(inner_result, PINDOWN_ERR_BUSY);
	ck_assert_int_eq(inner_other, PINDOWN_OK);
	ck_assert_uint_eq(books.made[1].destroyed, 0);
}
END_TEST

static int ended_owner;

static void end_owner_in_callback(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	ended_owner = pindown_end_owner(consumer, 1);
	ck_assert_uint_eq(books.destroys, 1);
}

/* The thread that ends the region ends the owner in the middle of that; both must return. */
START_TEST(a_subscriber_may_end_an_owner)
{
	pindown_object *held = must_attach(consumer, AT(0), KEY(1, 1));

	attach_and_detach(consumer, AT(0), KEY(1, 2));
	attach_and_detach(consumer, AT(0), KEY(2, 2));
	ended_owner = -1;
	pindown_subscribe(end_owner_in_callback, NULL);
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_int_eq(ended_owner, 1);
	ck_assert_uint_eq(books.destroys, 2);
	ck_assert_uint_eq(stats().kept_regions, 1);
	pindown_detach(held);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

/* ---- with the consumer -------------------------------------------------------------------- */

START_TEST(removing_a_consumer_destroys_all_its_objects)
{
	pindown_object *live = must_attach(consumer, AT(0), KEY(1, 1));
	pindown_object *kept = must_attach(consumer, AT(1), KEY(1, 1));

	attach_and_detach(consumer, AT(2), KEY(1, 1));
	watched_free(AT(1));
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
	ck_assert_uint_eq(books.destroys, 3);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(books.made[i].reason, PINDOWN_REASON_OWNER);
		ck_assert_int_eq(books.made[i].in_use, i < 2);
	}
	ck_assert_uint_eq(stats().kept_regions, 0); /* nothing else has kept it */
	ck_assert_int_eq(pindown_object_is_live(live), 0);
	ck_assert_ptr_null(pindown_object_data(live));
	ck_assert_int_eq(pindown_flush(), 2); /* revoked objects keep no region either */
	pindown_detach(live);
	pindown_detach(kept);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_ERR_INVALID);

	pindown_object *object = NULL;
	ck_assert_int_eq(pindown_attach(consumer, AT(0), 1, 0, KEY(1, 1), NULL, &object),
			 PINDOWN_ERR_INVALID);
	consumer = books_open(&books); /* the same place in the table, with another id */
	attach_and_detach(consumer, AT(0), KEY(1, 1));
}
END_TEST

START_TEST(there_is_room_for_32_consumers)
{
	int ids[40];

	for (unsigned i = 0; i < 31; i++)
		ids[i] = books_open(&books);
	const struct pindown_consumer more = {
		.name = "one too many", .create = books_create, .destroy = books_destroy};
	ck_assert_int_eq(pindown_consumer_add(&more, sizeof(more)), PINDOWN_ERR_NO_MEMORY);
	ck_assert_int_eq(pindown_consumer_remove(ids[3]), PINDOWN_OK);
	int again = pindown_consumer_add(&more, sizeof(more));
	ck_assert_int_gt(again, 0);
	ck_assert_int_ne(again, ids[3]);
	ck_assert_int_eq(pindown_consumer_remove(ids[3]), PINDOWN_ERR_INVALID);
	for (unsigned i = 0; i < 1000; i++) {
		ck_assert_int_eq(pindown_consumer_remove(again), PINDOWN_OK);
		again = pindown_consumer_add(&more, sizeof(more));
		ck_assert_int_gt(again, 0);
	}
}
END_TEST

static void remove_in_destroy(struct books *b, const struct pindown_object_end *what)
{
	(void)what;
	b->in_destroy = NULL;
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_OK);
}

START_TEST(destroy_may_remove_its_consumer)
{
	for (unsigned i = 0; i < 3; i++)
		for (unsigned pd = 0; pd < 3; pd++)
			attach_and_detach(consumer, AT(i), KEY(pd, 1));
	books.in_destroy = remove_in_destroy;
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
	ck_assert_uint_eq(books.destroys, 9);
	ck_assert_int_eq(pindown_consumer_remove(consumer), PINDOWN_ERR_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: ends of consumer objects");
	TCase *tc = objects_case(suite, "ends");

	tcase_add_test(tc, an_idle_object_is_destroyed_before_the_free);
	tcase_add_test(tc, each_end_of_a_region_ends_its_objects);
	tcase_add_test(tc, a_held_object_keeps_its_region_from_eviction);
	tcase_add_test(tc, keep_is_the_default);
	tcase_add_test(tc, a_kept_region_may_be_held_in_two_ways);
	tcase_add_test(tc, revoke_gives_the_memory_back_at_once);
	tcase_add_test(tc, revoke_leaves_the_holders_of_the_region);
	tcase_add_test(tc, revoke_is_for_memory_that_ends);
	tcase_add_test(tc, a_free_in_order_destroys_what_is_idle_and_leaves_the_rest);
	tcase_add_test(tc, an_object_dropped_before_waits_for_nothing);
	tcase_add_test(tc, a_holder_of_the_region_stays);
	tcase_add_test(tc, a_kept_object_stays_when_its_memory_is_handed_out_again);
	tcase_add_test(tc, warn_tells_the_two_apart);
	tcase_add_test(tc, a_subscriber_may_detach);
	tcase_add_test(tc, warn_says_a_line_for_each_region);
	tcase_add_test(tc, retire_says_what_it_keeps_once);
	tcase_add_test(tc, keep_says_nothing);
	tcase_add_test(tc, the_end_of_an_owner_ends_its_idle_objects);
	tcase_add_test(tc, a_held_object_of_an_ended_owner_is_not_found);
	tcase_add_test(tc, it_keeps_its_region_as_before);
	tcase_add_test(tc, it_is_revoked_as_before);
	tcase_add_test(tc, idle_objects_of_an_owner_that_lives_on_can_go);
	tcase_add_test(tc, kept_objects_count_as_in_use);
	tcase_add_test(tc, revoked_objects_do_not_count_as_in_use);
	tcase_add_test(tc, destroy_may_free_the_memory);
	tcase_add_test(tc, destroy_may_attach_anything_but_itself);
	tcase_add_test(tc, a_subscriber_may_end_an_owner);
	tcase_add_test(tc, removing_a_consumer_destroys_all_its_objects);
	tcase_add_test(tc, there_is_room_for_32_consumers);
	tcase_add_test(tc, destroy_may_remove_its_consumer);
	return run_suite(suite);
}
