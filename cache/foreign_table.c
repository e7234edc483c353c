/* SPDX-License-Identifier: MIT */
/*
 * The table of the program's own dma-bufs: a hash of their files, and a tree of the addresses of
 * their memory.
 *
 * The tree is a treap, in the order of addresses and, by priority, a heap; so its depth is that of
 * a random tree. Each node has the greatest end in its subtree, which finds an overlap in one walk
 * down: records may be of the same memory, or overlap where a free was not seen.
 */
#define _GNU_SOURCE
#include "cache/foreign_table.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/lock.h"

static struct pdn_hashed exports = PDN_HASHED(struct pdn_export);
static uint32_t root;

struct pdn_export *pdn_foreign_at(uint32_t record)
{
	return pdn_hashed_at(&exports, record);
}

uint32_t pdn_foreign_count(void)
{
	return exports.count;
}

/* ---- files -------------------------------------------------------------------------------- */

bool pdn_file_of(int fd, struct pdn_file *file)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		return false;
	*file = (struct pdn_file){
		.inode = st.st_ino,
		.device = st.st_dev,
		.position = S_ISREG(st.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1,
	};
	return true;
}

static uint64_t hash_of(const struct pdn_file *file)
{
	return pdn_hash(file->inode ^ pdn_hash(file->device ^ pdn_hash((uint64_t)file->position)));
}

static uint32_t of_file_from(uint32_t record, const struct pdn_file *file)
{
	while (record && !pdn_file_is(&pdn_foreign_at(record)->file, file))
		record = pdn_hashed_next(&exports, record);
	return record;
}

uint32_t pdn_foreign_of_file(const struct pdn_file *file)
{
	return of_file_from(pdn_hashed_first(&exports, hash_of(file)), file);
}

uint32_t pdn_foreign_next_of_file(uint32_t record)
{
	return of_file_from(pdn_hashed_next(&exports, record), &pdn_foreign_at(record)->file);
}

/* ---- addresses ---------------------------------------------------------------------------- */

static uint64_t priority_of(uint32_t record)
{
	return pdn_hash(record);
}

static bool is_before(uint32_t a, uint32_t b)
{
	uint64_t base_a = pdn_foreign_at(a)->memory.base, base_b = pdn_foreign_at(b)->memory.base;

	return base_a < base_b || (base_a == base_b && a < b);
}

static uint64_t furthest_in(uint32_t tree)
{
	return tree ? pdn_foreign_at(tree)->furthest : 0;
}

static void update(struct pdn_export *node)
{
	uint64_t left = furthest_in(node->left), right = furthest_in(node->right);

	node->furthest = node->memory.end;
	if (left > node->furthest)
		node->furthest = left;
	if (right > node->furthest)
		node->furthest = right;
}

/* What lies before `record` goes to *before, the rest to *behind. */
static void split(uint32_t tree, uint32_t record, uint32_t *before, uint32_t *behind)
{
	struct pdn_export *node = pdn_foreign_at(tree);

	if (!tree) {
		*before = *behind = 0;
		return;
	}
	if (is_before(tree, record)) {
		split(node->right, record, &node->right, behind);
		*before = tree;
	} else {
		split(node->left, record, before, &node->left);
		*behind = tree;
	}
	update(node);
}

/* All of the first tree lies before all of the second one. */
static uint32_t join(uint32_t before, uint32_t behind)
{
	if (!before || !behind)
		return before ? before : behind;
	if (priority_of(before) > priority_of(behind)) {
		struct pdn_export *node = pdn_foreign_at(before);

		node->right = join(node->right, behind);
		update(node);
		return before;
	} else {
		struct pdn_export *node = pdn_foreign_at(behind);

		node->left = join(before, node->left);
		update(node);
		return behind;
	}
}

static uint32_t insert(uint32_t tree, uint32_t record)
{
	struct pdn_export *node = pdn_foreign_at(record);

	if (!tree || priority_of(record) > priority_of(tree)) {
		split(tree, record, &node->left, &node->right);
		update(node);
		return record;
	}
	node = pdn_foreign_at(tree);
	if (is_before(record, tree))
		node->left = insert(node->left, record);
	else
		node->right = insert(node->right, record);
	update(node);
	return tree;
}

static uint32_t take_out(uint32_t tree, uint32_t record)
{
	struct pdn_export *node = pdn_foreign_at(tree);

	if (tree == record)
		return join(node->left, node->right);
	if (is_before(record, tree))
		node->left = take_out(node->left, record);
	else
		node->right = take_out(node->right, record);
	update(node);
	return tree;
}

/* If anything on the left ends behind `begin`, it overlaps, or nothing on the right does. */
uint32_t pdn_foreign_overlapping(uint64_t begin, uint64_t end)
{
	uint32_t tree = root;

	while (tree) {
		const struct pdn_export *node = pdn_foreign_at(tree);

		if (node->memory.base < end && begin < node->memory.end)
			return tree;
		tree = furthest_in(node->left) > begin ? node->left : node->right;
	}
	return 0;
}

/* ---- records ------------------------------------------------------------------------------ */

static void say_whether_any(void)
{
	uint32_t others = __atomic_load_n(&pdn_pending, __ATOMIC_RELAXED) & ~PDN_PENDING_EXPORTS;

	/* Release: pairs with the loads in hook_events.c. */
	__atomic_store_n(&pdn_pending, others | (exports.count ? PDN_PENDING_EXPORTS : 0),
			 __ATOMIC_RELEASE);
}

uint32_t pdn_foreign_add(const struct pdn_export *contents)
{
	uint32_t record = pdn_hashed_add(&exports, hash_of(&contents->file));
	struct pdn_hashed_link link;

	if (!record)
		return 0;
	link = pdn_foreign_at(record)->link;
	*pdn_foreign_at(record) = *contents;
	pdn_foreign_at(record)->link = link;
	root = insert(root, record);
	say_whether_any();
	return record;
}

void pdn_foreign_remove(uint32_t record)
{
	root = take_out(root, record);
	pdn_hashed_remove(&exports, record);
	say_whether_any();
}

uint32_t pdn_foreign_after(uint32_t record)
{
	while (++record <= exports.table.used)
		if (pdn_hashed_is_taken(&exports, record))
			return record;
	return 0;
}

void pdn_foreign_clear(void)
{
	pdn_hashed_clear(&exports);
	root = 0;
}
