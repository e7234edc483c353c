/* SPDX-License-Identifier: MIT */
/* The allocations that are pinned by windows: a sorted table, searched without the lock. */
#include "cache/windows.h"

/*
 * Allocations do not overlap, but one whose free was not seen may overlap a newer one: the two
 * share a span, so that spans don't overlap. A span counts its windows.
 */
static struct span {
	uint64_t base, end, windows;
} spans[1024];
#define MOST (sizeof(spans) / sizeof(spans[0]))

static uint32_t used;
static uint32_t untracked; /* windows for which there was no span left: all memory may have some */

/*
 * Odd in the middle of a change. Stores are releases and loads acquires, here and below: a search
 * that reads a changed value sees that `changes` has changed, too.
 */
static uint32_t changes;

static void set(uint64_t *at, uint64_t value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static uint64_t get(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* Lock held. */
static void copy(struct span *to, const struct span *from)
{
	set(&to->base, from->base);
	set(&to->end, from->end);
	to->windows = from->windows;
}

static void count_change(void)
{
	__atomic_store_n(&changes, changes + 1, __ATOMIC_RELEASE);
}

static void set_used(uint32_t count)
{
	__atomic_store_n(&used, count, __ATOMIC_RELEASE);
}

static uint32_t used_now(void)
{
	return __atomic_load_n(&used, __ATOMIC_ACQUIRE);
}

/* The first span that ends behind addr. */
static uint32_t first_behind(uint64_t addr)
{
	uint32_t low = 0, high = used_now();

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (get(&spans[middle].end) <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool pdn_windows_may_hold(uint64_t addr)
{
	uint32_t begun = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);
	uint32_t n = first_behind(addr);

	return (n < used_now() && get(&spans[n].base) <= addr) ||
	       __atomic_load_n(&untracked, __ATOMIC_ACQUIRE) || begun & 1 ||
	       __atomic_load_n(&changes, __ATOMIC_RELAXED) != begun;
}

/* Lock held. */
static void remove_span(uint32_t n)
{
	set_used(used - 1);
	for (; n < used; n++)
		copy(&spans[n], &spans[n + 1]);
}

/* Lock held. */
static void insert_span(uint32_t n, const struct span *span)
{
	for (uint32_t i = used; i > n; i--)
		copy(&spans[i], &spans[i - 1]);
	copy(&spans[n], span);
	set_used(used + 1);
}

void pdn_windows_add(uint64_t base, uint64_t end)
{
	struct span span = {.base = base, .end = end, .windows = 1};
	uint32_t n = first_behind(base);

	count_change();
	while (n < used && spans[n].base < span.end) {
		if (spans[n].base < span.base)
			span.base = spans[n].base;
		if (spans[n].end > span.end)
			span.end = spans[n].end;
		span.windows += spans[n].windows;
		remove_span(n);
	}
	if (used < MOST)
		insert_span(n, &span);
	else
		__atomic_store_n(&untracked, untracked + 1, __ATOMIC_RELEASE);
	count_change();
}

/*
 * Where some are untracked, this may count the wrong one. In all they are as many as windows, and
 * while any is untracked the spans don't matter.
 */
void pdn_windows_remove(uint64_t base)
{
	uint32_t n = first_behind(base);

	count_change();
	if (n == used || spans[n].base > base)
		__atomic_store_n(&untracked, untracked - 1, __ATOMIC_RELEASE);
	else if (--spans[n].windows == 0)
		remove_span(n);
	count_change();
}

void pdn_windows_fork_child(void)
{
	used = untracked = changes = 0;
}
