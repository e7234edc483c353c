/* SPDX-License-Identifier: MIT */
/* Address space for tables, and its memory, from the system. */
#define _GNU_SOURCE
#include "cache/base/address_space.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/descriptor.h"

/* The process's size in bytes, the first number in this file; 0: it can't be read. */
static uint64_t size_now(void)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
	char text[32];
	uint64_t pages = 0;
	long length = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof(text));

	for (long i = 0; i < length && text[i] >= '0' && text[i] <= '9'; i++)
		pages = pages * 10 + (uint64_t)(text[i] - '0');
	if (fd >= 0)
		pdn_descriptor_close(fd);
	return pages * pdn_page_size();
}

/* Where the size is not known, half of the limit is taken for it. */
uint64_t pdn_address_space_share(void)
{
	struct rlimit limit;
	int saved = errno;
	uint64_t share = UINT64_MAX;

	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		uint64_t size = size_now();

		if (!size)
			size = limit.rlim_cur / 2;
		share = size < limit.rlim_cur ? (limit.rlim_cur - size) / 16 : 0;
	}
	errno = saved;
	return share;
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

static void *map_somewhere(size_t bytes, int protection)
{
	return mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/*
 * Maps one page and unlocks it. When that mapping grows, the kernel does not lock what is added,
 * and compares nothing with the limit.
 */
static void *map_unlocked(size_t bytes, int protection)
{
	void *page = map_somewhere(pdn_page_size(), protection), *all = MAP_FAILED;

	if (page != MAP_FAILED && munlock(page, pdn_page_size()) == 0)
		all = mremap(page, pdn_page_size(), bytes, MREMAP_MAYMOVE);
	if (page != MAP_FAILED && all == MAP_FAILED)
		munmap(page, pdn_page_size());
	return all;
}

void *pdn_map(size_t bytes, int protection)
{
	int saved = errno;
	void *all = map_somewhere(bytes, protection);
	struct rlimit locked;

	if (all == MAP_FAILED && errno == EAGAIN)
		all = map_unlocked(bytes, protection);
	else if (all != MAP_FAILED && getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
		 locked.rlim_cur != RLIM_INFINITY && bytes <= locked.rlim_cur)
		munlock(all, bytes);
	errno = saved;
	return all == MAP_FAILED ? NULL : all;
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
	int saved = errno;

	munmap(start, bytes);
	errno = saved;
}

bool pdn_make_usable(void *start, size_t bytes)
{
	int saved = errno;
	char *page = (char *)start - before(start);
	bool ok;

	bytes += before(start);
	ok = mprotect(page, bytes, PROT_READ | PROT_WRITE) == 0;
	errno = saved;
	return ok;
}

bool pdn_advise(void *start, size_t bytes, int advice)
{
	int saved = errno;
	bool ok = madvise(start, bytes, advice) == 0;

	errno = saved;
	return ok;
}

void pdn_make_private(void *start, size_t bytes)
{
	int saved = errno;

	/* Not mmap(), which a sanitizer follows. */
	syscall(SYS_mmap, start, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	errno = saved;
}

void pdn_populate(char *start, size_t bytes)
{
	pdn_advise(start - before(start), bytes + before(start), MADV_POPULATE_WRITE);
}
