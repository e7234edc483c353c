/* SPDX-License-Identifier: MIT */
/* The list of consumer objects that threads are making. */
#define _GNU_SOURCE
#include "cache/base/lock.h"
#include "cache/objects/object.h"

/* Changed under the lock. */
static struct pd_creation *creations;

static bool is_same_key(const struct pindown_key *a, const struct pindown_key *b)
{
	return a->owner == b->owner && a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

const struct pd_creation *pd_creation_find(uint32_t region, uint32_t consumer,
					   const struct pindown_key *key)
{
	for (const struct pd_creation *c = creations; c; c = c->next)
		if (c->region == region && c->consumer == consumer && is_same_key(&c->key, key))
			return c;
	return NULL;
}

bool pd_creations_on(uint32_t region)
{
	uint32_t me = pd_my_tid();

	for (const struct pd_creation *c = creations; c; c = c->next)
		if (c->region == region && c->tid != me)
			return true;
	return false;
}

uint32_t pd_creations_of(uint32_t consumer, const uint64_t *owner)
{
	uint32_t me = pd_my_tid();

	for (const struct pd_creation *c = creations; c; c = c->next)
		if (c->consumer == consumer && (!owner || c->key.owner == *owner) && c->tid != me)
			return c->tid;
	return 0;
}

static struct pd_creation **link_to(const struct pd_creation *creation)
{
	struct pd_creation **c = &creations;

	while (*c && *c != creation)
		c = &(*c)->next;
	return c;
}

bool pd_creation_is_listed(const struct pd_creation *creation)
{
	return *link_to(creation);
}

/* Release, here and below: pairs with pd_creations_any(). */
void pd_creation_list(struct pd_creation *creation)
{
	creation->next = creations;
	__atomic_store_n(&creations, creation, __ATOMIC_RELEASE);
}

void pd_creation_unlist(const struct pd_creation *creation)
{
	struct pd_creation **c = link_to(creation);

	if (*c)
		__atomic_store_n(c, creation->next, __ATOMIC_RELEASE);
	pd_wake_waiters();
}

/*
 * Acquire: pairs with pd_creation_list() and pd_creation_unlist(). A thread that asks has ended
 * something under the lock, and so sees what was listed before that.
 */
bool pd_creations_any(void)
{
	return __atomic_load_n(&creations, __ATOMIC_ACQUIRE);
}

void pd_creations_forsake(void)
{
	uint32_t me = pd_my_tid();

	for (struct pd_creation *c = creations, *next; c; c = next) {
		next = c->next;
		if (c->tid == me)
			pd_creation_unlist(c);
	}
}

void pd_creations_fork_child(void)
{
	creations = NULL;
}
