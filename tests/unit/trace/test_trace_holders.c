/* SPDX-License-Identifier: MIT */
/* Registrations that the program has when their memory ends: the trace names each of them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/hook_events.h"
#include "tests/unit/support/objects_test.h"
#include "tests/unit/support/trace_test.h"

#define MOST 200

/* The registrations of the program, as a consumer that knows them would find them. */
static struct pdn_holder registrations[MOST];
static unsigned registered;

static void find_holders(const struct pdn_holder_search *search)
{
	for (unsigned i = 0; i < registered; i++)
		if (search->wants(search->arg, registrations[i].object))
			search->found(search->arg, &registrations[i]);
}

/* By this line of code. */
static __attribute__((noinline)) void hold(unsigned domain, uint64_t addr, uint64_t size)
{
	ck_assert_uint_lt(registered, MOST);
	registrations[registered++] =
		(struct pdn_holder){.object = must_attach(consumer, addr, KEY(domain, 1)),
				    .addr = addr,
				    .size = size,
				    .caller = (uintptr_t)__builtin_return_address(0)};
}

static void let_go_of_all(void)
{
	while (registered)
		pindown_detach((pindown_object *)(uintptr_t)registrations[--registered].object);
}

static void begin(void)
{
	set_up();
	open_books();
	pdn_consumer_holders(consumer, find_holders, NULL);
	registered = 0;
	pdn_trace_open();
}

static void begin_revoking(void)
{
	setenv("PINDOWN_HELD", "revoke", 1);
	begin();
}

static void begin_warning(void)
{
	setenv("PINDOWN_HELD", "warn", 1);
	begin();
}

static void begin_debugging(void)
{
	setenv("PINDOWN_DEBUG", "1", 1);
	begin();
}

static void begin_without(void)
{
	setenv("PINDOWN_TRACE_EVENTS", "call,held", 1);
	begin();
}

static void finish(void)
{
	let_go_of_all();
	close_books();
	tear_down();
}

static void end(uint64_t addr)
{
	watched_free(addr);
	read_back("t.pdt");
}

/* The n-th holder in the trace. */
static const struct record *holder(unsigned n)
{
	for (unsigned i = 0; i < event_count; i++)
		if (events[i].record.event == PDN_EV_HOLDER && n-- == 0)
			return &events[i].record;
	ck_abort_msg("no such event");
}

/*
 * A wider region replaces the one that has the registration. Nothing has ended by that, so nothing
 * is named before the memory ends.
 */
START_TEST(holders_on_a_replaced_region_are_named_at_its_end)
{
	const uint64_t segment = BASE + GIB(1), piece = MIB(2);
	unsigned replaced = 0;

	fake_reserved = segment;
	fake_reserved_size = 4 * piece;
	for (unsigned n = 0; n < 4; n++)
		watched_alloc(segment + n * piece, piece, FAKE_VMM);
	hold(1, segment, 4096);
	get_and_put(segment + piece - 1, 2);
	get_and_put(segment + 2 * piece, 1);
	for (unsigned n = 4; n-- > 0;)
		watched_unmap(segment + n * piece, piece);
	read_back("t.pdt");
	ck_assert_uint_eq(count_events(PDN_EV_HELD), 1);
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 1);
	ck_assert_uint_eq(holder(0)->addr, segment);
	ck_assert_uint_eq(holder(0)->reason, PINDOWN_REASON_FREED);
	for (unsigned i = 0; i < event_count; i++)
		if (events[i].record.event == PDN_EV_EVICT) {
			ck_assert_uint_eq(events[i].record.flags,
					  PDN_TRACE_IN_USE | PDN_TRACE_REPLACED);
			replaced++;
		}
	ck_assert_uint_eq(replaced, 1);
}
END_TEST

START_TEST(each_is_named_when_it_is_kept)
{
	hold(1, AT(0), 4096);
	hold(1, AT(0) + 8192, 100); /* the same object */
	hold(2, AT(0), MIB(2));
	hold(1, AT(1), 4096);
	end(AT(0));
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 3);
	for (unsigned i = 0; i < 3; i++) {
		const struct record *record = holder(i);

		ck_assert_uint_eq(record->addr, registrations[i].addr);
		ck_assert_uint_eq(record->size, registrations[i].size);
		ck_assert_uint_eq(record->extra, i < 2 ? 1 : 2); /* the key's owner */
		ck_assert_uint_eq(record->flags, 0);
		ck_assert_uint_eq(record->reason, PINDOWN_REASON_FREED);
		ck_assert_uint_ne(record->origin, 0);
		ck_assert_uint_ne(record->stack, 0);
		ck_assert_uint_ne(record->stack, record->origin);
	}
}
END_TEST

START_TEST(each_is_named_before_it_is_revoked)
{
	hold(1, AT(0), 4096);
	hold(1, AT(0) + 8192, 100);
	end(AT(0));
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 2);
	ck_assert_uint_eq(holder(0)->flags, PDN_TRACE_REVOKED);
	ck_assert_uint_eq(holder(1)->addr, AT(0) + 8192);
	ck_assert_uint_eq(count_events(PDN_EV_DEREGISTER), 1);
	/* In the order of the trace, too. */
	for (unsigned i = 0; events[i].record.event != PDN_EV_DEREGISTER; i++)
		ck_assert_uint_lt(i, event_count);
}
END_TEST

