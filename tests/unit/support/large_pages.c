/* SPDX-License-Identifier: MIT */
/*
 * A kernel with pages of PDN_CPU_PAGE, in place of the C library's calls (linked with --wrap): a
 * range must begin with a page, or the test ends here, and what is done is done to whole pages.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/base/address_space.h"

void *__real_mmap(void *start, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *start, size_t length);
int __real_mprotect(void *start, size_t length, int protection);
int __real_madvise(void *start, size_t length, int advice);
void *__wrap_mmap(void *start, size_t length, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *start, size_t length);
int __wrap_mprotect(void *start, size_t length, int protection);
int __wrap_madvise(void *start, size_t length, int advice);

static size_t whole(size_t bytes)
{
	return (bytes + pdn_page_size() - 1) & -pdn_page_size();
}

static void must_begin_with_a_page(const char *call, const void *start, size_t length)
{
	if ((uintptr_t)start % pdn_page_size() == 0)
		return;
	fprintf(stderr, "%s(%p, %zu): not the begin of a page of %zu bytes\n", call, start, length,
		pdn_page_size());
	abort();
}

void *__wrap_mmap(void *start, size_t length, int protection, int flags, int fd, off_t offset)
{
	size_t more = whole(length) + pdn_page_size(), before;
	char *all;

	if (start || fd >= 0) {
		must_begin_with_a_page("mmap", start, length);
		return __real_mmap(start, length, protection, flags, fd, offset);
	}
	all = __real_mmap(NULL, more, protection, flags, -1, 0);
	if (all == MAP_FAILED)
		return all;
	before = -(uintptr_t)all & (pdn_page_size() - 1);
	if (before)
		__real_munmap(all, before);
	__real_munmap(all + before + whole(length), pdn_page_size() - before);
	return all + before;
}

int __wrap_munmap(void *start, size_t length)
{
	must_begin_with_a_page("munmap", start, length);
	return __real_munmap(start, whole(length));
}

int __wrap_mprotect(void *start, size_t length, int protection)
{
	must_begin_with_a_page("mprotect", start, length);
	return __real_mprotect(start, whole(length), protection);
}

int __wrap_madvise(void *start, size_t length, int advice)
{
	must_begin_with_a_page("madvise", start, length);
	return __real_madvise(start, whole(length), advice);
}
