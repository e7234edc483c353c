/* SPDX-License-Identifier: MIT */
/* Exports of memory as files of the test's own: see exports_test.h. */
#define _GNU_SOURCE
#include "tests/unit/support/exports_test.h"

#include <errno.h>
#include <sys/mman.h>

#include "cache/dmabuf/foreign_table.h"

int a_file(void)
{
	int fd = memfd_create("buffer", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

void export_as(int fd, uint64_t addr, uint64_t size)
{
	errno = 4321;
	pdn_exported(addr, size, 0, fd, pdn_export_begins(addr, size), __builtin_return_address(0));
	ck_assert_int_eq(errno, 4321);
}

int export_new(uint64_t addr)
{
	int fd = a_file();

	fake_alloc(addr, SIZE, FAKE_LINEAR);
	export_as(fd, addr, SIZE);
	return fd;
}

bool is_known(int fd, uint64_t offset, uint64_t length)
{
	struct pdn_exported part;
	bool known;

	errno = 4321;
	known = pdn_export_find(fd, offset, length, &part);
	ck_assert_int_eq(errno, 4321);
	return known;
}

void assert_stands_for(int fd, uint64_t addr, uint64_t base)
{
	struct pdn_exported part;

	ck_assert(pdn_export_find(fd, 0, 1, &part));
	ck_assert_uint_eq(part.addr, addr);
	ck_assert_uint_eq(part.memory.base, base);
	ck_assert_uint_eq(part.buffer_id, fake_id(base));
	ck_assert(pdn_export_is_still_there(&part));
}

bool any_remembered(void)
{
	return pdn_exports_any();
}
