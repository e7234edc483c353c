/* SPDX-License-Identifier: MIT */
/* The events that hook/ reports: short ways for when there is nothing to do, and the long ones. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/account.h"
#include "cache/awaiting.h"
#include "cache/base/cancel.h"
#include "cache/base/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/driver/driver.h"
#include "cache/foreign_dmabufs.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/recheck.h"
#include "cache/region.h"
#include "cache/replaced.h"
#include "cache/retire/handed_out.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"
#include "cache/volatile.h"
#include "cache/windows.h"
#include "cache/hook_events.h"

/*
 * What a free looks at before it skips the lock. Its guard is up already, and a pin looks for
 * guards when it has added its flight. Memory goes from a flight to the index, and from there to
 * what is unsettled. So flights are looked for first, and what is unsettled is read before the
 * index: the sequence number shows if a region moved between these two looks.
 */
static inline uint32_t pending(void)
{
	return __atomic_load_n(&pdn_pending, __ATOMIC_SEQ_CST);
}

static inline bool any_pending(void)
{
	return pdn_flights_any() || pending();
}

/* For a range, it does not matter that exports of other memory are remembered. */
static bool is_pending_in(uint64_t begin, uint64_t end)
{
	const struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = begin, .end = end};
	bool flies = pdn_flights_any();
	uint32_t what = pending();

	return flies || what & ~(PDN_PENDING_EXPORTS | PDN_PENDING_WINDOWS) ||
	       (what & PDN_PENDING_EXPORTS && pdn_exports_may_be_in(&scope));
}

/*
 * Is any region there, for sure? For the allocation that holds `begin` (then that is `end`, too) a
 * window counts, wherever it is, also one that was replaced and has objects.
 */
static bool may_find(uint64_t begin, uint64_t end)
{
	uint64_t at = begin;

	if (begin < end)
		return pdn_index_next(&at, end);
	return pdn_index_next(&at, begin + 1) || pdn_windows_may_hold(begin);
}

static bool nothing_in(uint64_t begin, uint64_t end)
{
	uint64_t seq = pdn_index_read_begin();

	return !is_pending_in(begin, end) && !may_find(begin, end) && pdn_index_unchanged(seq);
}

static bool nothing_at_all(void)
{
	uint64_t seq = pdn_index_read_begin();

	return !any_pending() && !__atomic_load_n(&pdn_occupied, __ATOMIC_SEQ_CST) &&
	       pdn_index_unchanged(seq);
}

static void __attribute__((noinline))
end_slow(const struct pdn_scope *scope, struct pdn_hint hint, enum pindown_reason reason)
{
	PDN_CANCELLED_LATER;
	int saved = errno;

	pdn_exports_end(scope, reason);
	pdn_end_scope(scope, hint, reason);
	errno = saved;
}

/*
 * Where the allocation that begins there ends, if a region tells; otherwise `begin`. Then pins of
 * memory behind it need not wait for this free, nor this free for questions about that. Acquire:
 * the record may become another region's, which the index shows. One whose hits are checked, for
 * itself or as all are, may be of memory that has ended already. With windows, what is there now
 * may be an allocation that has some behind the region; they are found by its beginning only.
 */
static uint64_t known_end(uint64_t begin, struct pdn_hint hint)
{
	const struct pindown_region *region = &pdn_regions[hint.number];
	uint64_t base, end;
	unsigned state, flags;

	if (!hint.number)
		return begin;
	base = __atomic_load_n(&region->base, __ATOMIC_ACQUIRE);
	end = __atomic_load_n(&region->end, __ATOMIC_ACQUIRE);
	state = __atomic_load_n(&pdn_briefs[hint.number].state, __ATOMIC_ACQUIRE);
	flags = __atomic_load_n(&region->flags, __ATOMIC_ACQUIRE);
	if (base != begin || state != PDN_LIVE || flags & PDN_REGION_CHECKED ||
	    pdn_region_any_window())
		return begin;
	return pdn_index_unchanged(hint.seq) ? end : begin;
}

/*
 * Why a range ends, and a bit for the calls after which its address may be retired: these functions
 * have registers for no more arguments.
 */
