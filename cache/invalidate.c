/* SPDX-License-Identifier: MIT */
/* Ending regions: they are unlinked at once and unpinned when nobody holds them. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/account.h"
#include "cache/backend/backend.h"
#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/notify.h"
#include "cache/base/log.h"
#include "cache/base/process.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/driver/driver.h"
#include "cache/evict.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/region_trace.h"
#include "cache/subscribe.h"
#include "cache/trace/writer.h"
#include "cache/trust.h"
#include "cache/windows.h"

/* Regions that are being unpinned, under the lock: those in lists, and kept ones. */
static struct pdn_victims *ending;
static struct pdn_queue dying;
static struct pdn_queue awaiting; /* the list of pdn_first_awaiting(); under the lock */
static uint32_t awaiting_count;	  /* changed under the lock */

/*
 * Store, barrier, load: pairs with hits, which announce the region and then load its state (get.c,
 * hold_if()), and with puts, which drop their hold and then load it.
 */
static void set_state(uint32_t number, enum pdn_state state)
{
	__atomic_store_n(&pdn_briefs[number].state, state, PDN_BEFORE_BARRIER);
}

/* ---- lists of regions that are being ended -------------------------------------------------- */

/*
 * Unsettled goes up before the first region leaves the index: a free that no longer finds it there,
 * without the lock, has then seen that something is under way (see pdn_end_range() in
 * hook_events.c). Once for all of the list.
 */
static void begin_list(struct pdn_victims *victims)
{
	pdn_pending_add(1);
	victims->killer = pdn_my_tid();
	victims->need_more = false;
	victims->next = ending;
	ending = victims;
}

/* Not found: this is a child, forked meanwhile, or the thread is about to end. */
static bool is_listed(const struct pdn_victims *victims)
{
	const struct pdn_victims *v = ending;

	while (v && v != victims)
		v = v->next;
	return v;
}

static void end_list(struct pdn_victims *victims)
{
	struct pdn_victims **v = &ending;

	while (*v != victims)
		v = &(*v)->next;
	*v = victims->next;
	pdn_pending_add(-1u);
}

static inline void append_victim(struct pdn_victims *victims, uint32_t number)
{
	if (__builtin_expect(victims->first != 0, 1)) {
		pdn_regions[victims->last].victim = number;
	} else {
		begin_list(victims);
		victims->first = number;
	}
	victims->last = number;
	pdn_regions[number].victim = 0;
}

/* It is no longer live, but still in the index, in its queue and in the accounts. */
static inline void begin_end(struct pdn_victims *victims, uint32_t number,
			     enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];

	append_victim(victims, number);
	region->reason = (uint8_t)reason;
	region->killer = victims->killer;
	set_state(number, PDN_DYING);
	pdn_objects_unlink(number, reason);
	PDN_POINT(END_DYING, region->base);
}

/* Why it ends is more than the reason says. true: its free was missed. */
static bool __attribute__((noinline, cold)) mark(struct pdn_victims *victims, uint32_t number)
{
	struct pindown_region *region = &pdn_regions[number];
	bool missed = victims->missed && !pdn_region_is_volatile(region);

	pdn_region_set_flags(region, region->flags | (missed ? PDN_REGION_MISSED : 0) |
					     (victims->are_replaced ? PDN_REGION_REPLACED : 0));
	victims->need_more |= missed;
	return missed;
}

static inline __attribute__((always_inline)) void add(struct pdn_victims *victims, uint32_t number,
						      enum pindown_reason reason)
{
	struct pindown_region *region = &pdn_regions[number];
	bool missed = false;

	begin_end(victims, number, reason);
	if (__builtin_expect(victims->missed || victims->are_replaced, 0))
		missed = mark(victims, number);
	pdn_index_remove(number, region->base, region->end);
	pdn_queues_remove(number);
	pdn_occupied_add(-1u);
	pdn_account_out(region, missed);
	if (missed)
		pdn_trust_ends();
	PDN_POINT(END_UNLINKED, region->base);
}

void __attribute__((cold))
pdn_victims_add(struct pdn_victims *victims, uint32_t number, enum pindown_reason reason)
{
	add(victims, number, reason);
}

/* ---- many at once --------------------------------------------------------------------------- */

/*
 * Regions that lie side by side, and were pinned one after the other, leave the index, the queues
 * and the accounts together. `base` and `end`: what is yet to leave the index.
 */
struct sweep {
	struct pdn_victims *victims;
	enum pindown_reason reason;
	int device;
	uint32_t outs; /* of that device, not in the accounts yet */
	uint64_t base, end;
	struct pdn_leaving leaving;
};

static void sweep_index(struct sweep *sweep)
{
	if (sweep->base < sweep->end)
		pdn_index_remove_all(sweep->base, sweep->end);
}

