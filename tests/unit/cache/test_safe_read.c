/* SPDX-License-Identifier: MIT */
/*
 * Memory that may not be there is read, whether the system call for it is allowed or a system call
 * filter refuses it, as containers' do.
 */
#define _GNU_SOURCE
#include "cache/base/memory/safe_read.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/support/refuse.h"
#include "tests/unit/support/suite.h"

#define PAGES 4

static char *memory;
static size_t page;

static uint64_t at(size_t offset)
{
	return (uint64_t)(uintptr_t)memory + offset;
}

/* Four pages of different bytes; the third is not there. */
static void begin(void)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	for (size_t i = 0; i < PAGES * page; i++)
		memory[i] = (char)(i * 7 + i / page);
	ck_assert_int_eq(munmap(memory + 2 * page, page), 0);
}

static void end(void)
{
	munmap(memory, PAGES * page);
}

static void must_read(size_t offset, size_t bytes)
{
	static char to[1 << 18];

	ck_assert_uint_le(bytes, sizeof(to) - 1);
	memset(to, 0x5a, sizeof(to));
	ck_assert(pdn_safe_read(to, at(offset), bytes));
	ck_assert_int_eq(memcmp(to, memory + offset, bytes), 0);
	ck_assert_int_eq(to[bytes], 0x5a);
}

static void must_not_read(uint64_t from, size_t bytes)
{
	static char to[1 << 18];

	ck_assert(!pdn_safe_read(to, from, bytes));
}

static void read_all(void)
{
	must_read(0, 1);
	must_read(5, 0);
	must_read(5, 100);
	must_read(0, 2 * page);
	must_read(page - 1, 2);
	must_read(page + 3, page - 3);
	must_read(3 * page, page);
	must_not_read(at(2 * page), 1);
	must_not_read(at(2 * page - 1), 2);
	must_not_read(at(page), page + 1);
	must_not_read(at(0), 4 * page);
	must_not_read(at(3 * page - 1), 2);
	must_not_read(0, 8);
	must_not_read(UINT64_MAX - 3, 16);
}

START_TEST(by_the_system_call)
{
	read_all();
}
END_TEST

START_TEST(where_that_is_refused)
{
	if (!refuse_system_call(SYS_process_vm_readv, EPERM)) {
		skip_test("no seccomp filter can be installed here");
		return;
	}
	read_all();
}
END_TEST

START_TEST(a_page_can_be_read_or_not)
{
	ck_assert(pdn_is_readable(at(0)));
	ck_assert(pdn_is_readable(at(page - 1)));
	ck_assert(pdn_is_readable(at(2 * page - 1)));
	ck_assert(!pdn_is_readable(at(2 * page)));
	ck_assert(!pdn_is_readable(at(3 * page - 1)));
	ck_assert(pdn_is_readable(at(3 * page)));
	ck_assert_int_eq(mprotect(memory, page, PROT_NONE), 0);
	ck_assert(!pdn_is_readable(at(0)));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory that may not be there");
	TCase *tc = suite_case(suite, "reading", begin, end);

	tcase_add_test(tc, by_the_system_call);
	tcase_add_test(tc, where_that_is_refused);
	tcase_add_test(tc, a_page_can_be_read_or_not);
	return run_suite(suite);
}