START_TEST(those_that_are_not_held_are_not_named)
{
	hold(1, AT(0), 4096);
	let_go_of_all();
	end(AT(0));
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 0);
	ck_assert_uint_eq(count_events(PDN_EV_DEREGISTER), 1);
}
END_TEST

/* As another thread may do between the question and the answer. */
static void find_one_that_lets_go(const struct pdn_holder_search *search)
{
	const struct pdn_holder *holder = &registrations[0];

	if (!search->wants(search->arg, holder->object))
		return;
	pindown_detach((pindown_object *)(uintptr_t)holder->object);
	registered = 0;
	pindown_object_data(holder->object);
	search->found(search->arg, holder);
}

static void free_it(void)
{
	watched_free(AT(0));
}

/* PINDOWN_DEBUG reports uses after the last detach; this one is not the program's. */
START_TEST(letting_go_meanwhile_is_no_misuse)
{
	const char *said;

	pdn_consumer_holders(consumer, find_one_that_lets_go, NULL);
	hold(1, AT(0), 4096);
	said = stderr_of(free_it);
	ck_assert_str_eq(said, "");
	ck_assert_uint_eq(registered, 0);
	read_back("t.pdt");
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 1);
	ck_assert_uint_eq(count_events(PDN_EV_DEREGISTER), 1);
}
END_TEST

/* The memory of a flushed region is still the program's. */
START_TEST(a_flush_names_none)
{
	hold(1, AT(0), 4096);
	pindown_flush();
	read_back("t.pdt");
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 0);
}
END_TEST

START_TEST(without_the_event_in_the_trace_nothing_is_searched)
{
	hold(1, AT(0), 4096);
	end(AT(0));
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 0);
	ck_assert_uint_eq(count_events(PDN_EV_HELD), 1);
	for (unsigned i = 0; i < event_count; i++)
		if (events[i].record.event == PDN_EV_HELD) {
			ck_assert_uint_eq(events[i].record.text_length, strlen("books"));
			ck_assert_uint_eq(events[i].record.extra, 1);
		}
}
END_TEST

/* An object is named by itself where its consumer can't say who holds it. */
START_TEST(a_consumer_that_does_not_know)
{
	pindown_object *unknown = must_attach(consumer, AT(0), KEY(1, 1));

	pdn_consumer_holders(consumer, _i ? find_holders : NULL, NULL);
	hold(1, AT(1), 4096);
	end(AT(0));
	pindown_detach(unknown);
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 1);
	ck_assert_uint_eq(holder(0)->addr, AT(0));
	ck_assert_uint_eq(holder(0)->size, MIB(2));
	ck_assert_uint_eq(holder(0)->origin, 0);
	ck_assert_uint_ne(holder(0)->stack, 0);
}
END_TEST

/* More objects on one region than are looked for at a time, some of them idle. */
START_TEST(many_on_one_region)
{
	bool seen[MOST] = {false};

	for (unsigned i = 0; i < 3 * 64 + 5; i++) {
		hold(i + 1, AT(0), 100 + i);
		if (i % 10 == 0)
			pindown_detach(
				(pindown_object *)(uintptr_t)registrations[--registered].object);
	}
	end(AT(0));
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), registered);
	for (unsigned i = 0; i < registered; i++) {
		unsigned which = (unsigned)holder(i)->size - 100;

		ck_assert_uint_lt(which, MOST);
		ck_assert(!seen[which] && which % 10 != 0);
		seen[which] = true;
	}
}
END_TEST

/*
 * The warning names the first registration whose code is known: not the next ones', and not what is
 * no address of code.
 */
START_TEST(a_warning_names_the_first_that_is_known)
{
	const char *said, *made;

	hold(1, AT(0), 4096);
	hold(2, AT(0), 4096);
	hold(3, AT(0), 4096);
	registrations[0].caller = 5;
	registrations[1].caller = (uintptr_t)free_it;
	registrations[2].caller = (uintptr_t)strtoull; /* in the C library */
	said = stderr_of(free_it);
	made = strstr(said, "one made by ");
	ck_assert_msg(made && strstr(made, "test_trace_holders"), "%s", said);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("holders");
	TCase *tc = suite_case(suite, "holders", begin, finish);

	tcase_add_test(tc, holders_on_a_replaced_region_are_named_at_its_end);
	tcase_add_test(tc, each_is_named_when_it_is_kept);
	tcase_add_test(tc, those_that_are_not_held_are_not_named);
	tcase_add_test(tc, a_flush_names_none);
	tcase_add_loop_test(tc, a_consumer_that_does_not_know, 0, 2);
	tcase_add_test(tc, many_on_one_region);
	tc = suite_case(suite, "revoking", begin_revoking, finish);
	tcase_add_test(tc, each_is_named_before_it_is_revoked);
	tc = suite_case(suite, "warning", begin_warning, finish);
	tcase_add_test(tc, a_warning_names_the_first_that_is_known);
	tc = suite_case(suite, "debugging", begin_debugging, finish);
	tcase_add_test(tc, letting_go_meanwhile_is_no_misuse);
	tc = suite_case(suite, "without", begin_without, finish);
	tcase_add_test(tc, without_the_event_in_the_trace_nothing_is_searched);
	return run_suite(suite);
}
