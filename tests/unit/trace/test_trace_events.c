// SPDX-License-Identifier: MIT
/* Events that the writer gets are read back as they were: values, times, order, counters. */
#define _GNU_SOURCE
#include "cache/base/thread/lock.h"
#include "tests/unit/support/trace_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/pindown.h"
#include "cache/base/thread/thread.h"

/* ---- what is written ------------------------------------------------------------------------ */

START_TEST(a_call_comes_back)
{
	static const struct {
		uint64_t addr, size, extra;
		int result;
	} calls[] = {
		{0x7f0012345678, 65536, 0, 0},
		{0, 0, 0, 0},
		{UINT64_MAX, UINT64_MAX, UINT64_MAX, 1},
		{0, 1, 0x55, 999},
		{8, 0, 0x55, 65535},
		{8, 0, 0, 65536},
		{8, 9, 10, -1},
		{8, 9, 10, INT32_MIN},
		{8, 9, 10, INT32_MAX},
	};
	const unsigned count = sizeof(calls) / sizeof(calls[0]);

	pdn_trace_open();
	for (unsigned i = 0; i < count; i++) {
		uint64_t begin = pdn_ticks();

		errno = 44;
		pdn_trace_call(i % 3, calls[i].addr, calls[i].size, calls[i].result, begin,
			       pdn_ticks(), calls[i].extra);
		ck_assert_int_eq(errno, 44);
	}
	pdn_trace_close();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, count);
	for (unsigned i = 0; i < count; i++) {
		const struct record *record = &events[i].record;

		ck_assert_int_eq(record->event, PDN_EV_CALL);
		ck_assert_uint_eq(record->call, i % 3);
		ck_assert_uint_eq(record->addr, calls[i].addr);
		ck_assert_uint_eq(record->size, calls[i].size);
		ck_assert_uint_eq(record->extra, calls[i].extra);
		ck_assert_int_eq(record->result, calls[i].result);
		ck_assert_uint_eq(events[i].tid, (uint32_t)syscall(SYS_gettid));
	}
}
END_TEST

START_TEST(a_plain_call_is_small)
{
	struct stat before, after;
	unsigned count = 100000;

	pdn_trace_open();
	call_at(1);
	ck_assert_int_eq(stat(own_name(getpid(), ""), &before), 0);
	for (unsigned i = 0; i < count; i++)
		call_at(0x7f0000000000 + i);
	ck_assert_int_eq(stat(own_name(getpid(), ""), &after), 0);
	/* A chunk may just have been started. */
	ck_assert_int_le(after.st_size - before.st_size, 48ll * count + 4 * 65536);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, count + 1);
}
END_TEST

START_TEST(a_region_comes_back)
{
	const struct pdn_trace_region whole = {.addr = 0x7f0000000200,
					       .size = 100,
					       .pin_addr = 0x7f0000000000,
					       .pin_size = 65536,
					       .buffer_id = 12345678901,
					       .context = 0x5555aaaa0000,
					       .region = 0xfedcba98,
					       .device = 7,
					       .result = PINDOWN_ERR_NO_SPACE,
					       .reason = PINDOWN_REASON_STALE,
					       .flags = PDN_TRACE_IN_USE | PDN_TRACE_VOLATILE |
							PDN_TRACE_MISSED | PDN_TRACE_NO_SYNC |
							PDN_TRACE_FELL_BACK | PDN_TRACE_PCIE},
				      none = {.device = 0, .result = 801};
	const enum pdn_event kinds[] = {PDN_EV_PIN,   PDN_EV_UNPIN,	 PDN_EV_HIT,
					PDN_EV_EVICT, PDN_EV_INVALIDATE, PDN_EV_MAP};

	setenv("PINDOWN_TRACE_EVENTS", "all", 1);
	pdn_trace_open();
	for (unsigned i = 0; i < 6; i++) {
		uint64_t begin = pdn_ticks();

		errno = 44;
		pdn_trace_region(kinds[i], i % 2 ? &none : &whole, begin, pdn_ticks());
		ck_assert_int_eq(errno, 44);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 6);
	for (unsigned i = 0; i < 6; i++) {
		const struct pdn_trace_region *sent = i % 2 ? &none : &whole;
		const struct record *record = &events[i].record;

		ck_assert_int_eq(record->event, kinds[i]);
		ck_assert_uint_eq(record->addr, sent->addr);
		ck_assert_uint_eq(record->size, sent->size);
		ck_assert_uint_eq(record->pin_addr, sent->pin_addr);
		ck_assert_uint_eq(record->pin_size, sent->pin_size);
		ck_assert_uint_eq(record->buffer_id, sent->buffer_id);
		ck_assert_uint_eq(record->context, sent->context);
		ck_assert_uint_eq(record->region, sent->region);
		ck_assert_int_eq(record->device, sent->device);
		ck_assert_int_eq(record->result, sent->result);
		ck_assert_uint_eq(record->reason, sent->reason);
		ck_assert_uint_eq(record->flags, sent->flags);
	}
}
END_TEST

