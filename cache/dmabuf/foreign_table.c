/* SPDX-License-Identifier: MIT */
/*
 * The table of the program's own dma-bufs: a hash of their files, and a tree of the addresses of
 * their memory. Records may be of the same memory, or overlap where a free was not seen; the
 * greatest end in each subtree finds an overlap in one walk down.
 */
#define _GNU_SOURCE
#include "cache/dmabuf/foreign_table.h"

#include <stddef.h>
#include <unistd.h>

#include "cache/base/thread/lock.h"
#include "cache/base/thread/seqcount.h"
#include "cache/base/process/system.h"

static struct pdn_hashed exports = PDN_HASHED(struct pdn_export);
static PDN_NOT_INHERITED uint32_t root;
PDN_NOT_INHERITED bool pdn_any_export;

/* Of changes of all of this, for walks without the lock. */
static PDN_NOT_INHERITED struct pdn_seqcount changes;

/* An address that walks read. */
static uint64_t address_at(const uint64_t *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

struct pdn_export *pdn_foreign_at(uint32_t record)
{
	return pdn_hashed_at(&exports, record);
}

uint32_t pdn_foreign_count(void)
{
	return exports.count;
}

/* ---- files -------------------------------------------------------------------------------- */

/*
 * Of the calls that name a file this is the fastest, and it needs no descriptor of pindown's own,
 * which the program could have replaced as well as its own.
 */
bool pdn_file_of(int fd, struct pdn_file *file)
{
	struct stat st;

	if (fd < 0 || !pdn_sys_fstat(fd, &st))
		return false;
	*file = (struct pdn_file){
		.inode = st.st_ino,
		.device = st.st_dev,
		.position = S_ISREG(st.st_mode) ? pdn_sys(SYS_lseek, fd, 0, SEEK_CUR) : -1,
	};
	return true;
}

static uint64_t hash_of(const struct pdn_file *file)
{
	return pdn_hash(file->inode + file->device * 0x9e3779b97f4a7c15u +
			(uint64_t)file->position * 0xd6e8feb86659fd93u);
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

/* ---- without the lock --------------------------------------------------------------------- */

#define FILES_AT_ONCE 8	 /* records of one chain; there is rarely more than one */
#define DEEPEST	      64 /* of the tree; with a million of records, twice the usual depth */

static void copy_out(const struct pdn_export *from, struct pdn_export *to)
{
	typedef uint64_t __attribute__((may_alias)) word;
	const size_t begin = offsetof(struct pdn_export, file) / sizeof(word);
	const size_t end = offsetof(struct pdn_export, node) / sizeof(word);

	for (size_t i = begin; i < end; i++)
		((word *)to)[i] = __atomic_load_n((const word *)from + i, __ATOMIC_ACQUIRE);
}

enum pdn_truth pdn_foreign_peek(const struct pdn_file *file, struct pdn_export *copy)
{
	uint64_t hash = hash_of(file);
	uint64_t begun = pdn_seqcount_read_begin(&changes);
	uint32_t steps = 0, found = 0;

	/* 0: this thread has not seen the first change yet, nor the table's memory. */
	if (!begun)
		return PDN_UNKNOWN;
	for (uint32_t n = pdn_hashed_chain(&exports, hash); n && steps < FILES_AT_ONCE; steps++) {
		const struct pdn_export *export = pdn_foreign_at(n);

		n = pdn_hashed_chain_next(&export->link);
		if (address_at(&export->link.hash) != hash)
			continue;
		if (!found++)
			copy_out(export, copy);
	}
	if (!pdn_seqcount_unchanged(&changes, begun) || steps == FILES_AT_ONCE || found > 1)
		return PDN_UNKNOWN;
	return found && pdn_file_is(&copy->file, file) ? PDN_TRUE : PDN_FALSE;
}

/* As pdn_foreign_overlapping(). */
bool pdn_foreign_may_overlap(uint64_t begin, uint64_t end)
{
	uint64_t begun = pdn_seqcount_read_begin(&changes);
	uint32_t tree = pdn_tree_load(&root);

	for (unsigned depth = 0; tree && depth < DEEPEST; depth++) {
		const struct pdn_export *node = pdn_foreign_at(tree);
		uint32_t left = pdn_tree_load(&node->node.left);

		if (address_at(&node->memory.base) < end && begin < address_at(&node->memory.end))
			return true;
		if (left && address_at(&pdn_foreign_at(left)->node.furthest) > begin)
			tree = left;
		else
			tree = pdn_tree_load(&node->node.right);
	}
	return tree || !pdn_seqcount_unchanged(&changes, begun);
}

/* ---- addresses ---------------------------------------------------------------------------- */

static bool is_before(uint32_t a, uint32_t b)
{
	uint64_t base_a = pdn_foreign_at(a)->memory.base, base_b = pdn_foreign_at(b)->memory.base;

	return base_a < base_b || (base_a == base_b && a < b);
}

static uint64_t end_of(uint32_t record)
{
	return pdn_foreign_at(record)->memory.end;
}

static const struct pdn_tree by_address = {
	.records = &exports,
	.node = offsetof(struct pdn_export, node),
	.is_before = is_before,
	.end_of = end_of,
};

/* If anything on the left ends behind `begin`, it overlaps, or nothing on the right does. */
uint32_t pdn_foreign_overlapping(uint64_t begin, uint64_t end)
{
	uint32_t tree = root;

	while (tree) {
		const struct pdn_export *node = pdn_foreign_at(tree);

		if (node->memory.base < end && begin < node->memory.end)
			return tree;
		tree = pdn_tree_furthest(&by_address, node->node.left) > begin ? node->node.left
									       : node->node.right;
	}
	return 0;
}

/* ---- records ------------------------------------------------------------------------------ */

static void say_whether_any(void)
{
	/* Release: pairs with pdn_exports_any(). */
	__atomic_store_n(&pdn_any_export, exports.count != 0, __ATOMIC_RELEASE);
}

uint32_t pdn_foreign_add(const struct pdn_export *contents)
{
	uint32_t record;

	pdn_seqcount_write_begin(&changes);
	record = pdn_hashed_add(&exports, hash_of(&contents->file));
	if (record) {
		pdn_hashed_fill(&exports, record, contents);
		pdn_tree_insert(&by_address, &root, record);
	}
	pdn_seqcount_write_end(&changes);
	say_whether_any();
	return record;
}

void pdn_foreign_exported_again(uint32_t record, const struct pdn_export *again)
{
	struct pdn_export *export = pdn_foreign_at(record);

	export->number = again->number;
	export->seen = again->seen;
	export->fd = again->fd;
}

void pdn_foreign_remove(uint32_t record)
{
	pdn_seqcount_write_begin(&changes);
	pdn_tree_remove(&by_address, &root, record);
	pdn_hashed_remove(&exports, record);
	pdn_seqcount_write_end(&changes);
	say_whether_any();
}

uint32_t pdn_foreign_after(uint32_t record)
{
	while (++record <= exports.table.used)
		if (pdn_hashed_is_taken(&exports, record))
			return record;
	return 0;
}
