/* SPDX-License-Identifier: MIT */
/*
 * Unpinning regions that have ended: at once if nobody uses them; or they stay pinned for their
 * holders, and for those of their objects, and the last one to let go unpins them.
 */
#define _GNU_SOURCE
#include "cache/show/account.h"
#include "cache/backend/backend.h"
#include "cache/base/thread/cancel.h"
#include "cache/pin/region_trace.h"
#include "cache/trace/writer/events.h"
#include "cache/base/thread/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"
#include "cache/hit/index.h"
#include "cache/end/kept.h"
#include "cache/objects/end.h"
#include "cache/hit/announced.h"
#include "cache/room/queues.h"
#include "cache/hit/region.h"

/* ---- unpinning ------------------------------------------------------------------------------- */

static void unpin_backed(struct pindown_region *region)
{
	struct pdn_pin pin = pdn_region_pin(region);
	const struct pdn_backend *backend = pdn_backend_of(&pin);

	if (backend)
		backend->unpin(&pin);
	pdn_region_drop_dmabuf(region);
}

/*
 * The first region of the list is DYING: unpin it, without the lock, shielded from cancellation. To
 * others it is dying until its record is free. Most often its backend has something of it.
 */
static void unpin(struct pdn_ending *ending, bool was_kept)
{
	uint32_t number = ending->first;
	struct pindown_region *region = &pdn_regions[number];
	uint64_t begin = pdn_tracing(PDN_EV_UNPIN) ? pdn_ticks() : 0;

	PDN_POINT(END_UNPINNING, pdn_region_base_now(number));
	if (pdn_region_flags(region) & PDN_REGION_BACKED)
		unpin_backed(region);
	PDN_POINT(END_UNPINNED, pdn_region_base_now(number));
	if (pdn_tracing(PDN_EV_UNPIN))
		pdn_trace_about(PDN_EV_UNPIN, region, 0, was_kept ? PDN_TRACE_IN_USE : 0, begin,
				pdn_ticks());
	pdn_lock();
	if (!pdn_process_is_off()) {
		pdn_account_unpin(region, was_kept);
		pdn_ending_leave(ending);
		pdn_region_free(number);
	}
	pdn_unlock();
}

void pdn_unpin_idle(struct pdn_ending *ending)
{
	unpin(ending, false);
}

/* ---- awaiting the end of their memory ------------------------------------------------------- */

static PDN_NOT_INHERITED struct pdn_queue
	awaiting; /* the list of pdn_first_awaiting(); under the lock */
static PDN_NOT_INHERITED uint32_t awaiting_count; /* changed under the lock */

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

void pdn_await_reuse(uint32_t number)
{
	if (pdn_regions[number].flags & PDN_REGION_AWAITS)
		return;
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

/* ---- kept ----------------------------------------------------------------------------------- */

static bool is_used(uint32_t number)
{
	return pdn_region_in_use(number) || pdn_objects_hold(number);
}

/* Lock held. */
static bool is_kept_for_nobody(uint32_t number)
{
	return pdn_state_of(number) == PDN_KEPT && !is_used(number);
}

void pdn_keep(uint32_t number)
{
	pdn_hold(pdn_self_or_anonymous(), number);
	pdn_account_kept(&pdn_regions[number]);
	pdn_region_set_state(number, PDN_KEPT);
}

void pdn_take_over(struct pdn_ending *ending, uint32_t number)
{
	pdn_ending_append(ending, number);
	pdn_stop_awaiting(number);
}

/* At once, and not only just before the unpin: its last holder may now free the memory. */
void pdn_region_take_kept(struct pdn_ending *ending, uint32_t number)
{
	if (!is_kept_for_nobody(number))
		return;
	pdn_take_over(ending, number);
	pdn_region_set_state(number, PDN_DYING);
}

void pdn_unpin_kept(struct pdn_ending *ending)
{
	PDN_UNCANCELLED;

	while (ending->first && !pdn_process_is_off())
		unpin(ending, true);
}

void pdn_let_go(struct pdn_ending *ending)
{
	uint32_t number = ending->first;
	bool last;

	PDN_POINT(END_LETTING_GO, pdn_region_base_now(number));
	pdn_comparisons_pass(number);
	pdn_lock();
	/* A signal handler may have forked, and this be the child. */
	if (pdn_process_is_off()) {
		pdn_unlock();
		return;
	}
	pdn_unhold(pdn_self_or_anonymous(), number);
	last = is_kept_for_nobody(number);
	if (last) {
		pdn_region_set_state(number, PDN_DYING); /* this thread's still */
		pdn_stop_awaiting(number);
	} else {
		pdn_ending_leave(ending);
		if (pdn_objects_await_reuse(number))
			pdn_await_reuse(number);
	}
	pdn_unlock();
	if (last)
		unpin(ending, true);
}
