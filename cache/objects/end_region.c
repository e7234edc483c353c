/* SPDX-License-Identifier: MIT */
/* Ending consumer objects with their region. */
#define _GNU_SOURCE
#include "cache/show/account.h"
#include "cache/end/kept.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/thread.h"
#include "cache/objects/end.h"
#include "cache/objects/held.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/retire/retired.h"

/* Does all of the region's memory end with the scope? */
static bool is_whole(uint32_t region, const struct pdn_scope *scope)
{
	return !scope || scope->kind != PDN_GUARD_RANGE ||
	       (scope->begin <= pdn_regions[region].base && pdn_regions[region].end <= scope->end);
}

/*
 * Lock held. An object that a hit takes just now counts or not: the program frees and registers at
 * the same time.
 */
static bool any_held_may_retire(uint32_t region)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].may_retire && pdn_object_is_held(n))
			return true;
	return false;
}

static bool any_names_holders(uint32_t region)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_consumer(pdn_objects[n].consumer)->holders)
			return true;
	return false;
}

/*
 * Lock held. Where a part ends, it is asked first who holds the objects, if their consumers know
 * (pdn_objects_ask_holders()); else they end with any part.
 */
static bool ends_held(uint32_t region, enum pindown_reason reason, const struct pdn_scope *scope)
{
	switch (pdn_config()->held) {
	case PDN_HELD_REVOKE:
		return pdn_reason_ends_memory(reason) &&
		       (is_whole(region, scope) || !any_names_holders(region));
	case PDN_HELD_RETIRE:
		return scope && scope->retires && any_held_may_retire(region) &&
		       pdn_region_may_retire(region, scope->begin) &&
		       pdn_retire_begin(region) == PDN_RETIRES_BEFORE;
	default:
		return false;
	}
}

/*
 * On a region that was live until now, an object is KEPT if its owner ended earlier. ENDING: this
 * thread is ending it already, and in a callback for that its memory ends.
 */
void pdn_objects_unlink_some(uint32_t region, enum pindown_reason reason,
			     const struct pdn_scope *scope)
{
	unsigned flags = pdn_regions[region].flags & ~PDN_REGION_ENDS_HELD;

	pdn_objects_serve_no_more(region);
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_LIVE ||
		    pdn_objects[n].state == PDN_OBJECT_ENDING ||
		    pdn_objects[n].state == PDN_OBJECT_KEPT) {
			pdn_object_begin_end(&pdn_objects[n], reason);
			pdn_objects[n].is_touched = true;
			pdn_objects[n].outlives = false;
		}
	if (ends_held(region, reason, scope))
		flags |= PDN_REGION_ENDS_HELD;
	pdn_region_set_flags(&pdn_regions[region], flags);
}

/* Its consumer may be leaving, and have given up waiting for this thread. */
static bool must_go(const struct pindown_object *object, const struct pdn_scope *part)
{
	return pdn_object_ends_held(object) || pdn_object_is_revoked_in_part(object, part) ||
	       pdn_consumer(object->consumer)->leaving;
}

/*
 * Lock held. This thread claims idle objects, and those to be revoked; the others are kept. Returns
 * the claimed ones.
 */
static uint32_t claim_or_keep(uint32_t region, const struct pdn_scope *part,
			      struct pdn_held_objects *held)
{
	enum pindown_reason reason = pdn_regions[region].reason;
	bool any_held = false;
	uint32_t chain = 0;

	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next) {
		bool is_held = pdn_object_is_held(n);

		if (pdn_objects[n].state != PDN_OBJECT_ENDING)
			continue;
		any_held |= is_held && pdn_objects[n].may_retire;
		if (!is_held || must_go(&pdn_objects[n], part)) {
			pdn_object_claim(n, &chain);
			continue;
		}
		pdn_object_set_state(&pdn_objects[n], PDN_OBJECT_KEPT);
		if (!pdn_objects[n].is_touched || pdn_objects[n].was_counted)
			continue;
		pdn_objects[n].was_counted =
			reason != PINDOWN_REASON_EVICTED && reason != PINDOWN_REASON_FLUSHED;
		pdn_held_count(pdn_objects[n].consumer, held);
		held->outlast |= !pdn_objects[n].may_retire;
	}
	if (!any_held)
		pdn_retire_cancel(region);
	pdn_account_objects(&pdn_regions[region]);
	return chain;
}

/* Lock held. Is another thread destroying or making an object on the region? */
static uint32_t who_works_on(uint32_t region)
{
	uint32_t me = pdn_my_tid(), maker = pdn_creations_on(region);

	if (maker)
		return maker;
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_DYING &&
		    pdn_object_is_another_threads(&pdn_objects[n], me))
			return pdn_objects[n].worker;
	return 0;
}

static void wait_for_others_on(uint32_t region)
{
	uint64_t deadline;
	uint32_t other;
	bool in_time;

	do {
		deadline = pdn_race_deadline();
		in_time = true;
		pdn_lock();
		while (in_time && (other = who_works_on(region)) != 0)
			in_time = pdn_wait_busy(deadline);
		pdn_unlock();
	} while (!in_time && pdn_free_waits_on(other, "registration"));
}

/* Lock held. */
static void claim_kept_on(uint32_t region, bool retired, uint32_t *chain)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT &&
		    (!retired || pdn_objects[n].may_retire))
			pdn_object_claim(n, chain);
}

/* Lock held, and dropped. */
static void end_retired(uint32_t region)
{
	uint32_t chain = 0;

	claim_kept_on(region, true, &chain);
	pdn_unlock();
	if (chain)
		pdn_objects_destroy_claimed(chain);
	pdn_lock();
}

PDN_NOTIFIED(address_retired, end_retired);

void pdn_objects_end_reused(uint64_t begin, uint64_t end)
{
	uint32_t chain = 0;

	pdn_lock();
	for (uint32_t number = pdn_first_awaiting(), next; number; number = next) {
		next = pdn_regions[number].newer;
		if (pdn_regions[number].reason != PINDOWN_REASON_ORDERED ||
		    !pdn_region_overlaps(&pdn_regions[number], begin, end))
			continue;
		pdn_stop_awaiting(number);
		claim_kept_on(number, false, &chain);
	}
	pdn_unlock();
	if (chain)
		pdn_objects_destroy_claimed(chain);
}

void pdn_objects_end(uint32_t region, const struct pdn_scope *scope)
{
	enum pindown_reason reason = pdn_regions[region].reason; /* set by this thread */
	bool whole = reason == PINDOWN_REASON_FLUSHED || is_whole(region, scope);
	const struct pdn_scope *part = whole ? NULL : scope;
	struct pdn_held_objects held = {0};
	uint64_t made_at = 0;
	uint32_t chain;

	if (pdn_first_object(region)) {
		if (part)
			pdn_objects_ask_holders(region, part);
		made_at = pdn_objects_name_holders(region, reason, part);
	}
	pdn_lock();
	chain = claim_or_keep(region, part, &held);
	pdn_unlock();
	if (held.all)
		pdn_held_report(&pdn_regions[region], &held, made_at);
	if (chain)
		pdn_objects_destroy_claimed(chain);
	/*
	 * A get that ends the region need not wait: its memory has ended, or lives on. Relaxed:
	 * only this thread changes the state before the region's end is complete.
	 */
	if (reason != PINDOWN_REASON_STALE && reason != PINDOWN_REASON_EVICTED &&
	    __atomic_load_n(&pdn_briefs[region].state, __ATOMIC_RELAXED) == PDN_KEPT)
		wait_for_others_on(region);
}
