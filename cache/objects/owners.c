/* SPDX-License-Identifier: MIT */
/*
 * The objects of each owner, and the owners of each consumer: lists, so that the end of an owner or
 * of a consumer goes through what it ends. All of this is under the lock.
 */
#define _GNU_SOURCE
#include "cache/base/process.h"
#include "cache/base/hashed.h"
#include "cache/objects/object.h"

struct owner {
	struct pdn_hashed_link link; /* must be first; hashes consumer and owner */
	uint64_t owner;
	uint32_t consumer, first; /* its id; the newest object */
	uint32_t next, previous;  /* of the owners of consumers that have this one's place */
};
static struct pdn_hashed owners = PDN_HASHED(struct owner);
static PDN_NOT_INHERITED uint32_t first_owner[PDN_CONSUMERS];

static struct owner *owner_at(uint32_t number)
{
	return pdn_hashed_at(&owners, number);
}

/* Of an object, by its number: its owner's record, and its neighbours in the owner's list. */
enum { OWNER = PDN_STRIPES_AT_FIRST, NEXT, PREVIOUS };

static uint32_t *of_object(unsigned which, uint32_t number)
{
	return &pdn_object_table.column[which][number];
}

static uint32_t *first_of(uint32_t consumer)
{
	return &first_owner[(consumer - 1) % PDN_CONSUMERS];
}

static uint64_t hash_of(uint32_t consumer, uint64_t owner)
{
	return pdn_hash(pdn_hash(owner) + consumer);
}

/* 0: it has no objects. */
static uint32_t find(uint32_t consumer, uint64_t owner)
{
	uint32_t n = pdn_hashed_first(&owners, hash_of(consumer, owner));

	while (n && (owner_at(n)->owner != owner || owner_at(n)->consumer != consumer))
		n = pdn_hashed_next(&owners, n);
	return n;
}

static uint32_t add(uint32_t consumer, uint64_t owner)
{
	uint32_t *first = first_of(consumer), n;

	owners.most = pdn_object_table.capacity;
	n = pdn_hashed_add(&owners, hash_of(consumer, owner));
	if (!n)
		return 0;
	owner_at(n)->owner = owner;
	owner_at(n)->consumer = consumer;
	owner_at(n)->next = *first;
	if (*first)
		owner_at(*first)->previous = n;
	*first = n;
	return n;
}

static void drop(uint32_t n)
{
	const struct owner *owner = owner_at(n);

	if (owner->next)
		owner_at(owner->next)->previous = owner->previous;
	if (owner->previous)
		owner_at(owner->previous)->next = owner->next;
	else
		*first_of(owner->consumer) = owner->next;
	pdn_hashed_remove(&owners, n);
}

bool pdn_owner_enter(uint32_t number, uint32_t consumer, uint64_t owner)
{
	uint32_t n = find(consumer, owner);

	if (!n)
		n = add(consumer, owner);
	if (!n)
		return false;
	*of_object(OWNER, number) = n;
	*of_object(PREVIOUS, number) = 0;
	*of_object(NEXT, number) = owner_at(n)->first;
	if (owner_at(n)->first)
		*of_object(PREVIOUS, owner_at(n)->first) = number;
	owner_at(n)->first = number;
	return true;
}

void pdn_owner_leave(uint32_t number)
{
	uint32_t n = *of_object(OWNER, number);
	uint32_t next = *of_object(NEXT, number), previous = *of_object(PREVIOUS, number);

	if (next)
		*of_object(PREVIOUS, next) = previous;
	if (previous)
		*of_object(NEXT, previous) = next;
	else
		owner_at(n)->first = next;
	if (!owner_at(n)->first)
		drop(n);
}

/* The first object of the first of these owners that is this consumer's. */
static uint32_t first_object_from(uint32_t n, uint32_t consumer)
{
	while (n && owner_at(n)->consumer != consumer)
		n = owner_at(n)->next;
	return n ? owner_at(n)->first : 0;
}

uint32_t pdn_first_selected(const struct pdn_selection *selection)
{
	uint32_t n;

	if (!selection->owner)
		return first_object_from(*first_of(selection->consumer), selection->consumer);
	n = find(selection->consumer, *selection->owner);
	return n ? owner_at(n)->first : 0;
}

uint32_t pdn_next_selected(const struct pdn_selection *selection, uint32_t number)
{
	uint32_t next = *of_object(NEXT, number);

	if (next || selection->owner)
		return next;
	return first_object_from(owner_at(*of_object(OWNER, number))->next, selection->consumer);
}