static inline void sweep_from_index(struct sweep *sweep, uint32_t number)
{
	uint64_t base = pdn_regions[number].base, end = pdn_regions[number].end;

	if (__builtin_expect((base | end) & ((1u << PDN_PAGE_SHIFT) - 1), 0)) {
		pdn_index_remove(number, base, end);
		return;
	}
	if (base != sweep->end) {
		sweep_index(sweep);
		sweep->base = base;
	}
	sweep->end = end;
}

static inline void sweep_from_queues(struct pdn_leaving *leaving, uint32_t number)
{
	uint64_t bytes = pdn_region_pin_length(&pdn_regions[number]);

	if (leaving->last && pdn_regions[leaving->last].newer == number) {
		leaving->last = number;
		leaving->count++;
		leaving->bytes += bytes;
		return;
	}
	if (leaving->last)
		pdn_queues_left(leaving);
	*leaving =
		(struct pdn_leaving){.first = number, .last = number, .count = 1, .bytes = bytes};
}

static void sweep_outs(const struct sweep *sweep)
{
	pdn_account_outs(sweep->device, sweep->outs, sweep->reason);
	pdn_occupied_add(-sweep->outs);
}

static inline void sweep_from_accounts(struct sweep *sweep, uint32_t number)
{
	int device = pdn_regions[number].device;

	if (__builtin_expect(device != sweep->device, 0)) {
		sweep_outs(sweep);
		sweep->device = device;
		sweep->outs = 0;
	}
	sweep->outs++;
}

static inline __attribute__((always_inline)) void sweep_one(struct sweep *sweep, uint32_t number)
{
	begin_end(sweep->victims, number, sweep->reason);
	sweep_from_index(sweep, number);
	sweep_from_queues(&sweep->leaving, number);
	sweep_from_accounts(sweep, number);
}

static void __attribute__((noinline)) sweep_add(struct sweep *sweep, uint32_t number)
{
	sweep_one(sweep, number);
}

static void sweep_end(struct sweep *sweep)
{
	if (!sweep->victims->first)
		return;
	sweep_index(sweep);
	pdn_queues_left(&sweep->leaving);
	sweep_outs(sweep);
	PDN_POINT(END_UNLINKED, pdn_regions[sweep->victims->first].base);
}

/* ---- kept regions --------------------------------------------------------------------------- */

/* Lock held, and as exact as pdn_region_in_use(): is any of its objects held? Or itself, too? */
static inline __attribute__((always_inline)) bool objects_hold(uint32_t number)
{
	return pdn_objects_hold(number, pdn_regions[number].reason);
}

static bool is_used(uint32_t number)
{
	return pdn_region_in_use(number) || objects_hold(number);
}

/* Lock held. */
static bool is_kept_for_nobody(uint32_t number)
{
	return pdn_briefs[number].state == PDN_KEPT && !is_used(number);
}

/*
 * Relaxed: a thread that gets the memory again has it from the driver, which has it from the thread
 * that freed it.
 */
bool pdn_awaits_reuse(void)
{
	return __atomic_load_n(&awaiting_count, __ATOMIC_RELAXED) != 0;
}

uint32_t pdn_first_awaiting(void)
{
	return awaiting.oldest;
}

/* Lock held. It counts as occupied, so that allocations look here. */
static void count_awaiting(uint32_t change)
{
	__atomic_store_n(&awaiting_count, awaiting_count + change, __ATOMIC_RELAXED);
	pdn_occupied_add(change);
}

/* Lock held. */
static void await_reuse(uint32_t number)
{
	pdn_queue_append(&awaiting, number);
	pdn_region_set_flags(&pdn_regions[number], pdn_regions[number].flags | PDN_REGION_AWAITS);
	count_awaiting(1);
}

void pdn_stop_awaiting(uint32_t number)
{
	if (!(pdn_regions[number].flags & PDN_REGION_AWAITS))
		return;
	pdn_queue_remove(&awaiting, number);
	pdn_region_set_flags(&pdn_regions[number], pdn_regions[number].flags & ~PDN_REGION_AWAITS);
	count_awaiting(-1u);
}

/*
 * From here on it is this thread's, as after pdn_victims_add(). At once, and not only just before
 * the unpin: its last holder may now free the memory, and that free has to wait.
 */
bool __attribute__((cold)) pdn_region_take_kept(uint32_t number)
{
	if (!is_kept_for_nobody(number))
		return false;
	pdn_pending_add(1); /* first: frees look at it without the lock */
	pdn_stop_awaiting(number);
	pdn_regions[number].killer = pdn_my_tid();
	pdn_queue_append(&dying, number);
	set_state(number, PDN_DYING);
	return true;
}