#define FREED_BY_CU_MEM_FREE 0x100
#define REASON_OF(why)	     ((enum pindown_reason)((why) & ~FREED_BY_CU_MEM_FREE))

static bool may_retire(uint64_t begin, unsigned why)
{
	return why & FREED_BY_CU_MEM_FREE && pdn_any_object_ever() && pdn_retire_possible(begin);
}

/* The index has had `hint` at `begin`. */
static pdn_guard __attribute__((noinline))
end_range_slow(uint64_t begin, uint64_t end, struct pdn_hint hint, unsigned why, pdn_guard guard)
{
	/* The deepest guards of a thread do not say what is freed, nor do recordless ones. */
	bool retires = guard < PDN_GUARDS && may_retire(begin, why);

	if (begin == end) {
		end = known_end(begin, hint);
		pdn_guard_reaches(guard, end);
	}
	end_slow(
		&(struct pdn_scope){
			.kind = PDN_GUARD_RANGE, .begin = begin, .end = end, .retires = retires},
		hint, REASON_OF(why));
	if (retires && pdn_retired_in(PDN_RETIRED_PENDING) && pdn_retired_begins_window(begin))
		guard |= PDN_GUARD_RETIRES;
	return guard;
}

/* The same, where nobody has looked at the index, or it has changed since. */
static pdn_guard __attribute__((noinline))
end_range_anew(uint64_t begin, uint64_t end, unsigned why, pdn_guard guard)
{
	return end_range_slow(begin, end, pdn_index_hint(begin), why, guard);
}

/* The index has this in the page, which need not hold addr. */
static pdn_guard __attribute__((noinline))
end_if_found(uint64_t addr, uint32_t found, uint64_t seq, unsigned why, pdn_guard guard)
{
	uint32_t number = pdn_index_choose(found, addr);
	struct pdn_hint hint = {.seq = seq, .number = found & PDN_SHARED_TAG ? 0 : found};

	if ((number && pdn_region_holds(&pdn_regions[number], addr, 1)) ||
	    !pdn_index_unchanged(seq))
		return end_range_slow(addr, addr, hint, why, guard);
	return guard;
}

/* Something may be pending: is it, or any region, in [begin, end)? */
static pdn_guard __attribute__((noinline))
end_if_any(uint64_t begin, uint64_t end, unsigned why, pdn_guard guard)
{
	return nothing_in(begin, end) ? guard : end_range_anew(begin, end, why, guard);
}

static pdn_guard __attribute__((noinline))
end_otherwise(uint64_t addr, uint64_t length, unsigned why)
{
	uint64_t end = addr + length < addr ? ~0ull : addr + length;
	const struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = addr, .end = end};
	pdn_guard guard = pdn_guard_up(&scope);

	PDN_POINT(FREE_GUARDED, addr);
	/* Objects on a region that was replaced by another one do not depend on the index. */
	if (pdn_awaits_reuse())
		return end_range_anew(addr, end, why, guard);
	return end_if_any(addr, end, why, guard);
}

/* All calls are tail calls: the compiler has no registers to save for them. */
static inline pdn_guard end_holder_of(uint64_t addr, unsigned why)
{
	struct pdn_thread *self = pdn_self_tls;
	uint64_t seq;
	uint32_t found;
	pdn_guard guard;

	if (!pdn_guard_has_slot(self))
		return end_otherwise(addr, 0, why);
	guard = pdn_guard_fill(self, PDN_GUARD_RANGE, addr, addr, 0);
	PDN_POINT(FREE_GUARDED, addr);
	seq = pdn_index_read_begin();
	if (__builtin_expect(any_pending(), 0))
		return end_if_any(addr, addr, why, guard);
	PDN_POINT(FREE_LOOKING, addr);
	found = pdn_index_peek(addr);
	if (found)
		return end_if_found(addr, found, seq, why, guard);
	if (__builtin_expect(!pdn_index_unchanged(seq), 0))
		return end_range_anew(addr, addr, why, guard);
	return guard;
}

pdn_guard pdn_end_range(uint64_t addr, uint64_t length)
{
	if (length)
		return end_otherwise(addr, length, PINDOWN_REASON_FREED);
	return end_holder_of(addr, PINDOWN_REASON_FREED);
}