START_TEST(a_note_comes_back)
{
	char name[PDN_ERROR_MAX_TEXT + 50];
	const struct pdn_trace_note whole = {.addr = 0x7f0000000200,
					     .size = 100,
					     .extra = 0x123456789abcdef0,
					     .key = 7,
					     .pin_size = 65536,
					     .buffer_id = 12345678901,
					     .region = 0xfedcba98,
					     .number = 0xffffffff,
					     .origin = 0xfffffffe,
					     .device = 7,
					     .result = -12,
					     .reason = PINDOWN_REASON_OWNER,
					     .flags = PDN_TRACE_IN_USE | PDN_TRACE_REVOKED,
					     .name = name},
				    none = {.device = -1};
	const enum pdn_event kinds[] = {PDN_EV_REGISTER, PDN_EV_DEREGISTER, PDN_EV_HELD,
					PDN_EV_EXPORT,	 PDN_EV_OUTLIVED,   PDN_EV_HOLDER};

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	pdn_trace_open();
	for (unsigned i = 0; i < 6; i++) {
		uint64_t begin = pdn_ticks();

		errno = 44;
		pdn_trace_note(kinds[i], i % 2 ? &none : &whole, begin, pdn_ticks());
		ck_assert_int_eq(errno, 44);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 6);
	for (unsigned i = 0; i < 6; i++) {
		const struct pdn_trace_note *sent = i % 2 ? &none : &whole;
		const struct record *record = &events[i].record;

		ck_assert_int_eq(record->event, kinds[i]);
		ck_assert_uint_eq(record->addr, sent->addr);
		ck_assert_uint_eq(record->size, sent->size);
		ck_assert_uint_eq(record->extra, sent->extra);
		ck_assert_uint_eq(record->key, sent->key);
		ck_assert_uint_eq(record->pin_size, sent->pin_size);
		ck_assert_uint_eq(record->buffer_id, sent->buffer_id);
		ck_assert_uint_eq(record->region, sent->region);
		ck_assert_uint_eq(record->number, sent->number);
		ck_assert_uint_eq(record->origin, sent->origin);
		ck_assert_int_eq(record->device, sent->device);
		ck_assert_int_eq(record->result, sent->result);
		ck_assert_uint_eq(record->reason, sent->reason);
		ck_assert_uint_eq(record->flags, sent->flags);
		ck_assert_uint_eq(record->text_length, i % 2 ? 0 : PDN_ERROR_MAX_TEXT);
	}
}
END_TEST

/* From 0 to 200 bytes of text; more is cut off. No record reaches beyond the end of its chunk. */
START_TEST(errors_come_back)
{
	char text[301];
	char path[] = "t.pdt";
	char *names_of_one[] = {path};
	struct reader *reader;
	struct event event;
	unsigned n = 0;

	memset(text, 'e', 300);
	text[300] = '\0';
	pdn_trace_open();
	for (unsigned length = 0; length <= 300; length++)
		pdn_trace_error(text + 300 - length, length, 0, (int)length);
	reader = reader_open(names_of_one, 1);
	ck_assert(reader && !reader_damaged(reader));
	for (; reader_next(reader, &event); n++) {
		unsigned expected = n < 200 ? n : 200;

		ck_assert_int_eq(event.record.event, PDN_EV_ERROR);
		ck_assert_int_eq(event.record.result, n);
		ck_assert_uint_eq(event.record.text_length, expected);
		ck_assert_int_eq(memcmp(event.record.text, text, expected), 0);
	}
	ck_assert_uint_eq(n, 301);
	reader_close(reader);
}
END_TEST