/*
 * In a child that a signal handler forked just here the other threads are gone; so are their
 * announcements, once this thread has let go of the lock.
 */
void pdn_wait_for_reader(const struct pdn_thread *thread, uint32_t number)
{
	struct pdn_backoff rest = {0};

	while (__atomic_load_n(&thread->probing, __ATOMIC_ACQUIRE) == number &&
	       pdn_process_is_known())
		pdn_backoff(&rest);
}

/*
 * After the barrier, each hit that has loaded a live state is announced. The acquire pairs with the
 * release at the end of hold_if(): a hit that has ended has counted its hold. The state is this
 * thread's own store.
 */
static void __attribute__((noinline)) let_probes_of_others_pass(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk))) {
		uint32_t number = __atomic_load_n(&t->probing, __ATOMIC_SEQ_CST);

		if (!number ||
		    __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) != PDN_DYING)
			continue;
		/* A few instructions, unless that thread has lost its processor in between. */
		pdn_wait_for_reader(t, number);
	}
}

/* If this thread is alone, another one that gets its record from here on finds no live state. */
static inline void let_probes_pass(bool alone)
{
	if (!alone)
		let_probes_of_others_pass();
}

/*
 * It is still in use. A hold of our own keeps it from going away before everyone is notified. That
 * may be the last hold by then, so a free still waits for the region.
 */
static void __attribute__((noinline, cold)) keep(uint32_t number)
{
	pdn_hold(pdn_self_or_anonymous(), number);
	pdn_account_kept(&pdn_regions[number]);
	set_state(number, PDN_KEPT);
}

/*
 * After the barrier and with all announcements over, nobody can take a new hold, and every hold
 * that was taken is counted. A put that is missing in the sum will find the region KEPT and take
 * the lock. `first`: of the regions that are ending.
 */
static inline void let_hits_pass(uint32_t first)
{
	bool alone = pdn_heavy_barrier();

	PDN_POINT(END_BARRIER, pdn_regions[first].base);
	let_probes_pass(alone);
	PDN_POINT(END_COUNTING, pdn_regions[first].base);
}

static inline void keep_if(bool used, struct pdn_victims *victims, uint32_t number)
{
	if (__builtin_expect(used, 0)) {
		keep(number);
		victims->need_more = true;
	}
}

void pdn_victims_split_some(struct pdn_victims *victims)
{
	struct pdn_columns held;

	let_hits_pass(victims->first);
	pdn_columns_of(&held, pdn_holds);
	for (uint32_t n = victims->first; n; n = pdn_regions[n].victim)
		keep_if(pdn_columns_any(&held, n) || objects_hold(n), victims, n);
}

/*
 * For eviction, which must leave regions in use alone. No get takes a candidate meanwhile, and a
 * put of one takes the lock; candidates that are held get their state back.
 */
void __attribute__((cold))
pdn_victims_add_idle(struct pdn_victims *victims, uint32_t candidates, enum pindown_reason reason)
{
	struct sweep sweep = {.victims = victims, .reason = reason};
	struct pdn_columns held;
	bool alone;

	for (uint32_t n = candidates; n; n = pdn_regions[n].victim)
		set_state(n, PDN_DYING);
	PDN_POINT(EVICT_MARKED, pdn_region_base_now(candidates));
	alone = pdn_heavy_barrier();
	let_probes_pass(alone);
	PDN_POINT(EVICT_COUNTING, pdn_region_base_now(candidates));
	pdn_columns_of(&held, pdn_holds);
	for (uint32_t n = candidates, next; n; n = next) {
		next = pdn_regions[n].victim;
		if (pdn_columns_any(&held, n) || objects_hold(n))
			set_state(n, pdn_state_for(pdn_regions[n].flags & PDN_REGION_VOLATILE));
		else
			sweep_add(&sweep, n);
	}
	sweep_end(&sweep);
}

/* Somebody has forked meanwhile, and this is the child: the regions are its parent's. */
static bool is_abandoned(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_ABANDONED;
}

/* In a child the handle may be that of another pin, of the child's own. */
static void __attribute__((noinline)) unpin_backed(struct pindown_region *region)
{
	PDN_UNCANCELLED;
	struct pdn_pin pin = pdn_region_pin(region);
	const struct pdn_backend *backend = pdn_backend_of(&pin);

	if (is_abandoned(pdn_region_number(region)))
		return;
	if (backend)
		backend->unpin(&pin);
	pdn_region_drop_dmabuf(region);
}

/*
 * The region is DYING and this thread's: unpin it, without the lock. To others it is dying until
 * give_back(). Most often its backend has something of it.
 */
