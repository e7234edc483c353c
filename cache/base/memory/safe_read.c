/* SPDX-License-Identifier: MIT */
/* Reading memory that may not be there. */
#define _GNU_SOURCE
#include "cache/base/memory/safe_read.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/base/process/system.h"

enum { PAGE = 4096 /* or a part of one */ };

/*
 * The kernel reads the new mask before it looks at the operation, which is invalid: a bad address
 * is EFAULT, a good one EINVAL.
 */
bool pdn_is_readable(uint64_t address)
{
	address &= ~(uint64_t)(PAGE - 1);
	return pdn_sys(SYS_rt_sigprocmask, ~0, address, NULL, 8) == -EINVAL;
}

/*
 * For when a system call filter forbids the better one, or when that one has answered EFAULT for a
 * page of a file that had not been read yet. Another thread may unmap it in between.
 */
__attribute__((no_sanitize("address"))) static bool copy_by_page(char *to, uint64_t from,
								 size_t bytes)
{
	const volatile char *at = (const char *)(uintptr_t)from;

	for (uint64_t page = from & ~(uint64_t)(PAGE - 1); page < from + bytes; page += PAGE)
		if (!pdn_is_readable(page))
			return false;
	for (size_t i = 0; i < bytes; i++)
		to[i] = at[i];
	return true;
}

bool pdn_safe_read(void *to, uint64_t from, size_t bytes)
{
	struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
	long copied;

	if (from + bytes < from)
		return false;
	copied = pdn_sys(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0);
	return copied == (long)bytes || copy_by_page(to, from, bytes);
}
