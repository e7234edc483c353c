/* SPDX-License-Identifier: MIT */
/* Work: frees and pins that meet, and frees that wait for regions to end. */
#define _GNU_SOURCE
#include "cache/end/work.h"

#include <errno.h>
#include <stddef.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/lock.h"
#include "cache/base/test_point.h"

PDN_NOT_INHERITED struct pdn_work *pdn_works;

/*
 * Under the lock work is added, but none is removed by another thread. Acquire: pairs with add().
 */
static struct pdn_work *latest(void)
{
	return __atomic_load_n(&pdn_works, __ATOMIC_ACQUIRE);
}

/*
 * Sequentially consistent: frees look for it when their guard is up. A child that is forked
 * meanwhile finds a list that is whole.
 */
static inline void add(struct pdn_work *work, enum pdn_work_kind kind)
{
	work->kind = kind;
	work->tid = pdn_my_tid();
	work->next = __atomic_load_n(&pdn_works, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&pdn_works, &work->next, work, true, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED))
		;
}

/*
 * It is not the latest any more. Not found: this is a child, forked in the middle of it, and the
 * list began again; or the thread's work was dropped.
 */
static void __attribute__((noinline)) remove_later(struct pdn_work *work)
{
	struct pdn_work *w = latest();

	while (w && w->next != work)
		w = w->next;
	if (w)
		__atomic_store_n(&w->next, work->next, __ATOMIC_RELEASE);
}

/*
 * Lock held. Release: a free that does not find it any more finds its region in the index, or what
 * it has ended unpinned. Its own `next` is changed under the lock only.
 */
static void end(struct pdn_work *work)
{
	struct pdn_work *found = work;

	if (!__atomic_compare_exchange_n(&pdn_works, &found, work->next, false, __ATOMIC_RELEASE,
					 __ATOMIC_RELAXED))
		remove_later(work);
}

static struct pdn_flight *flight_of(struct pdn_work *work)
{
	return work->kind == PDN_FLIES ? (struct pdn_flight *)work : NULL;
}

static struct pdn_ending *ending_of(struct pdn_work *work)
{
	return work->kind == PDN_ENDS ? (struct pdn_ending *)work : NULL;
}

static struct pdn_memory reach_of(const struct pdn_flight *flight)
{
	struct pdn_memory reach = flight->memory;

	reach.base = flight->reach_begin;
	reach.end = flight->reach_end;
	return reach;
}

static bool covers_reach_of(const struct pdn_scope *scope, const struct pdn_flight *flight)
{
	const struct pdn_memory reach = reach_of(flight);

	return pdn_scope_covers(scope, &reach);
}

static bool ends_some(const struct pdn_ending *ending, const struct pdn_scope *scope)
{
	for (uint32_t n = ending->first; n; n = pdn_regions[n].next)
		if (pdn_region_is_under(n, scope))
			return true;
	return false;
}

static bool touches(struct pdn_work *work, const struct pdn_scope *scope)
{
	if (work->kind == PDN_ENDS)
		return ends_some((struct pdn_ending *)work, scope);
	return scope->kind > PDN_GUARD_RANGE || covers_reach_of(scope, (struct pdn_flight *)work);
}

uint32_t pdn_work_under(const struct pdn_scope *scope)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_work *w = latest(); w; w = w->next)
		if (w->tid != me && touches(w, scope))
			return w->tid;
	return 0;
}

void pdn_work_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_work *w = latest(); w; w = w->next)
		if (w->tid == me)
			end(w);
}

/* Its owner may look at it without the lock, too (pdn_flight_lost()). */
static void set_lost(struct pdn_flight *flight)
{
	__atomic_store_n(&flight->lost, true, __ATOMIC_RELAXED);
}

/* ---- flights ----------------------------------------------------------------------------- */

bool pdn_any_flight_ever;

void pdn_flight_add(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	flight->memory.base = flight->reach_begin = begin;
	flight->memory.end = flight->reach_end = end;
	flight->memory.context = PDN_ANY_CONTEXT;
	flight->lost = false;
	flight->reserved = 0;
	flight->pin = NULL;
	if (!pdn_frees_ask()) /* each free loads it: its cache line stays unwritten */
		__atomic_store_n(&pdn_any_flight_ever, true, __ATOMIC_RELAXED);
	add(&flight->work, PDN_FLIES);
}

unsigned pdn_flight_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	pdn_flight_add(flight, begin, end);
	PDN_POINT(QUESTION_BEGUN, begin);
	/*
	 * Not earlier: which barriers there are is found out when the first thread gets its record,
	 * as this one has by now.
	 */
	if (!pdn_barrier_is_registered())
		pdn_barrier_register();
	/* Pairs with pdn_guard_up()'s publish. */
	pdn_heavy_barrier();
	pdn_barrier_report();
	return pdn_guard_on(&flight->memory);
}

/* Lock held. */
static void reach_to(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	if (begin < flight->reach_begin)
		flight->reach_begin = begin;
	if (end > flight->reach_end)
		flight->reach_end = end;
}

unsigned pdn_flight_reach_further(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	struct pdn_memory reach;

	pdn_lock();
	reach_to(flight, begin, end);
	reach = reach_of(flight);
	pdn_unlock();
	pdn_heavy_barrier();
	return pdn_guard_on(&reach);
}

void pdn_flight_is_of(struct pdn_flight *flight, const struct pdn_memory *memory)
{
	flight->memory = *memory;
	reach_to(flight, memory->base, memory->end);
}