static inline void unpin_untraced(uint32_t number)
{
	PDN_POINT(END_UNPINNING, pdn_region_base_now(number));
	if (pdn_region_flags(&pdn_regions[number]) & PDN_REGION_BACKED)
		unpin_backed(&pdn_regions[number]);
	PDN_POINT(END_UNPINNED, pdn_region_base_now(number));
}

static void __attribute__((noinline)) unpin(uint32_t number, bool was_kept)
{
	PDN_UNCANCELLED;
	uint64_t begin = pdn_tracing(PDN_EV_UNPIN) ? pdn_ticks() : 0;

	unpin_untraced(number);
	if (pdn_tracing(PDN_EV_UNPIN))
		pdn_trace_about(PDN_EV_UNPIN, &pdn_regions[number], 0,
				was_kept ? PDN_TRACE_IN_USE : 0, begin, pdn_ticks());
}

/*
 * The first regions of a list, up to `last`, have been unpinned: several leave it under one taking
 * of the lock. But few, as other threads' frees of the memory may be waiting for them.
 */
struct unpinned {
	uint32_t count, last;
};
#define MOST_UNPINNED 16u

/* Lock held. Accounts for the regions up to `last`. */
static void account_unpinned(uint32_t first, uint32_t last)
{
	int device = pdn_regions[first].device;
	uint32_t count = 0;
	uint64_t bytes = 0;

	for (uint32_t n = first;; n = pdn_regions[n].victim) {
		const struct pindown_region *region = &pdn_regions[n];

		if (__builtin_expect(region->device != device, 0)) {
			pdn_account_unpins(device, count, bytes);
			device = region->device;
			count = 0;
			bytes = 0;
		}
		count++;
		bytes += pdn_region_pin_length(region);
		if (n == last)
			break;
	}
	pdn_account_unpins(device, count, bytes);
}

/* Lock held. The list is empty: it ends, unless regions of it are still to be looked at. */
static inline void leave_list(struct pdn_victims *victims, uint32_t next)
{
	victims->first = next;
	if (!next)
		end_list(victims);
	pdn_wake_waiters();
}

/* Records of unpinned regions are free again. Lock not held. */
static void give_back(struct pdn_victims *victims, struct unpinned *unpinned)
{
	uint32_t next;

	if (!unpinned->count)
		return;
	pdn_lock();
	if (is_listed(victims)) {
		next = pdn_regions[unpinned->last].victim;
		account_unpinned(victims->first, unpinned->last);
		pdn_regions_free(victims->first, unpinned->last);
		leave_list(victims, next);
	}
	pdn_unlock();
	unpinned->count = 0;
}

/* Lock held. It is no longer dying: the first of a list, or in the queue (victims is NULL). */
static void leave(struct pdn_victims *victims, uint32_t number)
{
	if (victims) {
		leave_list(victims, pdn_regions[number].victim);
		return;
	}
	pdn_queue_remove(&dying, number);
	pdn_pending_add(-1u);
	pdn_wake_waiters();
}

static void __attribute__((cold)) unpin_after_last_put(struct pdn_victims *victims, uint32_t number)
{
	unpin(number, true);
	pdn_lock();
	if (!is_abandoned(number)) {
		pdn_account_unpin(&pdn_regions[number], true);
		leave(victims, number);
		pdn_region_free(number);
	}
	pdn_unlock();
}

void pdn_unpin_kept(uint32_t number)
{
	unpin_after_last_put(NULL, number);
}

static unsigned trace_flags(const struct pindown_region *region, bool in_use)
{
	return (in_use ? PDN_TRACE_IN_USE : 0) |
	       (pdn_region_flags(region) & PDN_REGION_MISSED ? PDN_TRACE_MISSED : 0) |
	       (pdn_region_flags(region) & PDN_REGION_REPLACED ? PDN_TRACE_REPLACED : 0);
}

static void tell(const struct pindown_region *region, bool in_use)
{
	enum pdn_event event =
		region->reason == PINDOWN_REASON_EVICTED ? PDN_EV_EVICT : PDN_EV_INVALIDATE;

	if (pdn_tracing(event)) {
		uint64_t now = pdn_ticks();

		pdn_trace_about(event, region, 0, trace_flags(region, in_use), now, now);
	}
	pdn_tell_subscribers(region, in_use);
}

/* Everyone has been notified: drop keep()'s hold. `victims` as in leave(). */
static void __attribute__((noinline, cold)) let_go(struct pdn_victims *victims, uint32_t number)
{
	bool last;

	PDN_POINT(END_LETTING_GO, pdn_region_base_now(number));
	pdn_lock();
	if (is_abandoned(number)) { /* a signal handler has forked, and this is the child */
		pdn_unlock();
		return;
	}
	pdn_unhold(pdn_self_or_anonymous(), number);
	last = is_kept_for_nobody(number);
	if (last) {
		set_state(number, PDN_DYING); /* this thread's still */
	} else {
		leave(victims, number);
		if (pdn_objects_await_reuse(number))
			await_reuse(number);
	}
	pdn_unlock();
	if (last)
		unpin_after_last_put(victims, number);
}