START_TEST(a_free_that_waits_names_the_thread)
{
	static const char begins[] = "a free has waited two seconds for thread 4711's pin, and ";
	char path[] = "t.pdt";
	char *names_of_one[] = {path};
	struct reader *reader;
	struct event event;
	unsigned n = 0;

	pdn_trace_open();
	for (unsigned i = 0; i < 2; i++)
		pdn_free_waits_on(4711, "pin");
	reader = reader_open(names_of_one, 1);
	ck_assert_ptr_nonnull(reader);
	for (; reader_next(reader, &event); n++) {
		ck_assert_int_eq(event.record.event, PDN_EV_ERROR);
		ck_assert_int_eq(memcmp(event.record.text, begins, sizeof(begins) - 1), 0);
	}
	ck_assert_uint_eq(n, 2);
	reader_close(reader);
}
END_TEST

START_TEST(only_wanted_events)
{
	struct pdn_trace_region what = {.addr = 1};

	setenv("PINDOWN_TRACE_EVENTS", "pin", 1);
	pdn_trace_open();
	ck_assert(pdn_tracing(PDN_EV_PIN) && !pdn_tracing(PDN_EV_CALL) && !pdn_tracing(PDN_EV_HIT));
	call_at(1);
	pdn_trace_region(PDN_EV_UNPIN, &what, 0, pdn_ticks());
	pdn_trace_region(PDN_EV_PIN, &what, 0, pdn_ticks());
	pdn_trace_error("no", 0, 0, 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 1);
	ck_assert_int_eq(events[0].record.event, PDN_EV_PIN);
}
END_TEST

static uint64_t monotonic(void)
{
	return pdn_sys_clock_monotonic();
}

/* Also times that need more than 32 bits, and calls whose begin was not recorded. */
START_TEST(times)
{
	const uint64_t second = pdn_ticks_steady ? 1ull << 32 : 1000000000;
	uint64_t before[3], after[3], begin, end, longest;
	const uint64_t slack = 100000; /* two clocks are read one after the other */

	pdn_trace_open();
	for (unsigned i = 0; i < 3; i++) {
		before[i] = monotonic();
		begin = pdn_ticks();
		usleep(2000); /* the time that the trace must show */
		end = pdn_ticks();
		after[i] = monotonic();
		pdn_trace_call(0, 1, 0, 0, begin, end, 0);
	}
	end = pdn_ticks();
	pdn_trace_call(1, 1, 0, 0, 0, end, 0);
	/* A machine that has just booted knows no time that is so long ago. */
	longest = end > 5 * second ? 5 * second : end / 2;
	pdn_trace_call(1, 2, 0, 0, end - longest, end, 0);
	pdn_trace_call(1, 3, 0, 0, end + 1, end, 0);
	pdn_trace_close();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 6);
	/* The long call began first, even before the trace. */
	ck_assert_uint_eq(events[0].record.addr, 2);
	ck_assert_uint_eq(events[0].record.taken, longest);
	ck_assert_uint_eq(events[0].ts, 0);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t ts = events[i + 1].ts + events[0].file->first_ns;

		ck_assert_uint_ge(ts + slack, before[i]);
		ck_assert_uint_le(ts + events[i + 1].took, after[i] + slack);
		ck_assert_uint_ge(events[i + 1].took + slack, 2000000);
	}
	ck_assert_uint_eq(events[4].took, 0);
	ck_assert_uint_eq(events[5].took, 0);
}
END_TEST

