/* SPDX-License-Identifier: MIT */
/* The list of consumer objects that threads are making. */
#define _GNU_SOURCE
#include "cache/base/lock.h"
#include "cache/objects/object.h"

/* Changed under the lock. */
static PDN_NOT_INHERITED struct pdn_creation *creations;

static bool is_same_key(const struct pindown_key *a, const struct pindown_key *b)
{
	return a->owner == b->owner && a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

const struct pdn_creation *pdn_creation_find(uint32_t region, uint32_t consumer,
					     const struct pindown_key *key)
{
	for (const struct pdn_creation *c = creations; c; c = c->next)
		if (c->region == region && c->consumer == consumer && is_same_key(&c->key, key))
			return c;
	return NULL;
}

uint32_t pdn_creations_on(uint32_t region)
{
	uint32_t me = pdn_my_tid();

	for (const struct pdn_creation *c = creations; c; c = c->next)
		if (c->region == region && c->tid != me)
			return c->tid;
	return 0;
}

uint32_t pdn_creations_of(uint32_t consumer, const uint64_t *owner)
{
	uint32_t me = pdn_my_tid();

	for (const struct pdn_creation *c = creations; c; c = c->next)
		if (c->consumer == consumer && (!owner || c->key.owner == *owner) && c->tid != me)
			return c->tid;
	return 0;
}

static struct pdn_creation **link_to(const struct pdn_creation *creation)
{
	struct pdn_creation **c = &creations;

	while (*c && *c != creation)
		c = &(*c)->next;
	return c;
}

bool pdn_creation_is_listed(const struct pdn_creation *creation)
{
	return *link_to(creation);
}

/* Release, here and below: pairs with pdn_creations_any(). */
void pdn_creation_list(struct pdn_creation *creation)
{
	creation->next = creations;
	__atomic_store_n(&creations, creation, __ATOMIC_RELEASE);
}

void pdn_creation_unlist(const struct pdn_creation *creation)
{
	struct pdn_creation **c = link_to(creation);

	if (*c)
		__atomic_store_n(c, creation->next, __ATOMIC_RELEASE);
	pdn_wake_waiters();
}

/*
 * Acquire: pairs with pdn_creation_list() and pdn_creation_unlist(). A thread that asks has ended
 * something under the lock, and so sees what was listed before that.
 */
bool pdn_creations_any(void)
{
	return __atomic_load_n(&creations, __ATOMIC_ACQUIRE);
}

void pdn_creations_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (struct pdn_creation *c = creations, *next; c; c = next) {
		next = c->next;
		if (c->tid == me)
			pdn_creation_unlist(c);
	}
}
