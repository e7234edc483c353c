/* SPDX-License-Identifier: MIT */
/* Which regions are ending, and by which thread: other threads' frees of them wait. */
#include "cache/base/lock.h"
#include "cache/base/process.h"
#include "cache/base/thread.h"
#include "cache/end/ending.h"
#include "cache/room/queues.h"
#include "cache/end/race.h"
#include "cache/hit/region.h"

/* Regions that are being unpinned, under the lock: those in lists, and kept ones. */
static PDN_NOT_INHERITED struct pdn_victims *ending;
static PDN_NOT_INHERITED struct pdn_queue dying;

/*
 * Busy goes up before the first region leaves the index: a free that no longer finds it there,
 * without the lock, has then seen that something is under way (see pdn_end_range() in
 * hook_events.c). Once for all of the list.
 */
void pdn_victims_begin(struct pdn_victims *victims)
{
	pdn_busy_add(1);
	victims->ender = pdn_my_tid();
	victims->next = ending;
	ending = victims;
}

/* The list is empty: nobody finds it from here on. */
static void end_list(struct pdn_victims *victims)
{
	struct pdn_victims **v = &ending;

	while (*v != victims)
		v = &(*v)->next;
	*v = victims->next;
	pdn_busy_add(-1u);
}

void pdn_dying_append(uint32_t number)
{
	pdn_regions[number].ender = pdn_my_tid();
	pdn_queue_append(&dying, number);
}

void pdn_ending_leave(struct pdn_victims *victims, uint32_t number)
{
	if (victims) {
		victims->first = pdn_regions[number].victim;
		if (!victims->first)
			end_list(victims);
		pdn_wake_waiters();
		return;
	}
	pdn_queue_remove(&dying, number);
	pdn_busy_add(-1u);
	pdn_wake_waiters();
}

const struct pdn_victims *pdn_first_ending(void)
{
	return ending;
}

uint32_t pdn_first_dying(void)
{
	return dying.oldest;
}

struct pdn_memory pdn_memory_of(const struct pindown_region *region)
{
	void *context = pdn_region_context(region);
	bool whole = context && pdn_region_flags(region) & PDN_REGION_WINDOW;

	return (struct pdn_memory){.base = whole ? pdn_rest_of(region)->whole_base : region->base,
				   .end = whole ? pdn_rest_of(region)->whole_end : region->end,
				   .context = context,
				   .device = region->device};
}

/* 0: nobody unpins it any more, as its thread has ended in a callback. */
static bool is_anothers(uint32_t number, uint32_t me)
{
	return pdn_regions[number].ender && pdn_regions[number].ender != me;
}

bool pdn_region_is_under(uint32_t number, const struct pdn_scope *scope)
{
	struct pdn_memory memory = pdn_memory_of(&pdn_regions[number]);

	return pdn_scope_covers(scope, &memory);
}

static uint32_t ender_under(const struct pdn_scope *scope)
{
	uint32_t me = pdn_my_tid();

	for (const struct pdn_victims *v = ending; v; v = v->next)
		for (uint32_t n = v->ender == me ? 0 : v->first; n; n = pdn_regions[n].victim)
			if (pdn_region_is_under(n, scope))
				return v->ender;
	for (uint32_t n = dying.oldest; n; n = pdn_regions[n].newer)
		if (is_anothers(n, me) && pdn_region_is_under(n, scope))
			return pdn_regions[n].ender;
	return 0;
}

bool pdn_ending_any(void)
{
	return ending || dying.oldest;
}

uint32_t pdn_dying_under(const struct pdn_scope *scope)
{
	return pdn_ending_any() ? ender_under(scope) : 0;
}

bool pdn_dying_any(void)
{
	static const struct pdn_scope all = {.kind = PDN_GUARD_ALL};

	return pdn_dying_under(&all);
}

/* The regions of its lists, too, stay pinned and busy. */
void pdn_dying_drop_own(void)
{
	uint32_t me = pdn_my_tid();
	struct pdn_victims **v = &ending;

	while (*v)
		if ((*v)->ender == me)
			*v = (*v)->next;
		else
			v = &(*v)->next;
	for (uint32_t number = dying.oldest; number; number = pdn_regions[number].newer)
		if (pdn_regions[number].ender == me)
			pdn_regions[number].ender = 0;
}