/* The cause comes before its effect, though it is written after it. */
START_TEST(nested_events_are_in_order)
{
	struct pdn_trace_region what = {.addr = 7};
	unsigned count = 30000; /* several chunks, which end at any place */

	pdn_trace_open();
	for (unsigned i = 0; i < count; i++) {
		uint64_t begin = pdn_ticks(), inner;

		while ((inner = pdn_ticks()) == begin)
			;
		what.region = i;
		pdn_trace_region(PDN_EV_INVALIDATE, &what, inner, pdn_ticks());
		pdn_trace_call(1, i, 0, 0, begin, pdn_ticks(), 0);
	}
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2 * count);
	for (unsigned i = 0; i < count; i++) {
		ck_assert_int_eq(events[2 * i].record.event, PDN_EV_CALL);
		ck_assert_uint_eq(events[2 * i].record.addr, i);
		ck_assert_int_eq(events[2 * i + 1].record.event, PDN_EV_INVALIDATE);
		ck_assert_uint_eq(events[2 * i + 1].record.region, i);
	}
}
END_TEST

/*
 * As with a clock of long ticks. The first call ends in the tick in which the others begin, so it
 * has the three before it within it; the second one lasts longer than the tick, and has one.
 */
START_TEST(events_of_one_tick_are_in_order)
{
	static const uint64_t in_order[] = {100, 0, 1, 2, 101, 3};
	struct pdn_trace_region what = {.addr = 7};
	uint64_t tick;

	pdn_trace_open();
	tick = pdn_ticks() + 1000;
	for (; what.region < 3; what.region++)
		pdn_trace_region(PDN_EV_INVALIDATE, &what, tick, tick);
	pdn_trace_call(1, 100, 0, 0, tick - 5, tick, 0);
	pdn_trace_region(PDN_EV_INVALIDATE, &what, tick, tick);
	pdn_trace_call(1, 101, 0, 0, tick, tick + 5, 0);
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 6);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_uint_eq(events[i].record.event == PDN_EV_CALL ? events[i].record.addr
									: events[i].record.region,
				  in_order[i]);
}
END_TEST

/* ---- the end -------------------------------------------------------------------------------- */

static void *count_and_wait(void *arg)
{
	pthread_barrier_t *barrier = arg;

	pdn_count(&pdn_self()->counters->hits);
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	pdn_count(&pdn_self()->counters->hits);
	return NULL;
}

/* Threads from before the trace count in their own counters, which are added at the end. */
START_TEST(closing)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	char name[64];

	strcpy(name, own_name(getpid(), ""));
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, count_and_wait, &barrier);
	pthread_barrier_wait(&barrier);
	pdn_trace_open();
	call_at(1);
	ck_assert_uint_eq(read_header(name).end.ticks, 0);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	errno = 33;
	pdn_trace_close();
	ck_assert_int_eq(errno, 33);
	ck_assert_uint_ne(read_header(name).end.ticks, 0);
	/* Later events are written, and closing again changes nothing. */
	call_at(2);
	pdn_trace_close();
	read_back("t.pdt");
	ck_assert_uint_eq(event_count, 2);
	ck_assert_uint_eq(counters.hits, 2);
}
END_TEST

/* Also for a thread that has made hits before the trace, the next hit is not left out. */
START_TEST(the_next_hit_of_each_thread_is_seen)
{
	pdn_self()->until_look = 4000;
	pdn_trace_open();
	ck_assert_int_eq(pdn_self()->until_look, 0);
	pdn_trace_close();
}
END_TEST

/* ---- all ------------------------------------------------------------------------------------ */

int main(void)
{
	Suite *suite = suite_create("trace events");

	add_case(suite, "events",
		 (const TTest *const[]){a_call_comes_back, a_plain_call_is_small,
					a_region_comes_back, a_note_comes_back, errors_come_back,
					a_free_that_waits_names_the_thread, only_wanted_events,
					times, nested_events_are_in_order,
					events_of_one_tick_are_in_order, closing,
					the_next_hit_of_each_thread_is_seen, NULL});
	return run_suite(suite);
}
