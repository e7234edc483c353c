/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

static void unmap(char *start, char *end)
{
	if (end > start)
		munmap(start, (size_t)(end - start));
}

void *pd_reserve(size_t bytes)
{
	int saved = errno;
	size_t more = bytes + PD_HUGE_PAGE;
	char *all = mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *start = NULL;

	if (all != MAP_FAILED) {
		start = all + (-(uintptr_t)all & (PD_HUGE_PAGE - 1));
		unmap(all, start);
		unmap(start + bytes, all + more);
		madvise(start, bytes, MADV_DONTDUMP);
	}
	errno = saved;
	return start;
}

bool pd_make_usable(void *start, size_t bytes)
{
	int saved = errno;
	bool ok = mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0;

	errno = saved;
	return ok;
}

void pd_prefer_huge(void *start, size_t bytes)
{
	int saved = errno;

	madvise(start, bytes, MADV_HUGEPAGE);
	errno = saved;
}

void pd_populate(char *start, size_t bytes)
{
	int saved = errno;
	size_t before = (uintptr_t)start & 4095;

	madvise(start - before, bytes + before, MADV_POPULATE_WRITE);
	errno = saved;
}
