/* SPDX-License-Identifier: MIT */
/* What interception tells: the short ways for when there is nothing to do, and the long ones. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache.h"
#include "config.h"
#include "driver.h"
#include "events.h"
#include "index.h"

/*
 * Can this be ended without the lock? The guard is up already. Unsettled is read before the index:
 * a region on its way from being in flight to the index, or from the index to being unpinned, is in
 * one of the two at each moment, and the sequence number shows if it moved between our two looks.
 */
static bool nothing_at(uint64_t addr)
{
	uint64_t seq = pd_index_read_begin();
	uint32_t number;

	if (__atomic_load_n(&pd_unsettled, __ATOMIC_SEQ_CST))
		return false;
	number = pd_index_find(addr);
	if (number && pd_region_holds(&pd_regions[number], addr, 1))
		return false;
	return pd_index_unchanged(seq);
}

static bool nothing_in(uint64_t begin, uint64_t end)
{
	uint64_t seq = pd_index_read_begin();
	uint64_t at = begin;

	if (__atomic_load_n(&pd_unsettled, __ATOMIC_SEQ_CST) || pd_index_next(&at, end))
		return false;
	return pd_index_unchanged(seq);
}

static bool nothing_at_all(void)
{
	uint64_t seq = pd_index_read_begin();

	return !__atomic_load_n(&pd_unsettled, __ATOMIC_SEQ_CST) &&
	       !__atomic_load_n(&pd_occupied, __ATOMIC_SEQ_CST) && pd_index_unchanged(seq);
}

static void __attribute__((noinline))
end_slow(const struct pd_scope *scope, enum pindown_reason reason)
{
	int saved = errno;

	pd_end_scope(scope, reason, false);
	errno = saved;
}

pd_guard pd_end_range(uint64_t addr, uint64_t length)
{
	uint64_t end = addr + length < addr ? ~0ull : addr + length;
	struct pd_scope scope = {.kind = PD_GUARD_RANGE, .begin = addr, .end = end};
	pd_guard guard = pd_guard_up(&scope);

	if (__builtin_expect(length ? !nothing_in(addr, end) : !nothing_at(addr), 0))
		end_slow(&scope, PINDOWN_REASON_FREED);
	return guard;
}

static pd_guard end_wide(const struct pd_scope *scope, enum pindown_reason reason)
{
	pd_guard guard = pd_guard_up(scope);

	if (!nothing_at_all())
		end_slow(scope, reason);
	return guard;
}

pd_guard pd_end_context(void *context)
{
	struct pd_scope scope = {.kind = PD_GUARD_CONTEXT, .context = context};

	return end_wide(&scope, PINDOWN_REASON_CONTEXT);
}

pd_guard pd_end_device(int device)
{
	struct pd_scope scope = {.kind = PD_GUARD_DEVICE, .device = device};

	return end_wide(&scope, PINDOWN_REASON_CONTEXT);
}

pd_guard pd_end_all(void)
{
	struct pd_scope scope = {.kind = PD_GUARD_ALL};

	return end_wide(&scope, PINDOWN_REASON_CONTEXT);
}

/* ---- comparing with the driver
 * -------------------------------------------------------------------- */

#define BATCH 64

/* Regions held for the comparison, so that they stay what they are. */
static unsigned take_suspects(struct pindown_region **suspects, uint32_t *from, const void *pool)
{
	unsigned n = 0;

	pd_lock();
	for (; *from <= pd_region_high_water() && n < BATCH; ++*from) {
		struct pindown_region *region = &pd_regions[*from];

		if (!pd_state_is_live(region->state) || (pool && region->pool != pool))
			continue;
		pd_hold(pd_self_or_anonymous(), *from, 1);
		suspects[n++] = region;
	}
	pd_unlock();
	return n;
}

static void drop_if_changed(struct pindown_region *region)
{
	if (pd_compare(region) == PD_FALSE)
		pd_drop_stale(region);
	else
		pindown_put(region);
}

void pd_recheck(void *pool)
{
	const struct pd_scope all = {.kind = PD_GUARD_ALL};
	struct pindown_region *suspects[BATCH];
	uint32_t from = 1;
	int saved = errno;
	unsigned n;

	if (nothing_at_all())
		return;
	pd_lock();
	pd_flights_lose(&all); /* what they have been told may no longer be so */
	pd_unlock();
	while ((n = take_suspects(suspects, &from, pool)) != 0)
		for (unsigned i = 0; i < n; i++)
			drop_if_changed(suspects[i]);
	errno = saved;
}

static struct pindown_region *take_overlapping(uint64_t *at, uint64_t end)
{
	struct pindown_region *region = NULL;
	uint32_t number;

	if (!pd_index_next(at, end))
		return NULL;
	pd_lock();
	number = pd_index_next(at, end);
	if (number) {
		region = &pd_regions[number];
		pd_hold(pd_self_or_anonymous(), number, 1);
		*at = region->end;
	}
	pd_unlock();
	return region;
}

/*
 * Nothing that is alive can be where the driver has just put something new, so what we still have
 * there was freed behind our back. Its buffer id is compared all the same: some calls hand out
 * again what they have handed out before (opening an IPC handle twice).
 */
static void __attribute__((noinline)) allocated_slow(uint64_t addr, uint64_t end)
{
	const struct pd_scope scope = {.kind = PD_GUARD_RANGE, .begin = addr, .end = end};
	struct pindown_region *region;
	int saved = errno;

	pd_lock();
	pd_volatile_forget(addr, end);
	pd_flights_lose_known(&scope);
	pd_unlock();
	for (uint64_t at = addr; at < end && (region = take_overlapping(&at, end)) != NULL;)
		drop_if_changed(region);
	errno = saved;
}

void pd_allocated(uint64_t addr, uint64_t length)
{
	if (__builtin_expect(__atomic_load_n(&pd_occupied, __ATOMIC_RELAXED) |
				     __atomic_load_n(&pd_unsettled, __ATOMIC_RELAXED),
			     0) &&
	    addr + length > addr)
		allocated_slow(addr, addr + length);
}