pdn_guard pdn_end_allocation(uint64_t addr)
{
	return end_holder_of(addr, PINDOWN_REASON_FREED | FREED_BY_CU_MEM_FREE);
}

pdn_guard pdn_end_in_order(uint64_t addr)
{
	return end_holder_of(addr, PINDOWN_REASON_ORDERED);
}

static pdn_guard end_wide(const struct pdn_scope *scope, enum pindown_reason reason)
{
	pdn_guard guard = pdn_guard_up(scope);

	if (!nothing_at_all())
		end_slow(scope, (struct pdn_hint){0}, reason);
	return guard;
}

pdn_guard pdn_end_context(void *context)
{
	struct pdn_scope scope = {.kind = PDN_GUARD_CONTEXT, .context = context};

	return end_wide(&scope, PINDOWN_REASON_CONTEXT);
}

pdn_guard pdn_end_device(int device)
{
	struct pdn_scope scope = {.kind = PDN_GUARD_DEVICE, .device = device};

	return end_wide(&scope, PINDOWN_REASON_CONTEXT);
}

pdn_guard pdn_end_all(void)
{
	struct pdn_scope scope = {.kind = PDN_GUARD_ALL};

	return end_wide(&scope, PINDOWN_REASON_CONTEXT);
}

void __attribute__((cold)) pdn_recheck(void *pool)
{
	PDN_UNCANCELLED;
	int saved = errno;

	if (!nothing_at_all())
		pdn_recheck_some(pool);
	errno = saved;
}

/* ---- new memory ---------------------------------------------------------------------------- */

/*
 * No live region can be where the driver has just put something new, so memory of regions still
 * indexed there was freed without our seeing it. The buffer id is compared all the same: some calls
 * hand out again what they have handed out before (opening an IPC handle twice), and another thread
 * may have pinned the new memory before this call.
 */
static void PDN_RARE allocated_slow(uint64_t addr, uint64_t end)
{
	PDN_UNCANCELLED;
	const struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = addr, .end = end};
	int saved = errno;
	bool was_volatile;

	PDN_POINT(ALLOC_BEGUN, addr);
	pdn_retired_handed_out(addr, end);
	/*
	 * Both under one taking of the lock: a pin under way may be of memory that was freed
	 * unseen, and must not be inserted once hits there are no longer checked.
	 */
	pdn_lock();
	pdn_flights_mark_known_lost(&scope);
	was_volatile = pdn_volatile_forget(addr, end);
	pdn_unlock();
	PDN_POINT(ALLOC_FORGOTTEN, addr);
	pdn_drop_changed(addr, end, "the driver handed out its address again");
	if (pdn_awaits_reuse()) {
		pdn_end_replaced(&scope, PINDOWN_REASON_FREED);
		pdn_objects_end_reused(addr, end);
	}
	if (was_volatile) {
		PDN_POINT(ALLOC_COMPARED, addr);
		pdn_lock();
		pdn_volatile_trust(addr, end);
		pdn_unlock();
	}
	errno = saved;
}

/*
 * Looks at flights, the index and what is unsettled, in this order, as memory moves through them: a
 * region that has left the one place by then is seen in the next. So the second load is an acquire.
 */
void pdn_allocated(uint64_t addr, uint64_t length)
{
	bool flies = pdn_flights_any();
	uint32_t occupied = __atomic_load_n(&pdn_occupied, __ATOMIC_ACQUIRE);
	uint32_t unsettled = __atomic_load_n(&pdn_pending, __ATOMIC_RELAXED);
	bool retired = pdn_any_was_retired();

	if (__builtin_expect(occupied | (unsettled & ~PDN_PENDING_EXPORTS) | flies | retired, 0) &&
	    addr + length > addr)
		allocated_slow(addr, addr + length);
}

void __attribute__((cold)) pdn_left_to_card(void)
{
	PDN_UNCANCELLED;

	pdn_lock();
	pdn_account_left_to_card();
	pdn_unlock();
}

void pdn_drop_idle_of(int consumer, uint64_t owner)
{
	pdn_objects_drop_idle(consumer, owner);
}