/*
 * A guard's owner wakes nobody when it takes it down: that would put a wake-up on the path of every
 * free. So this side looks again and again, sleeping longer each time.
 */
bool pdn_flight_wait(const struct pdn_flight *flight)
{
	const struct pdn_memory reach = reach_of(flight);
	uint64_t deadline = pdn_race_deadline();
	struct pdn_backoff rest = {0};
	bool in_time = true;

	pdn_thread_set_waits(true);
	while (in_time && pdn_guard_on(&reach) & PDN_GUARDED) {
		in_time = pdn_deadline(0) < deadline;
		if (in_time)
			pdn_backoff(&rest);
	}
	pdn_thread_set_waits(false);
	return in_time;
}

enum pdn_truth pdn_compare_memory(uint64_t begin, uint64_t end, uint64_t buffer_id,
				  uint64_t mappings_hash)
{
	enum pdn_truth answer = PDN_UNKNOWN;
	struct pdn_flight flight;
	int saved = errno;

	if (!(pdn_flight_begin(&flight, begin, end) & PDN_GUARDED))
		answer = pdn_driver_compare(begin, end, buffer_id, mappings_hash);
	pdn_flight_end_unlocked(&flight);
	errno = saved;
	return answer;
}

void pdn_flight_end(struct pdn_flight *flight)
{
	end(&flight->work);
	pdn_wake_waiters();
}

void pdn_flight_end_unlocked(struct pdn_flight *flight)
{
	pdn_lock();
	pdn_flight_end(flight);
	pdn_unlock();
}

static bool may_pin(const struct pdn_flight *flight, const struct pdn_scope *scope)
{
	return flight->pin ? pdn_scope_covers(scope, &flight->memory)
			   : covers_reach_of(scope, flight);
}

void pdn_flights_mark_lost(const struct pdn_scope *scope)
{
	for (struct pdn_work *w = latest(); w; w = w->next)
		if (flight_of(w) && may_pin(flight_of(w), scope))
			set_lost(flight_of(w));
}

/* Does it pin memory that overlaps this one's? */
static bool pins_some_of(const struct pdn_flight *flight, const struct pdn_memory *memory)
{
	return flight && flight->pin && flight->memory.base < memory->end &&
	       memory->base < flight->memory.end;
}

bool pdn_flight_is_duplicate(const struct pdn_flight *flight)
{
	for (struct pdn_work *w = latest(); w; w = w->next)
		if (w->tid != flight->work.tid && pins_some_of(flight_of(w), &flight->memory))
			return true;
	return false;
}

void pdn_flights_each_pin(void (*fn)(struct pdn_pin *pin))
{
	for (struct pdn_work *w = latest(); w; w = w->next)
		if (flight_of(w) && flight_of(w)->pin)
			fn(flight_of(w)->pin);
}

uint64_t pdn_flights_reserved(uint32_t *count)
{
	uint64_t bytes = 0;

	*count = 0;
	for (struct pdn_work *w = latest(); w; w = w->next)
		if (flight_of(w) && flight_of(w)->reserved) {
			bytes += flight_of(w)->reserved;
			++*count;
		}
	return bytes;
}

/* Not this thread's own, which it may be in the middle of: it would wait for itself. */
bool pdn_flights_of_others_reserve(void)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_work *w = latest(); w; w = w->next)
		if (w->tid != me && flight_of(w) && flight_of(w)->reserved)
			return true;
	return false;
}

/* ---- endings ------------------------------------------------------------------------------ */

void pdn_ending_append(struct pdn_ending *ending, uint32_t number)
{
	pdn_regions[number].next = 0;
	if (ending->first) {
		pdn_regions[ending->last].next = number;
	} else {
		ending->first = number;
		add(&ending->work, PDN_ENDS);
	}
	ending->last = number;
}

void pdn_ending_leave(struct pdn_ending *ending)
{
	ending->first = pdn_regions[ending->first].next;
	if (!ending->first)
		end(&ending->work);
	pdn_wake_waiters();
}

bool pdn_endings_any(void)
{
	for (struct pdn_work *w = latest(); w; w = w->next)
		if (ending_of(w))
			return true;
	return false;
}

bool pdn_endings_of_others(void)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_work *w = latest(); w; w = w->next)
		if (w->tid != me && ending_of(w))
			return true;
	return false;
}

uint32_t pdn_find_own_ending(bool (*is_it)(uint32_t number, const struct pdn_scope *scope),
			     const struct pdn_scope *scope)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_work *w = latest(); w; w = w->next) {
		uint32_t n = w->tid == me && ending_of(w) ? ending_of(w)->first : 0;

		while (n && !is_it(n, scope))
			n = pdn_regions[n].next;
		if (n)
			return n;
	}
	return 0;
}

struct pdn_memory pdn_memory_of(const struct pindown_region *region)
{
	void *context = pdn_region_context(region);
	bool whole = context && pdn_region_flags(region) & PDN_REGION_WINDOW;

	return (struct pdn_memory){.base = whole ? pdn_kind_data_of(region)->whole_base
						 : region->base,
				   .end = whole ? pdn_kind_data_of(region)->whole_end : region->end,
				   .context = context,
				   .device = region->device};
}

bool pdn_region_is_under(uint32_t number, const struct pdn_scope *scope)
{
	struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

	return pdn_scope_covers(scope, &memory);
}
