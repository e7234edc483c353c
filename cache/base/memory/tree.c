/* SPDX-License-Identifier: MIT */
/* Changes of ordered trees: splitting and joining subtrees. */
#include "cache/base/memory/tree.h"

static struct pdn_tree_node *at(const struct pdn_tree *tree, uint32_t record)
{
	return pdn_tree_node(tree, record);
}

/* Release, here and below: pairs with the acquires of a walk without the lock. */
static void set(uint32_t *link, uint32_t record)
{
	__atomic_store_n(link, record, __ATOMIC_RELEASE);
}

static uint64_t priority_of(uint32_t record)
{
	return pdn_hash(record);
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void update(const struct pdn_tree *tree, uint32_t record)
{
	struct pdn_tree_node *node = at(tree, record);
	uint64_t below =
		most(pdn_tree_furthest(tree, node->left), pdn_tree_furthest(tree, node->right));

	__atomic_store_n(&node->furthest, most(tree->end_of(record), below), __ATOMIC_RELEASE);
}

/* Splits a subtree: records before `record` go to *before, all others to *behind. */
static void split(const struct pdn_tree *tree, uint32_t top, uint32_t record, uint32_t *before,
		  uint32_t *behind)
{
	if (!top) {
		set(before, 0);
		set(behind, 0);
		return;
	}
	if (tree->is_before(top, record)) {
		split(tree, at(tree, top)->right, record, &at(tree, top)->right, behind);
		set(before, top);
	} else {
		split(tree, at(tree, top)->left, record, before, &at(tree, top)->left);
		set(behind, top);
	}
	update(tree, top);
}

/* All of the first subtree lies before all of the second one. */
static uint32_t join(const struct pdn_tree *tree, uint32_t before, uint32_t behind)
{
	uint32_t top;

	if (!before || !behind)
		return before ? before : behind;
	if (priority_of(before) > priority_of(behind)) {
		top = before;
		set(&at(tree, top)->right, join(tree, at(tree, top)->right, behind));
	} else {
		top = behind;
		set(&at(tree, top)->left, join(tree, before, at(tree, top)->left));
	}
	update(tree, top);
	return top;
}

/* The subtree that the record is in, or belongs in. */
static uint32_t *side_of(const struct pdn_tree *tree, uint32_t top, uint32_t record)
{
	return tree->is_before(record, top) ? &at(tree, top)->left : &at(tree, top)->right;
}

void pdn_tree_insert(const struct pdn_tree *tree, uint32_t *root, uint32_t record)
{
	uint32_t top = *root;

	if (top && priority_of(record) < priority_of(top)) {
		pdn_tree_insert(tree, side_of(tree, top, record), record);
		update(tree, top);
		return;
	}
	split(tree, top, record, &at(tree, record)->left, &at(tree, record)->right);
	update(tree, record);
	set(root, record);
}

void pdn_tree_remove(const struct pdn_tree *tree, uint32_t *root, uint32_t record)
{
	uint32_t top = *root;

	if (top == record) {
		set(root, join(tree, at(tree, top)->left, at(tree, top)->right));
		return;
	}
	pdn_tree_remove(tree, side_of(tree, top, record), record);
	update(tree, top);
}