/*
 * Notify everyone who built something on the region or asked to hear of its end. They may call
 * back.
 */
static void tell_all(uint32_t number, const char *missed, bool in_use)
{
	if (pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED)
		pdn_tell_of_miss(&pdn_regions[number], missed);
	if (!is_abandoned(number))
		tell(&pdn_regions[number], in_use);
	if (pdn_objects_any(number) && !is_abandoned(number))
		pdn_objects_end(number);
}

/* Nobody but a trace can want to hear of the end of any region that this thread has ended. */
static bool is_quiet(void)
{
	return !pdn_tracing(PDN_EV_EVICT) && !pdn_tracing(PDN_EV_INVALIDATE) &&
	       !pdn_has_subscribers() && !pdn_creations_any();
}

/* The same of this one: it is idle, and has only to be unpinned. */
static bool has_only_a_pin(uint32_t number)
{
	return __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_DYING &&
	       !pdn_first_object(number) &&
	       !(pdn_region_flags(&pdn_regions[number]) & PDN_REGION_MISSED);
}

/* Tell everyone, and let go of the region if it is in use. false: it is idle and to be unpinned. */
static bool ends_in_company(struct pdn_victims *victims, uint32_t number, struct unpinned *unpinned)
{
	bool in_use = __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) == PDN_KEPT;

	/* A callback may wait for a free in another thread, which may wait for a dying region. */
	if (in_use || pdn_has_subscribers() || pdn_objects_any(number))
		give_back(victims, unpinned);
	tell_all(number, victims->missed, in_use);
	if (is_abandoned(number))
		return true;
	if (in_use)
		let_go(victims, number);
	return in_use;
}

static int __attribute__((noinline, cold)) end_one_by_one(struct pdn_victims *victims)
{
	PDN_UNCANCELLED;
	struct unpinned unpinned = {.count = 0};
	bool quiet = is_quiet();
	int count = 0;

	for (uint32_t number = victims->first, next; number; number = next, count++) {
		next = pdn_regions[number].victim;
		if (unpinned.count == MOST_UNPINNED)
			give_back(victims, &unpinned);
		PDN_POINT(END_TELLING, pdn_region_base_now(number));
		if (!(quiet && has_only_a_pin(number)) &&
		    ends_in_company(victims, number, &unpinned))
			continue;
		unpin(number, false);
		unpinned.last = number;
		unpinned.count++;
	}
	give_back(victims, &unpinned);
	return count;
}

/* Unpins all of the list. No region of it is in use, and nobody is to be notified of an end. */
static int __attribute__((noinline)) unpin_all(struct pdn_victims *victims)
{
	struct unpinned unpinned = {.count = 0};
	bool traced = pdn_tracing(PDN_EV_UNPIN);
	int count = 0;

	for (uint32_t number = victims->first, next; number; number = next, count++) {
		next = pdn_regions[number].victim;
		if (unpinned.count == MOST_UNPINNED)
			give_back(victims, &unpinned);
		PDN_POINT(END_TELLING, pdn_region_base_now(number));
		if (is_abandoned(number)) /* a signal handler has forked, and this is the child */
			continue;
		if (traced)
			unpin(number, false);
		else
			unpin_untraced(number);
		unpinned.last = number;
		unpinned.count++;
	}
	give_back(victims, &unpinned);
	return count;
}

/* The same of one region, the usual case. */
static int unpin_one(struct pdn_victims *victims)
{
	uint32_t number = victims->first;
	const struct pindown_region *region = &pdn_regions[number];

	PDN_POINT(END_TELLING, pdn_region_base_now(number));
	if (pdn_tracing(PDN_EV_UNPIN))
		unpin(number, false);
	else
		unpin_untraced(number);
	pdn_lock();
	if (is_listed(victims)) {
		pdn_account_unpins(region->device, 1, pdn_region_pin_length(region));
		pdn_region_free(number);
		end_list(victims);
		pdn_wake_waiters();
	}
	pdn_unlock();
	return 1;
}

int pdn_victims_dispatch_some(struct pdn_victims *victims)
{
	int count;

	pdn_barrier_report();
	if (victims->need_more || !is_quiet() || pdn_any_object_ever())
		count = end_one_by_one(victims);
	else if (victims->first == victims->last)
		count = unpin_one(victims);
	else
		count = unpin_all(victims);
	victims->first = 0;
	return count;
}

/* ---- by scope ----------------------------------------------------------------------------- */

