/* SPDX-License-Identifier: MIT */
#include "tests/unit/support/api_test.h"

struct books wide;

int open_wide(uint64_t rights, uint64_t flags)
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

int attach_nowait(uint64_t addr, uint64_t owner)
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

void pin_half_a_segment(void)
{
	fake_reserved = SEGMENT;
	fake_reserved_size = 2 * PIECE;
	for (unsigned i = 0; i < 2; i++)
		watched_alloc(SEGMENT + i * PIECE, PIECE, FAKE_VMM);
	for (unsigned i = 0; i < 3; i++) /* a thread's first hit is looked at more closely */
		get_and_put(SEGMENT, 1);
}

struct pindown_consumer_stats stats_of(int id)
{
	struct pindown_consumer_stats of;

	ck_assert_int_eq(pindown_consumer_stats(id, &of, sizeof(of)), PINDOWN_OK);
	return of;
}

int see_region(const struct pindown_region_info *info, void *arg)
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

int see_object(const struct pindown_object_info *info, void *arg)
{
	struct visits *visits = arg;

	ck_assert_int_lt(visits->count, 8);
	visits->objects[visits->count++] = *info;
	if (visits->act)
		visits->act();
	return visits->count == visits->stop_at;
}
