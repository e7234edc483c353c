/* SPDX-License-Identifier: MIT */
/* The events that hook/ reports: short ways for when there is nothing to do, and the long ones. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/show/account.h"
#include "cache/end/kept.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"
#include "cache/driver/driver.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "cache/dmabuf/foreign_table.h"
#include "cache/hit/index.h"
#include "cache/end/invalidate.h"
#include "cache/objects/end_with.h"
#include "cache/pindown.h"
#include "cache/hit/announced.h"
#include "cache/end/work.h"
#include "cache/trust/recheck.h"
#include "cache/hit/region.h"
#include "cache/end/replaced.h"
#include "cache/retire/handed_out.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"
#include "cache/trust/volatile.h"
#include "cache/hook_events.h"

/*
 * What a free looks at before it skips the lock. Its guard is up already, and a pin looks for
 * guards when it has added its flight. Memory goes from work, a flight, to the index, and from
 * there to work again, an ending. So work is looked for before the index, and the sequence number
 * shows if a region moved between these two looks.
 */
static bool nothing_in(uint64_t begin, uint64_t end)
{
	const struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = begin, .end = end};
	uint64_t seq = pdn_index_read_begin(), at = begin;

	if (pdn_works_any() || pdn_exports_may_be_in(&scope))
		return false;
	PDN_POINT(FREE_LOOKING, begin);
	return !pdn_index_next(&at, end) && pdn_index_unchanged(seq);
}

static inline __attribute__((always_inline)) bool nothing_at_all(void)
{
	uint64_t seq = pdn_index_read_begin();

	return !pdn_works_any() && !pdn_exports_any() &&
	       !__atomic_load_n(&pdn_occupied, __ATOMIC_SEQ_CST) && pdn_index_unchanged(seq);
}

static void __attribute__((noinline))
end_slow(const struct pdn_scope *scope, enum pindown_reason reason)
{
	PDN_CANCELLED_LATER;
	int saved = errno;

	pdn_exports_end(scope, reason);
	pdn_end_scope(scope, reason);
	errno = saved;
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

static uint64_t end_behind(uint64_t addr, uint64_t length)
{
	return addr + length < addr ? UINT64_MAX : addr + length;
}

/* Regions may be in [begin, end), or flights touch it. */
static pdn_guard __attribute__((noinline))
end_range_slow(uint64_t begin, uint64_t end, unsigned why, pdn_guard guard)
{
	/* The deepest guards of a thread do not say what is freed, nor do recordless ones. */
	bool retires = guard < PDN_GUARDS && may_retire(begin, why);

	end_slow(
		&(struct pdn_scope){
			.kind = PDN_GUARD_RANGE, .begin = begin, .end = end, .retires = retires},
		REASON_OF(why));
	if (retires && pdn_retired_in(PDN_RETIRED_PENDING) && pdn_retired_begins_window(begin))
		guard |= PDN_GUARD_RETIRES;
	return guard;
}

/* The guard is up. Objects on a region that was replaced by another one are not in the index. */
static pdn_guard __attribute__((noinline))
end_guarded(uint64_t begin, uint64_t end, unsigned why, pdn_guard guard)
{
	if (!nothing_in(begin, end) || pdn_awaits_reuse())
		return end_range_slow(begin, end, why, guard);
	return guard;
}

static pdn_guard __attribute__((noinline))
end_range(uint64_t begin, uint64_t end, uint64_t guarded_end, unsigned why)
{
	const struct pdn_scope scope = {
		.kind = PDN_GUARD_RANGE, .begin = begin, .end = guarded_end};
	struct pdn_thread *self = pdn_self_tls;
	pdn_guard guard = pdn_guard_has_slot(self)
				  ? pdn_guard_fill(self, PDN_GUARD_RANGE, begin, guarded_end, 0)
				  : pdn_guard_up(&scope);

	PDN_POINT(FREE_GUARDED, begin);
	return end_guarded(begin, end, why, guard);
}

/*
 * How far the memory reaches that this thread alone may free. false: the driver does not say. It
 * looks that up in its own tables, and passes no cancellation point.
 */
static bool extent_of(uint64_t addr, uint64_t *begin, uint64_t *end)
{
	PDN_CANCELLED_LATER;

	return pdn_driver_extent(addr, begin, end);
}

/* The driver refuses an address inside: what is held stays. */
static unsigned reason_for(uint64_t addr, uint64_t begin, unsigned why)
{
	return addr == begin ? why : why & ~FREED_BY_CU_MEM_FREE;
}

/*
 * Asked before the guard is up, as others may then ask no more. Where the driver does not say, it
 * has described the memory to nobody, and no region is there.
 */
static pdn_guard __attribute__((noinline)) end_holder_exactly(uint64_t addr, unsigned why)
{
	uint64_t begin, end;

	if (!extent_of(addr, &begin, &end))
		return end_range(addr, end_behind(addr, 1), PDN_REACH_UNKNOWN, why);
	return end_range(begin, end, end, reason_for(addr, begin, why));
}

/* The same, for a guard that was put up when no flight had begun. */
static pdn_guard __attribute__((noinline))
end_holder_late(uint64_t addr, unsigned why, pdn_guard guard)
{
	uint64_t begin, end;

	if (!extent_of(addr, &begin, &end))
		return end_guarded(addr, end_behind(addr, 1), why, guard);
	pdn_guard_reaches(guard, end);
	return end_guarded(begin, end, reason_for(addr, begin, why), guard);
}

/* All calls are tail calls: the compiler has no registers to save for them. */
static inline pdn_guard end_holder_of(uint64_t addr, unsigned why)
{
	struct pdn_thread *self = pdn_self_tls;
	pdn_guard guard;

	if (pdn_frees_ask() || !pdn_guard_has_slot(self))
		return end_holder_exactly(addr, why);
	guard = pdn_guard_fill(self, PDN_GUARD_RANGE, addr, PDN_REACH_UNKNOWN, 0);
	PDN_POINT(FREE_GUARDED, addr);
	if (__builtin_expect(!nothing_at_all(), 0))
		return end_holder_late(addr, why, guard);
	return guard;
}

pdn_guard pdn_end_range(uint64_t addr, uint64_t length)
{
	uint64_t end = end_behind(addr, length);

	if (length)
		return end_range(addr, end, end, PINDOWN_REASON_FREED);
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

/*
 * A region in the index need not be of the scope: its memory may have been freed unseen, and
 * replaced by memory of the scope. So each comparison is waited for.
 */
static void __attribute__((cold)) wait_for_comparisons(void)
{
	PDN_UNCANCELLED;

	pdn_heavy_barrier();
	pdn_comparisons_pass(PDN_ANY_REGION);
}

static pdn_guard end_wide(const struct pdn_scope *scope, enum pindown_reason reason)
{
	pdn_guard guard = pdn_guard_up(scope);

	if (pdn_barrier_is_registered()) /* else there was no pin, and there is no region */
		wait_for_comparisons();
	if (!nothing_at_all())
		end_slow(scope, reason);
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
	pdn_flights_mark_lost(&scope);
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
 * Looks at work, the index and work again, in this order, as memory moves through them: a region
 * that has left the one place by then is seen in the next. So the second load is an acquire.
 */
void pdn_allocated(uint64_t addr, uint64_t length)
{
	bool pinning = pdn_works_any();
	uint32_t occupied = __atomic_load_n(&pdn_occupied, __ATOMIC_ACQUIRE);
	bool ending = pdn_works_any(), retired = pdn_any_was_retired();

	if (__builtin_expect(pinning | (occupied != 0) | ending | retired, 0) &&
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