struct pdn_memory pdn_memory_of(const struct pindown_region *region)
{
	void *context = pdn_region_context(region);
	bool whole = context && pdn_region_flags(region) & PDN_REGION_WINDOW;

	return (struct pdn_memory){.base = whole ? pdn_rest_of(region)->whole_base : region->base,
				   .end = whole ? pdn_rest_of(region)->whole_end : region->end,
				   .context = context,
				   .device = region->device};
}

/* Of the allocation that holds scope->begin: the first region there or behind is its, or none. */
static void __attribute__((noinline, cold))
collect_windows(const struct pdn_scope *scope, struct pdn_victims *victims,
		enum pindown_reason reason)
{
	uint64_t at = scope->begin, before = 0;
	uint32_t number;

	while ((number = pdn_index_next(&at, PDN_ADDRESS_LIMIT)) != 0) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		if (!pdn_scope_covers(scope, &memory))
			return;
		if (!before) {
			before = at = memory.base;
			continue;
		}
		pdn_victims_add(victims, number, reason);
	}
}

static void collect_at(const struct pdn_scope *scope, struct pdn_victims *victims,
		       enum pindown_reason reason)
{
	uint32_t number = pdn_index_find(scope->begin);

	if (pdn_windows_may_hold(scope->begin))
		collect_windows(scope, victims, reason);
	else if (number && pdn_region_holds(&pdn_regions[number], scope->begin, 1))
		pdn_victims_add(victims, number, reason);
}

/* The next regions from *at on, which moves behind them: as pdn_index_run(), but 0 is the end. */
static unsigned next_in_range(uint64_t *at, uint64_t end, uint32_t found[PDN_INDEX_RUN])
{
	unsigned count = pdn_index_run(at, end, found);

	if (!count && (found[0] = pdn_index_next(at, end)) != 0)
		count = 1;
	if (count && pdn_regions[found[count - 1]].end > *at)
		*at = pdn_regions[found[count - 1]].end;
	return count;
}

static void collect_range(uint64_t begin, uint64_t end, struct pdn_victims *victims,
			  enum pindown_reason reason)
{
	struct sweep sweep = {.victims = victims, .reason = reason};
	uint32_t found[PDN_INDEX_RUN];
	uint64_t at = begin;
	unsigned count;

	/* A region that has a block alone may have ended before the part that was looked at. */
	while ((count = next_in_range(&at, end, found)) != 0) {
		for (unsigned i = 0; i < count; i++)
			if ((i > 0 && i < count - 1) ||
			    pdn_region_overlaps(&pdn_regions[found[i]], begin, end))
				sweep_one(&sweep, found[i]);
		begin = at;
	}
	sweep_end(&sweep);
}

static void __attribute__((noinline, cold))
collect_matching(const struct pdn_scope *scope, struct pdn_victims *victims,
		 enum pindown_reason reason)
{
	struct sweep sweep = {.victims = victims, .reason = reason};

	for (uint32_t number = pdn_queues_first(), next; number; number = next) {
		struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

		next = pdn_queues_next(number);
		if (pdn_scope_covers(scope, &memory))
			sweep_add(&sweep, number);
	}
	sweep_end(&sweep);
}

static void collect(const struct pdn_scope *scope, struct pdn_victims *victims,
		    enum pindown_reason reason)
{
	if (scope->kind != PDN_GUARD_RANGE)
		collect_matching(scope, victims, reason);
	else if (scope->end <= scope->begin)
		collect_at(scope, victims, reason);
	else
		collect_range(scope->begin, scope->end, victims, reason);
}

/* 0: nobody unpins it any more, as its thread has ended in a callback. */
static bool is_anothers(uint32_t number, uint32_t me)
{
	return pdn_regions[number].killer && pdn_regions[number].killer != me;
}

static bool is_under(uint32_t number, const struct pdn_scope *scope)
{
	struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

	return pdn_scope_covers(scope, &memory);
}

static bool __attribute__((noinline, cold)) is_dying_under(const struct pdn_scope *scope)
{
	uint32_t me = pdn_my_tid();

	for (const struct pdn_victims *v = ending; v; v = v->next)
		for (uint32_t n = v->killer == me ? 0 : v->first; n; n = pdn_regions[n].victim)
			if (is_under(n, scope))
				return true;
	for (uint32_t n = dying.oldest; n; n = pdn_regions[n].newer)
		if (is_anothers(n, me) && is_under(n, scope))
			return true;
	return false;
}

/* Lock held. */
static bool any_dying(void)
{
	return ending || dying.oldest;
}

bool pdn_dying_under(const struct pdn_scope *scope)
{
	return any_dying() && is_dying_under(scope);
}

bool pdn_dying_any(void)
{
	static const struct pdn_scope all = {.kind = PDN_GUARD_ALL};

	return pdn_dying_under(&all);
}

