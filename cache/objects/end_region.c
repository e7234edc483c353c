/* SPDX-License-Identifier: MIT */
/* Ending consumer objects with their region. */
#define _GNU_SOURCE
#include "cache/account.h"
#include "cache/awaiting.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/thread.h"
#include "cache/objects/end.h"
#include "cache/objects/held.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/trace/writer.h"

/*
 * On a region that was live until now, an object is KEPT if its owner ended earlier. ENDING: this
 * thread is ending it already, and in a callback for that its memory ends.
 */
void pdn_objects_unlink_some(uint32_t region, enum pindown_reason reason)
{
	pdn_objects_serve_no_more(region);
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_LIVE ||
		    pdn_objects[n].state == PDN_OBJECT_ENDING ||
		    pdn_objects[n].state == PDN_OBJECT_KEPT)
			pdn_object_begin_end(&pdn_objects[n], reason);
}

/* Its consumer may be leaving, and have given up waiting for this thread. */
static bool must_go(const struct pindown_object *object, enum pindown_reason reason)
{
	return pdn_objects_are_revoked_for(reason) || pdn_consumer(object->consumer)->leaving;
}

/*
 * Lock held. This thread claims idle objects, and those to be revoked; the others are kept. Returns
 * the claimed ones.
 */
static uint32_t claim_or_keep(uint32_t region, struct pdn_held_objects *held)
{
	enum pindown_reason reason = pdn_regions[region].reason;
	uint32_t chain = 0;

	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next) {
		if (pdn_objects[n].state != PDN_OBJECT_ENDING)
			continue;
		if (!pdn_object_is_held(n) || must_go(&pdn_objects[n], reason)) {
			pdn_object_claim(n, &chain);
		} else {
			pdn_object_set_state(&pdn_objects[n], PDN_OBJECT_KEPT);
			pdn_held_count(pdn_objects[n].consumer, held);
		}
	}
	pdn_account_objects(&pdn_regions[region]);
	return chain;
}

/* Lock held. Is another thread destroying or making an object on the region? */
static bool others_work_on(uint32_t region)
{
	uint32_t me = pdn_my_tid();

	if (pdn_creations_on(region))
		return true;
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_DYING &&
		    pdn_object_is_another_threads(&pdn_objects[n], me))
			return true;
	return false;
}

static void wait_for_others_on(uint32_t region)
{
	static bool said;
	uint64_t deadline = pdn_race_deadline();
	bool in_time = true;

	pdn_lock();
	while (in_time && others_work_on(region))
		in_time = pdn_wait_pending(deadline);
	pdn_unlock();
	if (!in_time)
		pdn_log_once(&said, PDN_LOG_WARN, PDN_WAITED_FOR, "registration");
}

/* Lock held. */
static void claim_kept_on(uint32_t region, uint32_t *chain)
{
	for (uint32_t n = pdn_objects_of[region]; n; n = pdn_objects[n].next)
		if (pdn_objects[n].state == PDN_OBJECT_KEPT)
			pdn_object_claim(n, chain);
}

void pdn_objects_end_reused(uint64_t begin, uint64_t end)
{
	uint32_t chain = 0;

	pdn_lock();
	for (uint32_t number = pdn_first_awaiting(), next; number; number = next) {
		next = pdn_regions[number].newer;
		if (!pdn_region_overlaps(&pdn_regions[number], begin, end))
			continue;
		pdn_stop_awaiting(number);
		claim_kept_on(number, &chain);
	}
	pdn_unlock();
	if (chain)
		pdn_objects_destroy_claimed(chain);
}

void pdn_objects_end(uint32_t region)
{
	enum pindown_reason reason = pdn_regions[region].reason; /* set by this thread */
	struct pdn_held_objects held = {0};
	uint64_t made_at = 0;
	uint32_t chain;

	if (pdn_first_object(region))
		made_at = pdn_objects_name_holders(region, reason,
						   pdn_objects_are_revoked_for(reason));
	pdn_lock();
	chain = claim_or_keep(region, &held);
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
