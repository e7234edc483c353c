/* SPDX-License-Identifier: MIT */
/* Marking all regions as of the past. */
#include "cache/trust/past.h"

#include "cache/base/thread/barrier.h"
#include "cache/base/thread/lock.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"

PDN_WEAK_EVENT(past_is_possible, (void));
PDN_WEAK_EVENT(past_ends, (void));

uint32_t pdn_past_count, pdn_past_ended;

/*
 * Another thread may change the state at the same time, under the lock. Only a live one is
 * replaced, so that no other change is undone.
 */
static void mark(struct pdn_brief *brief)
{
	uint8_t state = __atomic_load_n(&brief->state, __ATOMIC_SEQ_CST);

	while (pdn_state_is_live(state) &&
	       !__atomic_compare_exchange_n(&brief->state, &state, PDN_PAST, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

void pdn_past_begins(void)
{
	uint32_t last;

	__atomic_fetch_add(&pdn_past_count, 1, __ATOMIC_SEQ_CST);
	/* Pairs with the fence in pdn_region_goes_live(), for the number of records. */
	pdn_full_fence();
	/* Acquire: with the limit the table is there. */
	if (!__atomic_load_n(&pdn_region_limit, __ATOMIC_ACQUIRE))
		return;
	last = pdn_region_high_water();
	for (uint32_t n = 1; n <= last; n++)
		mark(&pdn_briefs[n]);
}

bool pdn_past_would_wait(void)
{
	/* Relaxed: who begins later is told to give up. */
	return pdn_past_any() && pdn_works_any();
}

void pdn_past_end(void)
{
	PDN_NOTIFY(past_ends);
}

static bool is_noticed;

/* Relaxed: this thread sees that it is noticed, or has that done before it pins. */
void pdn_past_is_possible(void)
{
	if (__builtin_expect(!__atomic_load_n(&is_noticed, __ATOMIC_RELAXED), 0))
		PDN_NOTIFY(past_is_possible);
}

void pdn_past_is_noticed(void)
{
	__atomic_store_n(&is_noticed, true, __ATOMIC_RELAXED);
}
