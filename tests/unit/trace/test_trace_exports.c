/* SPDX-License-Identifier: MIT */
/* dma-bufs of the program itself: what the trace says of them when their memory ends. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/hook_events.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/dmabuf/foreign_table.h"
#include "cache/base/thread/lock.h"
#include "cache/pindown.h"
#include "tests/unit/support/trace_test.h"

#define BASE 0x7f0000000000ull
#define SIZE 65536ull

/* There is no driver that describes memory, so the exported range counts as the allocation. */
static void export_at(uint64_t addr, int fd)
{
	pdn_exported(addr, SIZE, 0, fd, pdn_export_begins(addr, SIZE), __builtin_return_address(0));
}

static void end(uint64_t addr, uint64_t length)
{
	pdn_ended(pdn_end_range(addr, length));
}

/* A file of its own, as each dma-buf is. */
static int a_buffer(void)
{
	int fd = (int)memfd_create("buffer", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static bool any_remembered(void)
{
	return pdn_exports_any();
}

static void outlived(unsigned count, uint64_t addr, unsigned flags)
{
	read_back("t.pdt");
	ck_assert_uint_eq(count_events(PDN_EV_OUTLIVED), count);
	if (!count)
		return;
	ck_assert_int_eq(events[event_count - 1].record.event, PDN_EV_OUTLIVED);
	ck_assert_uint_eq(events[event_count - 1].record.addr, addr);
	ck_assert_uint_eq(events[event_count - 1].record.flags, flags);
	ck_assert_uint_eq(events[event_count - 1].record.reason, PINDOWN_REASON_FREED);
}

START_TEST(without_a_trace_it_is_remembered_too)
{
	unsetenv("PINDOWN_TRACE");
	pdn_trace_open();
	end(BASE, 0);
	export_at(BASE, a_buffer());
	ck_assert(any_remembered());
	end(BASE, 0);
	ck_assert(!any_remembered());
}
END_TEST

START_TEST(where_pindown_is_off_it_is_not)
{
	unsetenv("PINDOWN_TRACE");
	setenv("PINDOWN", "0", 1);
	pdn_trace_open();
	export_at(BASE, a_buffer());
	ck_assert(!any_remembered());
}
END_TEST

START_TEST(an_open_one_is_put_down_once)
{
	pdn_trace_open();
	export_at(BASE, a_buffer());
	ck_assert(any_remembered());
	end(BASE + SIZE, 0); /* a neighbour */
	end(BASE + SIZE, SIZE);
	ck_assert(any_remembered());
	end(BASE, 0);
	ck_assert(!any_remembered());
	end(BASE, 0); /* other memory at the same address */
	outlived(1, BASE, PDN_TRACE_IN_USE);
}
END_TEST

START_TEST(a_closed_one_is_not)
{
	int fd = a_buffer();

	pdn_trace_open();
	export_at(BASE, fd);
	close(fd);
	ck_assert_int_eq(a_buffer(), fd); /* another file, the same number */
	end(BASE, 0);
	ck_assert(!any_remembered());
	outlived(0, 0, 0);
}
END_TEST

START_TEST(an_import_counts_until_it_lets_go)
{
	int fd = a_buffer(), other = a_buffer(), by[2];

	pdn_trace_open();
	pdn_export_imported(fd, &by[0], NULL); /* a descriptor that is not known */
	export_at(BASE, fd);
	export_at(BASE + SIZE, other);
	pdn_export_imported(fd, &by[0], NULL);
	pdn_export_imported(other, &by[1], NULL);
	close(fd);
	close(other);
	pdn_export_let_go(&by[1]);
	pdn_export_let_go(&by[1]);
	end(BASE + SIZE, 0);
	end(BASE, 0);
	outlived(1, BASE, PDN_TRACE_IMPORTED);
	pdn_export_let_go(&by[0]);
}
END_TEST

/* As of registrations in the cache, each one that is still there. */
START_TEST(each_import_is_named_with_its_caller)
{
	int fd = a_buffer(), by[3];
	unsigned with = 0, named = 0;

	pdn_trace_open();
	export_at(BASE, fd);
	pdn_export_imported(fd, &by[0], __builtin_return_address(0));
	pdn_export_imported(fd, &by[1], __builtin_return_address(0));
	pdn_export_imported(fd, &by[2], NULL);
	pdn_export_let_go(&by[1]);
	close(fd);
	end(BASE, 0);
	outlived(1, BASE, PDN_TRACE_IMPORTED);
	for (unsigned i = 0; i < event_count; i++) {
		const struct record *record = &events[i].record;

		if (record->event != PDN_EV_HOLDER)
			continue;
		named++;
		with += record->origin != 0;
		ck_assert_uint_eq(record->addr, BASE);
		ck_assert_uint_eq(record->size, SIZE);
		ck_assert_uint_eq(record->number, 1);
		ck_assert_uint_eq(record->flags, PDN_TRACE_IMPORTED);
	}
	ck_assert_uint_eq(named, 2);
	ck_assert_uint_eq(with, 1);
}
END_TEST

/* Also where no other event of the trace has one. */
START_TEST(the_free_of_an_import_has_a_stack)
{
	int fd = a_buffer(), by;

	setenv("PINDOWN_TRACE_STACKS", "0", 1);
	pdn_trace_open();
	export_at(BASE, fd);
	pdn_export_imported(fd, &by, NULL);
	close(fd);
	end(BASE, 0);
	outlived(1, BASE, PDN_TRACE_IMPORTED);
	ck_assert_uint_eq(count_events(PDN_EV_HOLDER), 1);
	for (unsigned i = 0; i < event_count; i++)
		if (events[i].record.event == PDN_EV_HOLDER)
			ck_assert_uint_ne(events[i].record.stack, 0);
}
END_TEST

START_TEST(both_are_said)
{
	int fd = a_buffer(), by;

	pdn_trace_open();
	export_at(BASE, fd);
	pdn_export_imported(fd, &by, NULL);
	end(BASE - SIZE, 4 * SIZE);
	outlived(1, BASE, PDN_TRACE_IN_USE | PDN_TRACE_IMPORTED);
}
END_TEST

START_TEST(many_at_once)
{
	int fd = a_buffer();

	pdn_trace_open();
	for (unsigned i = 0; i < 100; i++)
		export_at(BASE + i * SIZE, fd);
	end(BASE, 100 * SIZE);
	ck_assert(!any_remembered());
	read_back("t.pdt");
	ck_assert_uint_eq(count_events(PDN_EV_EXPORT), 100);
	ck_assert_uint_eq(count_events(PDN_EV_OUTLIVED), 100);
}
END_TEST

/* Closed ones make room; there is no limit for open ones. */
START_TEST(ten_thousand_of_them)
{
	int fd = a_buffer(), open_one = a_buffer();

	pdn_trace_open();
	export_at(BASE, open_one);
	for (unsigned i = 1; i < 4096; i++)
		export_at(BASE + i * SIZE, fd);
	close(fd);
	export_at(BASE + 5000 * SIZE, open_one);
	end(BASE, 0);
	end(BASE + 5000 * SIZE, 0);
	outlived(2, BASE + 5000 * SIZE, PDN_TRACE_IN_USE);
	for (unsigned i = 0; i < 10000; i++)
		export_at(BASE + i * SIZE, open_one);
	end(BASE + 9999 * SIZE, 0);
	end(BASE, 9999 * SIZE);
	ck_assert(!any_remembered());
	read_back("t.pdt");
	ck_assert_uint_eq(count_events(PDN_EV_ERROR), 0);
	ck_assert_uint_eq(count_events(PDN_EV_OUTLIVED), 2 + 10000);
}
END_TEST

START_TEST(a_child_remembers_none)
{
	int by, status;

	pdn_trace_open();
	export_at(BASE, a_buffer());
	pid_t child = fork();
	if (child == 0) {
		bool none;

		pdn_fork_child();
		none = !any_remembered();
		pdn_export_let_go(&by);
		end(BASE, 0);
		_exit(none ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert(any_remembered());
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exports");

	add_case(suite, "exports",
		 (const TTest *const[]){
			 without_a_trace_it_is_remembered_too, where_pindown_is_off_it_is_not,
			 an_open_one_is_put_down_once, a_closed_one_is_not,
			 an_import_counts_until_it_lets_go, each_import_is_named_with_its_caller,
			 the_free_of_an_import_has_a_stack, both_are_said, many_at_once,
			 ten_thousand_of_them, a_child_remembers_none, NULL});
	return run_suite(suite);
}
