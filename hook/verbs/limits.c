/* SPDX-License-Identifier: MIT */
/*
 * Limits of network cards, remembered for each context until that is closed: a card that takes no
 * dma-bufs (it may be the card, the kernel or libibverbs that can't), and a card that refused a
 * whole region but took the part that was asked for. A card that refuses one region for good may
 * take others, so it takes two of them, with none that it took in between.
 */
#include "cache/base/thread/lock.h"
#include "hook/verbs/verbs.h"

#define LIMITS 64

/* Under PDN_LOCK_LIMITS. */
static struct limit {
	const struct ibv_context *context;
	uint64_t longest; /* regions above this are registered in part; 0: none is */
	uint64_t refused; /* buffer id of the memory that it refused last, 0: none */
} limits[LIMITS];

static bool is_any; /* was there ever one? */

bool pdn_verbs_any_limit(void)
{
	/* Relaxed: a call that sees an older value meets the limit itself, as the first one did. */
	return __atomic_load_n(&is_any, __ATOMIC_RELAXED);
}

/*
 * Lock held. The limit of a context; NULL: it has none. With NULL for the context, a free one; then
 * NULL: the table is full, and the card is asked again each time.
 */
static struct limit *limit_of(const struct ibv_context *context)
{
	for (unsigned i = 0; i < LIMITS; i++)
		if (limits[i].context == context)
			return &limits[i];
	return NULL;
}

uint64_t pdn_verbs_longest(const struct ibv_context *context)
{
	const struct limit *limit;
	uint64_t longest;

	if (!pdn_verbs_any_limit())
		return UINT64_MAX;
	pdn_lock_one(PDN_LOCK_LIMITS);
	limit = limit_of(context);
	longest = limit ? limit->longest : UINT64_MAX;
	pdn_unlock_one(PDN_LOCK_LIMITS);
	return longest;
}

/* The card has refused a region: by its length, or if that is UINT64_MAX for good. */
static void note(const struct ibv_context *context, uint64_t longest, uint64_t buffer_id)
{
	struct limit *limit;

	pdn_lock_one(PDN_LOCK_LIMITS);
	limit = limit_of(context);
	if (!limit) {
		limit = limit_of(NULL);
		if (limit)
			*limit = (struct limit){.context = context, .longest = UINT64_MAX};
		__atomic_store_n(&is_any, true, __ATOMIC_RELAXED);
	}
	if (limit && buffer_id && limit->refused && limit->refused != buffer_id)
		longest = 0;
	if (limit && longest < limit->longest)
		limit->longest = longest;
	if (limit && buffer_id)
		limit->refused = buffer_id;
	pdn_unlock_one(PDN_LOCK_LIMITS);
}

void pdn_verbs_note_limit(const struct ibv_context *context, uint64_t longest)
{
	note(context, longest, 0);
}

void pdn_verbs_note_refused(const struct ibv_context *context, uint64_t buffer_id)
{
	note(context, UINT64_MAX, buffer_id);
}

void pdn_verbs_note_taken(const struct ibv_context *context)
{
	struct limit *limit;

	pdn_lock_one(PDN_LOCK_LIMITS);
	limit = limit_of(context);
	if (limit)
		limit->refused = 0;
	pdn_unlock_one(PDN_LOCK_LIMITS);
}

void pdn_verbs_forget_limits(const struct ibv_context *context)
{
	struct limit *limit;

	pdn_lock_one(PDN_LOCK_LIMITS);
	limit = limit_of(context);
	if (limit)
		limit->context = NULL;
	pdn_unlock_one(PDN_LOCK_LIMITS);
}