/* The regions of its lists, too, stay pinned and unsettled. */
void __attribute__((cold)) pdn_dying_drop_own(void)
{
	uint32_t me = pdn_my_tid();
	struct pdn_victims **v = &ending;

	while (*v)
		if ((*v)->killer == me)
			*v = (*v)->next;
		else
			v = &(*v)->next;
	for (uint32_t number = dying.oldest; number; number = pdn_regions[number].newer)
		if (pdn_regions[number].killer == me)
			pdn_regions[number].killer = 0;
}

/*
 * Other threads may be asking the driver about this memory, or be pinning it, and have been told to
 * give up, or be unpinning it for another reason. The free waits for all of them, so that the
 * driver is not asked during the free, and no pin keeps the memory when it returns. The wait ends
 * at a deadline: two threads that free inside subscribers' callbacks could wait for each other.
 */
static void __attribute__((noinline, cold)) wait_for_others(const struct pdn_scope *scope)
{
	PDN_UNCANCELLED;
	static bool said;
	uint64_t deadline = pdn_race_deadline();
	bool in_time;

	PDN_POINT(END_WAITING, scope->begin);
	in_time = pdn_flights_wait_for_answers(scope, deadline);
	pdn_lock();
	while (in_time && (pdn_flights_under(scope) || pdn_dying_under(scope)))
		in_time = pdn_wait_pending(deadline);
	pdn_unlock();
	if (!in_time)
		pdn_log_once(&said, PDN_LOG_WARN,
			     "a free has waited two seconds for another thread's pin or unpin of "
			     "the same memory and proceeds; the memory may come back late");
}

/*
 * Fetch everything that the end of one region looks at, so that the processor waits for all of it
 * at once: under the lock each load would begin only after the one before. 0: there is none at this
 * address, or several share its page.
 */
static inline uint32_t fetch(uint64_t addr)
{
	const struct pdn_thread *self = pdn_self_tls;
	uint32_t number = pdn_index_peek(addr);

	if ((int32_t)number <= 0)
		return 0;
	if (!self || !self->holds) /* no hold counts */
		return number;
	__builtin_prefetch(&self->holds[number]);
	__builtin_prefetch(&pdn_briefs[number], 1);
	__builtin_prefetch(&pdn_regions[number], 1);
	/*
	 * Its neighbours in the queue. Relaxed: pairs with set_link() in evict.c; any value will
	 * do.
	 */
	__builtin_prefetch(
		&pdn_regions[__atomic_load_n(&pdn_regions[number].older, __ATOMIC_RELAXED)], 1);
	__builtin_prefetch(
		&pdn_regions[__atomic_load_n(&pdn_regions[number].newer, __ATOMIC_RELAXED)], 1);
	return number;
}

/*
 * Lock held. Is it this thread's to end, now that its memory ends? In the queue of dying regions:
 * only if a callback that notifies of the replacement frees the memory.
 */
static bool is_replaced_here(uint32_t number, const struct pdn_scope *scope)
{
	return pdn_region_is_replaced(number) && pdn_briefs[number].state == PDN_KEPT &&
	       (pdn_regions[number].flags & PDN_REGION_AWAITS ||
		pdn_regions[number].killer == pdn_my_tid()) &&
	       is_under(number, scope);
}

/* Lock held. 0: there is none. */
static uint32_t next_replaced(const struct pdn_queue *queue, const struct pdn_scope *scope)
{
	uint32_t number = queue->oldest;

	while (number && !is_replaced_here(number, scope))
		number = pdn_regions[number].newer;
	return number;
}

/* Lock held. The same in the lists. */
static uint32_t next_replaced_ending(const struct pdn_scope *scope)
{
	for (const struct pdn_victims *v = ending; v; v = v->next)
		for (uint32_t n = v->first; n; n = pdn_regions[n].victim)
			if (is_replaced_here(n, scope))
				return n;
	return next_replaced(&dying, scope);
}

/* Lock held. As after keep(): its holders' last put leaves it to let_go(), and a free waits. */
static void keep_again(uint32_t number)
{
	pdn_stop_awaiting(number);
	pdn_pending_add(1);
	pdn_hold(pdn_self_or_anonymous(), number);
	pdn_regions[number].killer = pdn_my_tid();
	pdn_queue_append(&dying, number);
}

