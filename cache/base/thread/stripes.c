/* SPDX-License-Identifier: MIT */
/* Which stripes of hold counts threads own, and which may have counts. */
#include <string.h>

#include "cache/base/thread/stripes.h"
#include "cache/base/thread/thread.h"

/*
 * Taken with acquire, given back with release: the next owner continues from the counts of the
 * last.
 */
static uint64_t stripes_taken[PDN_STRIPES / 64] = {1u << PDN_STRIPE_SHARED}; /* one bit each */
uint64_t pdn_stripes[PDN_STRIPES / 64];
uint32_t pdn_stripe_words = 1, pdn_stripe_orphans;

void pdn_stripe_return(uint32_t stripe)
{
	__atomic_fetch_and(&stripes_taken[stripe / 64], ~(1ull << stripe % 64), __ATOMIC_RELEASE);
}

void pdn_stripe_give_back(struct pdn_thread *self)
{
	/* Its counts stay as they are: they are summed, and the next owner continues from there. */
	if (self->stripe != PDN_STRIPE_SHARED) {
		__atomic_fetch_add(&pdn_stripe_orphans, 1, __ATOMIC_RELAXED);
		pdn_stripe_return(self->stripe);
	}
	self->stripe = PDN_STRIPE_SHARED;
	self->stripe_asked = false;
	self->holds = NULL;
}

/* Before the first hold there: pairs with pdn_holds_any(), which loads the words first. */
static void use_stripe(uint32_t stripe)
{
	uint32_t words = __atomic_load_n(&pdn_stripe_words, __ATOMIC_RELAXED);

	__atomic_fetch_or(&pdn_stripes[stripe / 64], 1ull << stripe % 64, __ATOMIC_SEQ_CST);
	while (words <= stripe / 64 &&
	       !__atomic_compare_exchange_n(&pdn_stripe_words, &words, stripe / 64 + 1, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

/* As use_stripe(). */
void pdn_stripe_use_shared(void)
{
	if (!(__atomic_load_n(&pdn_stripes[0], __ATOMIC_RELAXED) & 1u << PDN_STRIPE_SHARED))
		use_stripe(PDN_STRIPE_SHARED);
}

/* Of 64; PDN_STRIPE_SHARED: there is none among them. */
static uint32_t take_stripe_in(uint32_t word)
{
	uint64_t taken = __atomic_load_n(&stripes_taken[word], __ATOMIC_RELAXED);

	while (~taken) {
		uint64_t bit = ~taken & (taken + 1);

		if (!__atomic_compare_exchange_n(&stripes_taken[word], &taken, taken | bit, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		if (__atomic_load_n(&pdn_stripes[word], __ATOMIC_RELAXED) & bit)
			__atomic_fetch_sub(&pdn_stripe_orphans, 1, __ATOMIC_RELAXED);
		return 64 * word + (uint32_t)__builtin_ctzll(bit);
	}
	return PDN_STRIPE_SHARED;
}

/* The lowest one, so that few are ever used. */
uint32_t pdn_stripe_take(void)
{
	uint32_t stripe = PDN_STRIPE_SHARED;

	for (uint32_t word = 0; word < PDN_STRIPES / 64 && stripe == PDN_STRIPE_SHARED; word++)
		stripe = take_stripe_in(word);
	return stripe;
}

void pdn_stripe_use(struct pdn_thread *self, uint32_t stripe)
{
	use_stripe(stripe);
	self->stripe = stripe;
}

/* Relaxed: `taken` is taken with acquire then, or another is looked for. */
static uint64_t orphans_in(uint32_t word, uint64_t *taken)
{
	*taken = __atomic_load_n(&stripes_taken[word], __ATOMIC_RELAXED);
	return __atomic_load_n(&pdn_stripes[word], __ATOMIC_RELAXED) & ~*taken;
}

uint32_t pdn_stripe_take_orphan(void)
{
	for (uint32_t word = 0; word < __atomic_load_n(&pdn_stripe_words, __ATOMIC_RELAXED);
	     word++) {
		uint64_t taken, orphans;

		while ((orphans = orphans_in(word, &taken)) != 0) {
			unsigned highest = 63u - (unsigned)__builtin_clzll(orphans);

			if (!__atomic_compare_exchange_n(&stripes_taken[word], &taken,
							 taken | 1ull << highest, false,
							 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
				continue;
			__atomic_fetch_sub(&pdn_stripe_orphans, 1, __ATOMIC_RELAXED);
			return 64 * word + highest;
		}
	}
	return PDN_STRIPE_SHARED;
}

/* The next owner lists it again before its first hold. */
void pdn_stripe_return_orphan(uint32_t stripe)
{
	__atomic_fetch_and(&pdn_stripes[stripe / 64], ~(1ull << stripe % 64), __ATOMIC_RELEASE);
	pdn_stripe_return(stripe);
}
