/* SPDX-License-Identifier: MIT */
/*
 * What cards can't do. One without regions of dma-bufs, for lack of its own, its kernel's or libibverbs', is
 * remembered, and so is one that refused a whole region and took the part that was asked for; until the
 * context is closed.
 */
#include "hook/hook.h"
#include "cache/base/lock.h"
#include "hook/verbs/verbs.h"

#define LIMITS 64

/*
 * Under PD_LOCK_LIMITS, and read without it: a context is stored last and cleared first, with
 * release, which pairs with the acquire in pd_verbs_longest(): with a context there is its limit,
 * and with the count the entry. A context that is closed has no more users who could meet it here.
 */
static struct limit {
	struct ibv_context *context;
	uint64_t longest; /* regions above this are registered in part; 0: none is registered */
} limits[LIMITS];
uint32_t pd_verbs_limits_used; /* entries that were ever in use */

uint64_t pd_verbs_longest(const struct ibv_context *context)
{
	uint32_t used = __atomic_load_n(&pd_verbs_limits_used, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; PD_UNLIKELY(i < used); i++)
		if (__atomic_load_n(&limits[i].context, __ATOMIC_ACQUIRE) == context)
			return __atomic_load_n(&limits[i].longest, __ATOMIC_RELAXED);
	return UINT64_MAX;
}

/* Lock held. The entry of a context, or the first free one; when there is none it is asked again each
 * time. */
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

void pd_verbs_note_limit(struct ibv_context *context, uint64_t longest)
{
	struct limit *limit;

	pd_take(PD_LOCK_LIMITS);
	limit = limit_of(context);
	if (limit && (limit->context != context || longest < limit->longest)) {
		__atomic_store_n(&limit->longest, longest, __ATOMIC_RELAXED);
		__atomic_store_n(&limit->context, context, __ATOMIC_RELEASE);
		if (pd_verbs_limits_used <= limit - limits)
			__atomic_store_n(&pd_verbs_limits_used, limit - limits + 1,
					 __ATOMIC_RELEASE);
	}
	pd_let_go(PD_LOCK_LIMITS);
}

void pd_verbs_forget_limits(const struct ibv_context *context)
{
	pd_take(PD_LOCK_LIMITS);
	for (unsigned i = 0; i < LIMITS; i++)
		if (limits[i].context == context)
			__atomic_store_n(&limits[i].context, NULL, __ATOMIC_RELEASE);
	pd_let_go(PD_LOCK_LIMITS);
}
