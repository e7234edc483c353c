/* SPDX-License-Identifier: MIT */
/* Memory for tables, from the system: address space first, memory as it is used. Keeps errno. */
#ifndef PDN_ADDRESS_SPACE_H
#define PDN_ADDRESS_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PDN_HUGE_PAGE ((size_t)2 << 20)

/*
 * The size of the processor's pages; PINDOWN_PAGE_SIZE is the GPU's. x86-64 has one size, arm64 has
 * three, of which the kernel uses one. Tests are built with PDN_CPU_PAGE.
 */
#if defined(__x86_64__) && !defined(PDN_CPU_PAGE)
#define PDN_CPU_PAGE 4096
#endif
#if defined(PDN_CPU_PAGE)
#define PDN_LARGEST_PAGE PDN_CPU_PAGE
#else
#define PDN_LARGEST_PAGE 65536
#endif

static inline size_t pdn_page_size(void)
{
#if defined(PDN_CPU_PAGE)
	return PDN_CPU_PAGE;
#else
	return (size_t)sysconf(_SC_PAGESIZE);
#endif
}

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/*
 * How much of the process's address space tables may reserve: a sixteenth of the part of RLIMIT_AS
 * that is left just now, as the program does not get those bytes; all that they want where there is
 * no such limit. Asks the system.
 */
uint64_t pdn_address_space_share(void);

/*
 * Zeroes anywhere, or address space only (PROT_NONE); NULL when there is not enough. A program that
 * locks all that it maps from now on (mlockall) does not lock this, if it may lock only so much
 * (RLIMIT_MEMLOCK). All of a reservation would count: most are larger than the limit and would be
 * refused, and others would use up what the program has for itself.
 */
void *pdn_map(size_t bytes, int protection);

/* As pdn_map(), address space that is aligned to a huge page; NULL when there is not enough. */
void *pdn_reserve(size_t bytes);

/* All of it, which nothing uses yet. */
void pdn_unreserve(void *start, size_t bytes);

/* As pdn_reserve(), all of it usable from now on; zero at first. */
void *pdn_allocate(size_t bytes);

/*
 * Part of what is reserved can be read and written from now on; zero at first. Both ends are moved
 * outward to a page.
 */
bool pdn_make_usable(void *start, size_t bytes);

/* madvise(). false: the system can't do that. */
bool pdn_advise(void *start, size_t bytes, int advice);

/*
 * Where there are many regions, a hit's loads are spread over many pages, and huge pages save it
 * page table walks. For large tables only: they take memory 2 MiB at a time.
 */
static inline void pdn_prefer_huge(void *start, size_t bytes)
{
	pdn_advise(start, bytes, MADV_HUGEPAGE);
}

/* Little of it will ever be written: no huge pages, whatever the system gives to others. */
static inline void pdn_prefer_small(void *start, size_t bytes)
{
	pdn_advise(start, bytes, MADV_NOHUGEPAGE);
}

/*
 * Private anonymous memory is to be zero in every child, and a fork copies no page tables of it.
 * false: the kernel can't do that.
 */
static inline bool pdn_wipe_in_children(void *start, size_t bytes)
{
	return pdn_advise(start, bytes, MADV_WIPEONFORK);
}

/*
 * In a child: pages that it shares with its parent become zeroes of its own. They are not unmapped,
 * as a signal handler may have forked while the interrupted code was about to write there.
 */
void pdn_make_private(void *start, size_t bytes);

/*
 * Usable memory is about to be written: take all its page faults at once. Where the kernel can't do
 * that, they come one by one.
 */
void pdn_populate(char *start, size_t bytes);

#endif
