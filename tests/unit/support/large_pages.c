/* SPDX-License-Identifier: MIT */
/*
 * A kernel with pages of PDN_CPU_PAGE: a range must begin with a page, or the test ends here, and
 * what is done is done to whole pages.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "cache/base/memory/address_space.h"
#include "tests/unit/support/syscalls.h"

static size_t whole(size_t bytes)
{
	return (bytes + pdn_page_size() - 1) & -pdn_page_size();
}

static void must_begin_with_a_page(long number, long start, long length)
{
	if ((size_t)start % pdn_page_size() == 0)
		return;
	fprintf(stderr, "system call %ld(%#lx, %ld): not the begin of a page of %zu bytes\n",
		number, start, length, pdn_page_size());
	abort();
}

static void unmap(long start, size_t length)
{
	__real_pdn_system_call(SYS_munmap, start, (long)length, 0, 0, 0, 0);
}

static long map_anywhere(size_t length, long protection, long flags)
{
	size_t more = whole(length) + pdn_page_size(), before;
	long all = __real_pdn_system_call(SYS_mmap, 0, (long)more, protection, flags, -1, 0);

	if (all < 0)
		return all;
	before = -(size_t)all & (pdn_page_size() - 1);
	if (before)
		unmap(all, before);
	unmap(all + (long)(before + whole(length)), pdn_page_size() - before);
	return all + (long)before;
}

bool play_syscall(long number, const long args[6], long *result)
{
	if (number == SYS_mmap && !args[0] && args[4] < 0) {
		*result = map_anywhere((size_t)args[1], args[2], args[3]);
		return true;
	}
	if (number != SYS_mmap && number != SYS_munmap && number != SYS_mprotect &&
	    number != SYS_madvise)
		return false;
	must_begin_with_a_page(number, args[0], args[1]);
	*result = __real_pdn_system_call(number, args[0], (long)whole((size_t)args[1]), args[2],
					 args[3], args[4], args[5]);
	return true;
}
