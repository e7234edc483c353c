/* SPDX-License-Identifier: MIT */
/* Address space for tables, and its memory, from the system. */
#define _GNU_SOURCE
#include "cache/base/memory/address_space.h"

#include <errno.h>

#include "cache/base/process/system.h"

/* The process's size in bytes, the first number in this file; 0: it can't be read. */
static uint64_t size_now(void)
{
	int fd = pdn_sys_open("/proc/self/statm", O_RDONLY);
	char text[32];
	uint64_t pages = 0;
	long length = fd < 0 ? 0 : pdn_sys(SYS_read, fd, text, sizeof(text));

	for (long i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++)
		pages = pages * 10 + (uint64_t)(text[i] - '0');
	if (fd >= 0)
		pdn_sys(SYS_close, fd);
	return pages * pdn_page_size();
}

/* Where the size is not known, half of the limit is taken for it. */
uint64_t pdn_address_space_share(void)
{
	uint64_t limit = pdn_sys_limit(RLIMIT_AS), size;

	if (limit == RLIM_INFINITY)
		return UINT64_MAX;
	size = size_now();
	if (!size)
		size = limit / 2;
	return size < limit ? (limit - size) / 16 : 0;
}

static void unmap(char *start, char *end)
{
	if (end > start)
		pdn_unreserve(start, (size_t)(end - start));
}

/* The part of a page that lies before an address. */
static size_t before(const void *address)
{
	return (uintptr_t)address & (pdn_page_size() - 1);
}

/* An address, or a negative errno. */
static long map_somewhere(size_t bytes, int protection)
{
	return pdn_sys(SYS_mmap, NULL, bytes, protection,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/*
 * Maps one page and unlocks it. When that mapping grows, the kernel does not lock what is added,
 * and compares nothing with the limit.
 */
static long map_unlocked(size_t bytes, int protection)
{
	long page = map_somewhere(pdn_page_size(), protection), all = -1;

	if (page >= 0 && pdn_sys(SYS_munlock, page, pdn_page_size()) == 0)
		all = pdn_sys(SYS_mremap, page, pdn_page_size(), bytes, MREMAP_MAYMOVE);
	if (page >= 0 && all < 0)
		pdn_sys(SYS_munmap, page, pdn_page_size());
	return all;
}

void *pdn_map(size_t bytes, int protection)
{
	long all = map_somewhere(bytes, protection);

	if (all == -EAGAIN) {
		all = map_unlocked(bytes, protection);
	} else if (all >= 0) {
		rlim_t locked = pdn_sys_limit(RLIMIT_MEMLOCK);

		if (locked != RLIM_INFINITY && bytes <= locked)
			pdn_sys(SYS_munlock, all, bytes);
	}
	return all < 0 ? NULL : (void *)all;
}

/*
 * Aligned to a huge page. What is mapped beyond that is unmapped, but not beside much reserved
 * address space, where it makes no difference.
 */
static char *map(size_t bytes, int protection)
{
	bool is_much = protection == PROT_NONE && bytes >= 32 * PDN_HUGE_PAGE;
	size_t whole = (bytes + pdn_page_size() - 1) & -pdn_page_size();
	size_t more = whole + PDN_HUGE_PAGE;
	char *all = pdn_map(more, protection);
	char *start;

	if (!all)
		return NULL;
	start = all + (-(uintptr_t)all & (PDN_HUGE_PAGE - 1));
	if (!is_much) {
		unmap(all, start);
		unmap(start + whole, all + more);
	}
	return start;
}

/* Core dumps leave out memory that can't be read and was never written. */
void *pdn_reserve(size_t bytes)
{
	return map(bytes, PROT_NONE);
}

void *pdn_allocate(size_t bytes)
{
	return map(bytes, PROT_READ | PROT_WRITE);
}

void pdn_unreserve(void *start, size_t bytes)
{
	pdn_sys(SYS_munmap, start, bytes);
}

bool pdn_make_usable(void *start, size_t bytes)
{
	return pdn_sys(SYS_mprotect, (char *)start - before(start), bytes + before(start),
		       PROT_READ | PROT_WRITE) == 0;
}

bool pdn_advise(void *start, size_t bytes, int advice)
{
	return pdn_sys(SYS_madvise, start, bytes, advice) == 0;
}

void pdn_make_private(void *start, size_t bytes)
{
	pdn_sys(SYS_mmap, start, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void pdn_populate(char *start, size_t bytes)
{
	pdn_advise(start - before(start), bytes + before(start), MADV_POPULATE_WRITE);
}
