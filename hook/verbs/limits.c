/* SPDX-License-Identifier: MIT */
/*
 * Limits of network cards, remembered for each context until that is closed: a card that takes no
 * dma-bufs (it may be the card, the kernel or libibverbs that can't), and a card that refused a
 * whole region but took the part that was asked for. A card that refuses one region for good may
 * take others, so it takes two of them, with none that it took in between.
 */
#include "hook/hook.h"
#include "cache/base/lock.h"
#include "hook/verbs/verbs.h"

#define LIMITS 64

/*
 * Written under PDN_LOCK_LIMITS, and read without it: a context is stored last and cleared first,
 * with release, which pairs with the acquire in pdn_verbs_longest(): a reader that sees a context
 * sees its limit, and one that sees the count sees the entry. No call uses a context that is
 * closed, so none can find it here.
 */
static struct limit {
	struct ibv_context *context;
	uint64_t longest; /* regions above this are registered in part; 0: none is */
	uint64_t refused; /* buffer id of the memory that it refused last, 0: none */
} limits[LIMITS];
uint32_t pdn_verbs_limits_used; /* entries that were ever in use */

uint64_t pdn_verbs_longest(const struct ibv_context *context)
{
	uint32_t used = __atomic_load_n(&pdn_verbs_limits_used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; PDN_UNLIKELY(i < used); i++)
		if (__atomic_load_n(&limits[i].context, __ATOMIC_ACQUIRE) == context)
			return __atomic_load_n(&limits[i].longest, __ATOMIC_RELAXED);
	return UINT64_MAX;
}

/*
 * Lock held. The entry of a context, or the first free one. NULL: the table is full, and the card
 * is asked again each time.
 */
static struct limit *limit_of(const struct ibv_context *context)
{
	struct limit *free = NULL;

	for (unsigned i = 0; i < LIMITS; i++) {
		if (limits[i].context == context)
			return &limits[i];
		if (!free && !limits[i].context)
			free = &limits[i];
	}
	return free;
}

/* Lock held. */
static void set_longest(struct limit *limit, struct ibv_context *context, uint64_t longest)
{
	__atomic_store_n(&limit->longest, longest, __ATOMIC_RELAXED);
	__atomic_store_n(&limit->context, context, __ATOMIC_RELEASE);
	if (pdn_verbs_limits_used <= limit - limits)
		__atomic_store_n(&pdn_verbs_limits_used, limit - limits + 1, __ATOMIC_RELEASE);
}

/* Lock held. The same entry, with no limit if it is new. */
static struct limit *entry_of(struct ibv_context *context)
{
	struct limit *limit = limit_of(context);

	if (limit && limit->context != context) {
		limit->refused = 0;
		set_longest(limit, context, UINT64_MAX);
	}
	return limit;
}

void pdn_verbs_note_limit(struct ibv_context *context, uint64_t longest)
{
	struct limit *limit;

	pdn_lock_one(PDN_LOCK_LIMITS);
	limit = entry_of(context);
	if (limit && longest < limit->longest)
		set_longest(limit, context, longest);
	pdn_unlock_one(PDN_LOCK_LIMITS);
}

void pdn_verbs_note_refused(struct ibv_context *context, uint64_t buffer_id)
{
	struct limit *limit;

	pdn_lock_one(PDN_LOCK_LIMITS);
	limit = entry_of(context);
	if (limit && limit->refused && limit->refused != buffer_id)
		set_longest(limit, context, 0);
	else if (limit)
		limit->refused = buffer_id;
	pdn_unlock_one(PDN_LOCK_LIMITS);
}

void pdn_verbs_note_taken(struct ibv_context *context)
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
	pdn_lock_one(PDN_LOCK_LIMITS);
	for (unsigned i = 0; i < LIMITS; i++)
		if (limits[i].context == context)
			__atomic_store_n(&limits[i].context, NULL, __ATOMIC_RELEASE);
	pdn_unlock_one(PDN_LOCK_LIMITS);
}
