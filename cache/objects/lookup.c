/* SPDX-License-Identifier: MIT */
/*
 * Finding one of several objects of a region: in the list, if they are few; otherwise by its key,
 * in a hash of the objects of all regions; and one that serves for the key by its consumer's
 * rules, in a tree of each region.
 *
 * The tree has the region's live objects of consumers with rules, ordered by family, rights and
 * first page. A family are the objects that differ in nothing but what the rules let differ.
 */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/base/process/process.h"
#include "cache/base/memory/hashed.h"
#include "cache/base/thread/seqcount.h"
#include "cache/base/memory/tree.h"
#include "cache/objects/lookup.h"
#include "cache/objects/object.h"

/* One for each object, by number: pdn_objects[].entry. */
struct entry {
	struct pdn_hashed_link link; /* must be first; hashes region, consumer and key */
	uint64_t family;	     /* a hash; 0: the object is not in the tree */
	struct pdn_tree_node node;
	uint32_t object; /* 0: no look-up finds it */
};
static struct pdn_hashed entries = PDN_HASHED(struct entry);

/* Of changes of all of this, for walks without the lock. Only keys are read otherwise: is_at(). */
static PDN_NOT_INHERITED struct pdn_seqcount changes;

static struct entry *entry_at(uint32_t number)
{
	return pdn_hashed_at(&entries, number);
}

static struct entry *entry_of(uint32_t object)
{
	return entry_at(pdn_objects[object].entry);
}

static uint32_t object_of(uint32_t entry)
{
	return __atomic_load_n(&entry_at(entry)->object, __ATOMIC_ACQUIRE);
}

static uint64_t family_in(uint32_t entry)
{
	return __atomic_load_n(&entry_at(entry)->family, __ATOMIC_ACQUIRE);
}

static uint64_t hash_of(uint64_t place, const struct pindown_key *key)
{
	const uint64_t spread = 0x9e3779b97f4a7c15u;

	return pdn_hash(((place * spread + key->owner) * spread + key->word[0]) * spread +
			key->word[1]);
}

static uint64_t hash_at(uint32_t region, uint32_t consumer, const struct pindown_key *key)
{
	return hash_of((uint64_t)region << 32 | consumer, key);
}

/* ---- the tree ----------------------------------------------------------------------------- */

/* A place in its order. */
struct place {
	uint64_t family, rights, first;
};

static struct place place_of(uint32_t entry)
{
	const struct pindown_key *key = &pdn_objects[object_of(entry)].key;

	return (struct place){family_in(entry), __atomic_load_n(&key->word[0], __ATOMIC_ACQUIRE),
			      __atomic_load_n(&key->word[1], __ATOMIC_ACQUIRE) >> 32};
}

static bool comes_before(const struct place *a, const struct place *b)
{
	if (a->family != b->family)
		return a->family < b->family;
	if (a->rights != b->rights)
		return a->rights < b->rights;
	return a->first < b->first;
}

static bool is_before(uint32_t a, uint32_t b)
{
	struct place of_a = place_of(a), of_b = place_of(b);

	return comes_before(&of_a, &of_b) || (!comes_before(&of_b, &of_a) && a < b);
}

/* Of a PINDOWN_KEY_RANGE(), as place.first. */
static uint64_t end_of_range(uint64_t word)
{
	return (word >> 32) + (uint32_t)word;
}

static uint64_t end_of(uint32_t entry)
{
	return end_of_range(
		__atomic_load_n(&pdn_objects[object_of(entry)].key.word[1], __ATOMIC_ACQUIRE));
}

static const struct pdn_tree tree = {
	.records = &entries,
	.node = offsetof(struct entry, node),
	.is_before = is_before,
	.end_of = end_of,
};

/* Relaxed: see pdn_rules. */
static struct pdn_rules rules_of(uint32_t consumer)
{
	const struct pdn_rules *rules = &pdn_rules[pdn_consumer_place(consumer)];

	return (struct pdn_rules){__atomic_load_n(&rules->rights, __ATOMIC_RELAXED),
				  __atomic_load_n(&rules->flags, __ATOMIC_RELAXED)};
}

/* 0: no object can serve for another one's key. */
static uint64_t family_of(uint32_t consumer, const struct pindown_key *key,
			  const struct pdn_rules *rules)
{
	const struct pindown_key rest = {
		.owner = key->owner,
		.word = {key->word[0] & ~rules->rights, rules->flags ? 0 : key->word[1]},
	};

	return rules->rights | rules->flags ? hash_of(consumer, &rest) | 1 : 0;
}

