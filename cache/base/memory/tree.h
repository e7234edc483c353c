/* SPDX-License-Identifier: MIT */
/*
 * Records of a table (hashed.h) in an order, as a balanced tree. Each node has the greatest end in
 * its subtree, so that a walk down finds what reaches over a place.
 *
 * The tree is a treap: in the owner's order and, by priority, a heap; so its depth is that of a
 * random tree. A record's priority depends on its number only, and a link leads to a lower
 * priority at each moment: so a walk without the lock ends, too. Whether it was good, the owner's
 * count of changes shows (hashed.h). Changes are made under the cache's lock.
 */
#ifndef PDN_TREE_H
#define PDN_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/memory/hashed.h"

struct pdn_tree_node {
	uint64_t furthest;    /* the greatest end in this subtree */
	uint32_t left, right; /* subtrees; 0: empty */
};

struct pdn_tree {
	const struct pdn_hashed *records;
	size_t node; /* the offset of the node in a record */
	/* No two records are equal. Both are constant for a record in the tree. */
	bool (*is_before)(uint32_t a, uint32_t b);
	uint64_t (*end_of)(uint32_t record);
};

/* Lock held. */
void pdn_tree_insert(const struct pdn_tree *tree, uint32_t *root, uint32_t record);
void pdn_tree_remove(const struct pdn_tree *tree, uint32_t *root, uint32_t record);

static inline struct pdn_tree_node *pdn_tree_node(const struct pdn_tree *tree, uint32_t record)
{
	return (void *)((char *)pdn_hashed_at(tree->records, record) + tree->node);
}

/* For walks: acquire, as in hashed.h. */
static inline uint32_t pdn_tree_load(const uint32_t *link)
{
	return __atomic_load_n(link, __ATOMIC_ACQUIRE);
}

static inline uint64_t pdn_tree_furthest(const struct pdn_tree *tree, uint32_t subtree)
{
	return subtree ? __atomic_load_n(&pdn_tree_node(tree, subtree)->furthest, __ATOMIC_ACQUIRE)
		       : 0;
}

#endif
