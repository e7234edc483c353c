/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>

#include "pages.h"
#include "region.h"

_Static_assert(sizeof(struct pindown_region) == 128, "two cache lines, the first for readers");

struct pindown_region *pd_regions;
uint32_t *pd_holds[PD_STRIPES];
uint32_t pd_region_limit;

#define MOST  (1u << 22)
#define LEAST (1u << 12)

static uint32_t capacity, usable, high_water, free_list;
static bool has_abandoned; /* in a child: records of the parent's regions, never used again */

/* Address space only. Under `ulimit -v` less will do. */
static bool reserve_tables(void)
{
	for (uint32_t n = MOST; n >= LEAST; n /= 2) {
		size_t records = (size_t)n * sizeof(struct pindown_region);
		size_t counts = (size_t)n * sizeof(uint32_t);
		char *p = pd_reserve(records + PD_STRIPES * counts);

		if (!p)
			continue;
		for (unsigned s = 0; s < PD_STRIPES; s++)
			pd_holds[s] = (uint32_t *)(void *)(p + records + s * counts);
		pd_regions = (struct pindown_region *)(void *)p;
		capacity = n;
		pd_region_limit = n - 1;
		return true;
	}
	return false;
}

/*
 * How many records become usable at a time. From where a step is huge pages of records, and then of
 * counts, they are asked for: see pd_prefer_huge().
 */
#define HUGE_OF(type) ((uint32_t)(PD_HUGE_PAGE / sizeof(type)))

static uint32_t step(void)
{
	uint32_t records = usable < HUGE_OF(struct pindown_region) ? 1024u
			   : usable < HUGE_OF(uint32_t)		   ? HUGE_OF(struct pindown_region)
								   : HUGE_OF(uint32_t);

	return records < capacity - usable ? records : capacity - usable;
}

static bool make_usable(void *start, size_t bytes)
{
	if (!pd_make_usable(start, bytes))
		return false;
	if (bytes >= PD_HUGE_PAGE)
		pd_prefer_huge(start, bytes);
	return true;
}

static bool make_counts_usable(uint32_t *counts, uint32_t records)
{
	/* 1024 counts are exactly a page of 4 KiB; a larger page is made usable more than once. */
	uintptr_t first = (uintptr_t)&counts[usable];
	uintptr_t page = first & ~(uintptr_t)65535;

	if (page < (uintptr_t)counts)
		page = (uintptr_t)counts;
	return make_usable((void *)page, first - page + records * sizeof(uint32_t));
}

static bool grow(void)
{
	bool ok = usable < capacity || (capacity == 0 && reserve_tables());
	uint32_t records = ok ? step() : 0;

	ok = ok && make_usable(&pd_regions[usable], records * sizeof(struct pindown_region));
	for (unsigned s = 0; ok && s < PD_STRIPES; s++)
		ok = make_counts_usable(pd_holds[s], records);
	if (ok)
		usable += records;
	return ok;
}

/* Slow: a thread's first hold, and those of threads that share a stripe or can't do without atomics. */
void pd_hold_shared(struct pd_thread *self, uint32_t number, uint32_t change)
{
	if (!self->stripe_asked) {
		pd_thread_claim_stripe(self);
		if (self->stripe != PD_STRIPE_SHARED && pd_light())
			self->holds = pd_holds[self->stripe];
	}
	if (self->holds)
		pd_hold(self, number, change);
	else
		__atomic_fetch_add(&pd_holds[self->stripe][number], change, __ATOMIC_SEQ_CST);
}

uint32_t pd_region_alloc(void)
{
	uint32_t number = free_list;

	if (number) {
		free_list = pd_regions[number].victim;
		pd_regions[number].victim = 0;
		return number;
	}
	if (high_water + 1 >= usable && !grow())
		return 0;
	return ++high_water;
}

void pd_region_free(uint32_t number)
{
	struct pindown_region *region = &pd_regions[number];

	region->pool = region->context = NULL;
	pd_region_set_flags(region, 0);
	region->victim = free_list;
	free_list = number;
	__atomic_store_n(&region->state, PD_FREE, __ATOMIC_RELEASE);
}

uint32_t pd_region_capacity(void)
{
	return capacity ? capacity - 1 : MOST - 1;
}

uint32_t pd_region_high_water(void)
{
	return high_water;
}

/*
 * A reader that comes late sees zeroed records: PD_FREE. The hold counts of free records sum to
 * zero but their stripes may not each be zero; dropping all of them at once keeps the sum.
 */
void pd_region_trim(void)
{
	int saved = errno;

	/* A child may still put its parent's regions: their records must stay what they are. */
	if (has_abandoned)
		return;
	if (usable) {
		for (unsigned s = 0; s < PD_STRIPES; s++)
			madvise(pd_holds[s], usable * sizeof(uint32_t), MADV_DONTNEED);
		madvise(pd_regions, usable * sizeof(struct pindown_region), MADV_DONTNEED);
	}
	high_water = free_list = 0;
	errno = saved;
}

void pd_region_fork_child(void)
{
	free_list = 0;
	has_abandoned = high_water != 0;
}