/* The first one that does not come before this place; 0: none. */
static uint32_t first_from(uint32_t top, const struct place *place)
{
	uint32_t found = 0;

	while (top) {
		struct place here = place_of(top);

		if (comes_before(&here, place)) {
			top = pdn_tree_load(&pdn_tree_node(&tree, top)->right);
		} else {
			found = top;
			top = pdn_tree_load(&pdn_tree_node(&tree, top)->left);
		}
	}
	return found;
}

/*
 * One of exactly these rights that reaches from place->first, or before, to `end`; 0: none. Of a
 * subtree that only has objects of these rights, one that does not reach as far is left out as a
 * whole, and in one that does, the search ends. So this looks at little more than the two paths
 * to the ends of these rights. `steps` is for a walk that meets a change: it stops.
 */
static uint32_t reaching(uint32_t top, const struct place *place, uint64_t end, unsigned *steps)
{
	const struct place first = {place->family, place->rights, 0};
	const struct pdn_tree_node *node = pdn_tree_node(&tree, top);
	struct place here;
	uint32_t found;

	if (!top || !*steps || pdn_tree_furthest(&tree, top) < end)
		return 0;
	--*steps;
	here = place_of(top);
	if (comes_before(&here, &first))
		return reaching(pdn_tree_load(&node->right), place, end, steps);
	if (comes_before(place, &here))
		return reaching(pdn_tree_load(&node->left), place, end, steps);
	if (end_of(top) >= end)
		return top;
	found = reaching(pdn_tree_load(&node->left), place, end, steps);
	return found ? found : reaching(pdn_tree_load(&node->right), place, end, steps);
}

/* Is any right missing? */
static bool has_rights(uint64_t have, uint64_t wanted)
{
	return !(wanted & ~have);
}

/*
 * An object of the same family with all rights and the whole range; 0: none. More rights are a
 * greater number, so the search begins with exactly those that are asked for.
 */
static uint32_t find_in_family(uint32_t region, uint64_t family, const struct pindown_key *key,
			       uint64_t begun)
{
	struct place at = {family, key->word[0], key->word[1] >> 32};
	uint32_t top = pdn_tree_load(&pdn_object_trees[region]), found = 0;

	while (!found && pdn_seqcount_unchanged(&changes, begun)) {
		struct place next = {family, at.rights + 1, 0};
		unsigned steps = 256; /* three paths down, of a million objects */

		if (has_rights(at.rights, key->word[0]))
			found = reaching(top, &at, end_of_range(key->word[1]), &steps);
		if (found || !next.rights)
			break;
		next = place_of(first_from(top, &next));
		if (next.family != family)
			break;
		at.rights = next.rights;
	}
	return found ? object_of(found) : 0;
}

/* ---- look-ups ------------------------------------------------------------------------------- */

/* Relaxed: the state comes last, as the caller that holds the object reads it again. */
static bool is_live(uint32_t number)
{
	return __atomic_load_n(&pdn_objects[number].state, __ATOMIC_RELAXED) == PDN_OBJECT_LIVE;
}

static bool is_kept(uint32_t number)
{
	return __atomic_load_n(&pdn_objects[number].state, __ATOMIC_RELAXED) == PDN_OBJECT_KEPT;
}

/*
 * Acquire: pairs with new_record() in attach.c, which stores the region last. So the key is one
 * that the object has on this region, and stays while it is announced.
 */
static bool is_at(uint32_t number, uint32_t region)
{
	return __atomic_load_n(&pdn_objects[number].region, __ATOMIC_ACQUIRE) == region;
}

/* Does it have all rights and all of the range, and agree in the rest? */
static bool serves(uint32_t number, uint32_t consumer, const struct pindown_key *key)
{
	const struct pindown_object *object = &pdn_objects[number];
	const struct pdn_rules rules = rules_of(consumer);
	uint64_t rights = __atomic_load_n(&object->key.word[0], __ATOMIC_RELAXED);
	uint64_t range = __atomic_load_n(&object->key.word[1], __ATOMIC_RELAXED);

	return __atomic_load_n(&object->consumer, __ATOMIC_RELAXED) == consumer &&
	       __atomic_load_n(&object->key.owner, __ATOMIC_RELAXED) == key->owner &&
	       has_rights(rights, key->word[0]) && !((rights ^ key->word[0]) & ~rules.rights) &&
	       (range == key->word[1] || (rules.flags && range >> 32 <= key->word[1] >> 32 &&
					  end_of_range(key->word[1]) <= end_of_range(range))) &&
	       is_live(number);
}

