/* SPDX-License-Identifier: MIT */
/* What interception tells: the short ways for when there is nothing to do, and the long ones. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache.h"
#include "config.h"
#include "driver.h"
#include "events.h"
#include "exports.h"
#include "index.h"
#include "point.h"

/*
 * Can this be ended without the lock? The guard is up already. Unsettled is read before the index:
 * a region on its way from being in flight to the index, or from the index to being unpinned, is in
 * one of the two at each moment, and the sequence number shows if it moved between our two looks.
 */
static bool nothing_at(uint64_t addr)
{
	uint64_t seq = pd_index_read_begin();
	uint32_t number;

	/* The guard is up, and this is loaded: pd_flight_begin() stores it, and looks for guards. */
	if (__atomic_load_n(&pd_unsettled, __ATOMIC_SEQ_CST))
		return false;
	PD_POINT(FREE_LOOKING, addr);
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

	pd_exports_end(scope, reason);
	pd_end_scope(scope, reason, false);
	errno = saved;
}

pd_guard pd_end_range(uint64_t addr, uint64_t length)
{
	uint64_t end = addr + length < addr ? ~0ull : addr + length;
	struct pd_scope scope = {.kind = PD_GUARD_RANGE, .begin = addr, .end = end};
	pd_guard guard = pd_guard_up(&scope);

	PD_POINT(FREE_GUARDED, addr);
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

/* ---- comparing with the driver ------------------------------------------------------------ */

#define BATCH 64

/*
 * What a region was when we looked. Not held for the comparison: a free of its memory in another
 * thread would take that for a user, and go on with the memory still pinned.
 */
struct suspect {
	uint32_t number;
	uint64_t base, end, buffer_id, others;
};

/* Lock held. */
static struct suspect suspect_of(uint32_t number)
{
	const struct pindown_region *region = &pd_regions[number];

	return (struct suspect){.number = number,
				.base = region->base,
				.end = region->end,
				.buffer_id = pd_details_of(region)->buffer_id,
				.others = pd_region_others(region)};
}

static unsigned take_suspects(struct suspect *suspects, uint32_t *from, const void *pool)
{
	unsigned n = 0;

	pd_lock();
	for (; *from <= pd_region_high_water() && n < BATCH; ++*from) {
		const struct pindown_region *region = &pd_regions[*from];

		if (pd_state_is_live(pd_brief_of(region)->state) &&
		    (!pool || pd_details_of(region)->pool == pool))
			suspects[n++] = suspect_of(*from);
	}
	pd_unlock();
	return n;
}

static bool is_still_there(const struct suspect *suspect)
{
	const struct pindown_region *region = &pd_regions[suspect->number];

	return pd_state_is_live(pd_brief_of(region)->state) && region->base == suspect->base &&
	       region->end == suspect->end &&
	       pd_details_of(region)->buffer_id == suspect->buffer_id &&
	       pd_region_others(region) == suspect->others;
}

static void drop_if_changed(const struct suspect *suspect)
{
	struct pd_victims victims = {0};

	if (pd_driver_is_same(suspect->base, suspect->end, suspect->buffer_id, suspect->others) ||
	    !pd_driver_answers())
		return;
	pd_lock();
	if (is_still_there(suspect)) {
		victims.missed = !pd_region_is_volatile(&pd_regions[suspect->number]);
		pd_victims_add(&victims, suspect->number, PINDOWN_REASON_STALE);
	}
	pd_victims_sort(&victims);
	pd_unlock();
	pd_victims_dispatch(&victims);
}

void pd_recheck(void *pool)
{
	const struct pd_scope all = {.kind = PD_GUARD_ALL};
	struct suspect suspects[BATCH];
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
			drop_if_changed(&suspects[i]);
	errno = saved;
}

/* A look without the lock, then the lock for what it has found. */
static bool take_overlapping(struct suspect *suspect, uint64_t *at, uint64_t end)
{
	uint32_t number;

	if (!pd_index_next(at, end))
		return false;
	pd_lock();
	number = pd_index_next(at, end);
	if (number) {
		*suspect = suspect_of(number);
		*at = suspect->end;
	}
	pd_unlock();
	return number != 0;
}

void pd_drop_changed(uint64_t begin, uint64_t end)
{
	const struct pd_scope scope = {.kind = PD_GUARD_RANGE, .begin = begin, .end = end};
	struct suspect suspect;

	pd_lock();
	pd_flights_lose_known(&scope);
	pd_unlock();
	for (uint64_t at = begin; at < end && take_overlapping(&suspect, &at, end);)
		drop_if_changed(&suspect);
}

/*
 * Nothing that is alive can be where the driver has just put something new, so what we still have
 * there was freed behind our back. Its buffer id is compared all the same: some calls hand out
 * again what they have handed out before (opening an IPC handle twice).
 */
static void __attribute__((noinline)) allocated_slow(uint64_t addr, uint64_t end)
{
	const struct pd_scope scope = {.kind = PD_GUARD_RANGE, .begin = addr, .end = end};
	int saved = errno;

	/*
	 * Both at once: what is being pinned may be memory that was freed unseen, and must not be inserted when
	 * hits there are not checked any more.
	 */
	pd_lock();
	pd_flights_lose_known(&scope);
	pd_volatile_forget(addr, end);
	pd_unlock();
	pd_drop_changed(addr, end);
	errno = saved;
}

void pd_allocated(uint64_t addr, uint64_t length)
{
	uint32_t unsettled = __atomic_load_n(&pd_unsettled, __ATOMIC_RELAXED);

	if (__builtin_expect(__atomic_load_n(&pd_occupied, __ATOMIC_RELAXED) |
				     (unsettled & ~PD_UNSETTLED_EXPORTS),
			     0) &&
	    addr + length > addr)
		allocated_slow(addr, addr + length);
}