/* Of a region that was dying already, the caller that this is nested in lets go. */
void __attribute__((cold))
pdn_end_replaced(const struct pdn_scope *scope, enum pindown_reason reason)
{
	uint32_t number;
	bool awaits;

	do {
		pdn_lock();
		number = next_replaced(&awaiting, scope);
		awaits = number != 0;
		if (awaits)
			keep_again(number);
		else
			number = next_replaced_ending(scope);
		if (number) {
			/* Relaxed: an object may just be made on it (discard() in attach.c). */
			__atomic_store_n(&pdn_regions[number].reason, (uint8_t)reason,
					 __ATOMIC_RELAXED);
			pdn_objects_unlink(number, reason);
		}
		pdn_unlock();
		if (number && !is_abandoned(number))
			pdn_objects_end(number);
		if (awaits && !is_abandoned(number))
			let_go(NULL, number);
	} while (number);
}

/*
 * Lock held. After a heavy barrier: pins of memory that the scope covers lose. true: wait for some.
 */
static bool mark_flights(const struct pdn_scope *scope)
{
	bool any = pdn_flights_any() && pdn_flights_mark_lost(scope);

	if (any)
		pdn_wake_waiters(); /* one of them may wait for room: make_some_room() */
	return any;
}

/* Lock held. Is this region, which the index has at scope->begin, all that the scope covers? */
static inline bool is_all(uint32_t number, const struct pdn_scope *scope)
{
	const struct pindown_region *region = &pdn_regions[number];

	if (scope->end > scope->begin)
		return pdn_region_holds(region, scope->begin, scope->end - scope->begin);
	return pdn_region_holds(region, scope->begin, 1) && !pdn_region_any_window();
}

/*
 * Lock held; it is let go. The usual case of pdn_end_scope(), in a straight line: where it passes
 * no cancellation point, it need not be shielded from more than PDN_CANCELLED_LATER does.
 */
static int __attribute__((noinline))
end_one(uint32_t number, const struct pdn_scope *scope, enum pindown_reason reason)
{
	struct pdn_victims victims = {0};
	bool wait;

	add(&victims, number, reason);
	let_hits_pass(number);
	keep_if(pdn_region_in_use(number) || objects_hold(number), &victims, number);
	wait = mark_flights(scope);
	pdn_unlock();
	pdn_victims_dispatch_some(&victims);
	if (wait)
		wait_for_others(scope);
	return 1;
}

/* Lock held; it is let go. */
static int __attribute__((noinline))
end_several(const struct pdn_scope *scope, enum pindown_reason reason)
{
	PDN_UNCANCELLED;
	struct pdn_victims victims = {0};
	bool wait, may_be_replaced;
	int count;

	may_be_replaced = reason != PINDOWN_REASON_FLUSHED && (awaiting.oldest || any_dying());
	/* Look for other threads' unpins before adding our own. */
	wait = pdn_dying_under(scope);
	collect(scope, &victims, reason);
	pdn_victims_split_idle_and_held(&victims);
	wait |= mark_flights(scope);
	pdn_unlock();
	count = pdn_victims_dispatch(&victims);
	if (wait)
		wait_for_others(scope);
	/* After that wait: another thread may just have replaced some. */
	if (may_be_replaced)
		pdn_end_replaced(scope, reason);
	return count;
}

int pdn_end_scope(const struct pdn_scope *scope, enum pindown_reason reason)
{
	uint64_t seq = pdn_index_read_begin();
	uint32_t number = scope->kind == PDN_GUARD_RANGE ? fetch(scope->begin) : 0;

	pdn_lock();
	if (number && pdn_index_unchanged(seq) && !awaiting.oldest && !any_dying() &&
	    is_all(number, scope))
		return end_one(number, scope, reason);
	return end_several(scope, reason);
}

PDN_EXPORT int pindown_invalidate(uint64_t addr, size_t length)
{
	PDN_CANCELLED_LATER;
	struct pdn_scope scope = {.kind = PDN_GUARD_RANGE, .begin = addr, .end = addr + length};

	if (addr + length < addr)
		return PINDOWN_ERR_INVALID;
	return pdn_end_scope(&scope, PINDOWN_REASON_FLUSHED);
}

PDN_EXPORT int pindown_invalidate_context(void *context)
{
	PDN_UNCANCELLED;
	struct pdn_scope scope = {.kind = PDN_GUARD_CONTEXT, .context = context};

	if (!context)
		return PINDOWN_ERR_INVALID;
	return pdn_end_scope(&scope, PINDOWN_REASON_FLUSHED);
}

/* See thread_quits in base/thread.h. */
static void __attribute__((cold)) forsake(void)
{
	pdn_lock();
	pdn_flights_drop_own();
	pdn_creations_drop_own();
	pdn_dying_drop_own();
	pdn_objects_drop_own();
	pdn_wake_waiters();
	pdn_unlock();
}

PDN_NOTIFIED(thread_quits, forsake);

void __attribute__((cold)) pdn_end_fork_child(void)
{
	ending = NULL;
	dying = awaiting = (struct pdn_queue){0};
	awaiting_count = 0;
}