#define FEW	4u
#define LONGEST 64 /* of a chain; there is rarely more than a few, unless it is changing */

static uint32_t find_exact(uint32_t region, uint32_t consumer, const struct pindown_key *key)
{
	uint64_t hash = hash_at(region, consumer, key);
	uint32_t n = pdn_hashed_chain(&entries, hash);

	for (unsigned steps = 0; n && steps < LONGEST; steps++) {
		const struct entry *entry = entry_at(n);
		uint32_t object = object_of(n);

		if (__atomic_load_n(&entry->link.hash, __ATOMIC_ACQUIRE) == hash && object &&
		    is_at(object, region) && pdn_object_is(&pdn_objects[object], consumer, key))
			return object;
		n = pdn_hashed_chain_next(&entry->link);
	}
	return 0;
}

/* The look-ups that take a logarithm of the number of objects, or no more than for one. */
static uint32_t find_of_many(uint32_t region, uint32_t consumer, const struct pindown_key *key)
{
	const struct pdn_rules rules = rules_of(consumer);
	uint64_t begun = pdn_seqcount_read_begin(&changes);
	uint32_t found = find_exact(region, consumer, key);
	uint64_t family = found ? 0 : family_of(consumer, key, &rules);

	if (family) {
		found = find_in_family(region, family, key, begun);
		if (found && !(is_at(found, region) && serves(found, consumer, key)))
			found = 0;
	}
	return pdn_seqcount_unchanged(&changes, begun) ? found : 0;
}

/*
 * There are mostly only a few: then the list is as fast as a hash of them, and faster than the
 * tree.
 */
uint32_t pdn_object_find(uint32_t region, uint32_t consumer, const struct pindown_key *key)
{
	uint32_t first = pdn_object_load(&pdn_objects_of[region]), n = first;

	for (unsigned i = 0; n && i < FEW; i++, n = pdn_object_load(&pdn_objects[n].next))
		if (pdn_object_is(&pdn_objects[n], consumer, key) && !is_kept(n))
			return n;
	if (n)
		return find_of_many(region, consumer, key);
	for (n = first; n && !serves(n, consumer, key);)
		n = pdn_object_load(&pdn_objects[n].next);
	return n;
}

/* ---- changes: lock held --------------------------------------------------------------------- */

/* Release, here and below: see `changes`. */
static void set_family(uint32_t number, uint64_t family)
{
	__atomic_store_n(&entry_of(number)->family, family, __ATOMIC_RELEASE);
}

static void set_found(uint32_t number, bool is_found)
{
	__atomic_store_n(&entry_of(number)->object, is_found ? number : 0, __ATOMIC_RELEASE);
}

void pdn_object_serve(uint32_t number)
{
	const struct pindown_object *object = &pdn_objects[number];
	const struct pdn_rules rules = rules_of(object->consumer);
	uint64_t family = family_of(object->consumer, &object->key, &rules);

	if (!family)
		return;
	pdn_seqcount_write_begin(&changes);
	set_family(number, family);
	pdn_tree_insert(&tree, &pdn_object_trees[object->region], object->entry);
	pdn_seqcount_write_end(&changes);
}

void pdn_object_serve_no_more(uint32_t number)
{
	const struct pindown_object *object = &pdn_objects[number];

	if (!entry_of(number)->family)
		return;
	pdn_seqcount_write_begin(&changes);
	pdn_tree_remove(&tree, &pdn_object_trees[object->region], object->entry);
	set_family(number, 0);
	pdn_seqcount_write_end(&changes);
}

void pdn_object_hide(uint32_t number)
{
	pdn_seqcount_write_begin(&changes);
	set_found(number, false);
	pdn_seqcount_write_end(&changes);
}

bool pdn_object_enter(uint32_t number)
{
	struct pindown_object *object = &pdn_objects[number];

	entries.most = pdn_object_table.capacity;
	pdn_seqcount_write_begin(&changes);
	object->entry =
		pdn_hashed_add(&entries, hash_at(object->region, object->consumer, &object->key));
	if (object->entry)
		set_found(number, true);
	pdn_seqcount_write_end(&changes);
	return object->entry;
}

void pdn_object_leave(uint32_t number)
{
	pdn_seqcount_write_begin(&changes);
	pdn_hashed_remove(&entries, pdn_objects[number].entry);
	pdn_seqcount_write_end(&changes);
}
