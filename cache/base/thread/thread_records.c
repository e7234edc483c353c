/* SPDX-License-Identifier: MIT */
/* Which records there are, which of them threads own, and the walks over these. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/thread/thread.h"
#include "cache/base/thread/thread_records.h"

__thread struct pdn_thread *pdn_self_tls __attribute__((tls_model("initial-exec")));

/*
 * Records are in blocks, each with a word that has a bit for each of its records: set while a
 * thread owns the record. Whoever sets the bit has it; sequentially consistent, to pair with the
 * walks. Cleared with release: the next owner, and a walk that no longer finds the record, see all
 * that its thread has stored.
 */
#define BLOCK  64u
#define BLOCKS 4096u /* with all of them taken, a thread gets no record */

/* Most processes have few threads that use CUDA: these records need no memory of their own. */
static struct pdn_thread first_block[BLOCK];
static struct {
	uint64_t owned;
	uint64_t frees; /* the thread has put up a guard; set by the owner, before the first one */
	struct pdn_thread *records; /* never unmapped */
} record_blocks[BLOCKS];

/*
 * All blocks but the first are listed in groups: a bit for each block with a record that is owned,
 * in the lower half of a word. The upper half counts the changes: a thread sets the bit of its
 * record and then lists the block, also when it is listed already. A thread that finds no record
 * owned takes the block off the list, and fails if a record was taken meanwhile. All of this is
 * sequentially consistent.
 */
#define GROUP	   32u
#define ONE_CHANGE (1ull << 32)
static uint64_t record_groups[BLOCKS / GROUP];
static uint32_t record_groups_used; /* no block is listed behind these; only grows */

uint32_t pdn_thread_records, pdn_thread_life = 1;

static uint64_t bit_of(const struct pdn_thread *record)
{
	return 1ull << pdn_thread_record_place(record) % BLOCK;
}

/* ---- which records are owned ----------------------------------------------------------------- */

/*
 * Sequentially consistent: pairs with the walks, as the bits do. The load, too: it stands for the
 * store of the thread that it reads from.
 */
static void use_groups(uint32_t count)
{
	uint32_t used = __atomic_load_n(&record_groups_used, __ATOMIC_SEQ_CST);

	while (used < count &&
	       !__atomic_compare_exchange_n(&record_groups_used, &used, count, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* A record in it has an owner from here on, for walks. */
static void list_block(uint32_t b)
{
	uint64_t *group = &record_groups[b / GROUP];
	uint64_t listed = __atomic_load_n(group, __ATOMIC_SEQ_CST);

	if (!b)
		return;
	use_groups(b / GROUP + 1);
	while (!__atomic_compare_exchange_n(group, &listed,
					    (listed | 1ull << b % GROUP) + ONE_CHANGE, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* The count is read before the records. */
static void unlist_empty(uint32_t b)
{
	uint64_t *group = &record_groups[b / GROUP];
	uint64_t listed = __atomic_load_n(group, __ATOMIC_SEQ_CST);

	while (b && !__atomic_load_n(&record_blocks[b].owned, __ATOMIC_SEQ_CST) &&
	       !__atomic_compare_exchange_n(group, &listed,
					    (listed & ~(1ull << b % GROUP)) + ONE_CHANGE, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

void pdn_thread_record_disown(const struct pdn_thread *record)
{
	uint32_t b = pdn_thread_record_place(record) / BLOCK;
	uint64_t bit = bit_of(record);

	if (__atomic_fetch_and(&record_blocks[b].owned, ~bit, __ATOMIC_RELEASE) == bit)
		unlist_empty(b);
}

/* ---- taking a record ------------------------------------------------------------------------- */

/* Acquire: pairs with the release below. Two threads that map the same block: one wins. */
static struct pdn_thread *block_at(uint32_t b)
{
	struct pdn_thread *block = __atomic_load_n(&record_blocks[b].records, __ATOMIC_ACQUIRE),
			  *none = NULL;
	const size_t bytes = sizeof(first_block);

	if (block)
		return block;
	block = b ? pdn_map(bytes, PROT_READ | PROT_WRITE) : first_block;
	if (!block)
		return NULL;
	if (__atomic_compare_exchange_n(&record_blocks[b].records, &none, block, false,
					__ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
		return block;
	if (b)
		pdn_unreserve(block, bytes);
	return none;
}

/* The lowest one that is free, so that they stay few. */
struct pdn_thread *pdn_thread_record_take(void)
{
	for (uint32_t b = 0; b < BLOCKS; b++) {
		uint64_t taken = __atomic_load_n(&record_blocks[b].owned, __ATOMIC_RELAXED);
		struct pdn_thread *block = ~taken ? block_at(b) : NULL;

		if (~taken && !block)
			return NULL;
		while (~taken) {
			unsigned n = (unsigned)__builtin_ctzll(~taken);
			uint64_t bit = 1ull << n;

			/* Whoever takes it stores the same. */
			__atomic_store_n(&block[n].place, b * BLOCK + n, __ATOMIC_RELAXED);
			taken = __atomic_fetch_or(&record_blocks[b].owned, bit, __ATOMIC_SEQ_CST);
			if (taken & bit)
				continue;
			list_block(b);
			return &block[n];
		}
	}
	return NULL;
}

/* ---- walks ----------------------------------------------------------------------------------- */

static inline uint64_t owned_or_frees(uint32_t b, bool frees)
{
	return __atomic_load_n(frees ? &record_blocks[b].frees : &record_blocks[b].owned,
			       __ATOMIC_SEQ_CST);
}

/* To the next block that has any. A block that is listed has records. */
static inline __attribute__((always_inline)) bool walk_on(struct pdn_walk *walk, bool that_free)
{
	uint32_t groups;

	if (!walk->has_begun) {
		walk->has_begun = true;
		walk->left = owned_or_frees(0, that_free);
		walk->block = first_block;
	}
	groups = __atomic_load_n(&record_groups_used, __ATOMIC_SEQ_CST);
	while (!walk->left && (walk->blocks || walk->group < groups)) {
		uint32_t b;

		if (!walk->blocks) {
			walk->blocks = (uint32_t)__atomic_load_n(&record_groups[walk->group++],
								 __ATOMIC_SEQ_CST);
			if (!walk->blocks)
				continue;
		}
		b = (walk->group - 1) * GROUP + (uint32_t)__builtin_ctz(walk->blocks);
		walk->blocks &= walk->blocks - 1;
		walk->left = owned_or_frees(b, that_free);
		walk->block = __atomic_load_n(&record_blocks[b].records, __ATOMIC_ACQUIRE);
	}
	walk->goes_on = walk->blocks || walk->group < groups;
	return walk->left;
}

bool pdn_walk_on(struct pdn_walk *walk)
{
	return walk_on(walk, false);
}

bool pdn_walk_on_that_free(struct pdn_walk *walk)
{
	return walk_on(walk, true);
}

/* Its bit is seen by a walk, or it sees all that was stored before that: as with `owned`. */
void pdn_thread_frees(struct pdn_thread *self)
{
	__atomic_fetch_or(&record_blocks[pdn_thread_record_place(self) / BLOCK].frees, bit_of(self),
			  __ATOMIC_SEQ_CST);
	self->guard_depth = 0;
}

/* Release: a walk that does not visit the record for this sees what was stored before. */
void pdn_thread_record_frees_no_more(const struct pdn_thread *self)
{
	__atomic_fetch_and(&record_blocks[pdn_thread_record_place(self) / BLOCK].frees,
			   ~bit_of(self), __ATOMIC_RELEASE);
}

/* Acquire: pairs with begin_record() in thread.c. */
struct pdn_thread *pdn_thread_next_ever(const struct pdn_thread *before)
{
	uint32_t place = before ? pdn_thread_record_place(before) + 1 : 0;
	uint32_t groups = __atomic_load_n(&record_groups_used, __ATOMIC_SEQ_CST);

	for (uint32_t b = place / BLOCK; !b || b < GROUP * groups; b++, place = b * BLOCK) {
		struct pdn_thread *block =
			__atomic_load_n(&record_blocks[b].records, __ATOMIC_ACQUIRE);

		for (uint32_t i = place % BLOCK; block && i < BLOCK; i++)
			if (__atomic_load_n(&block[i].life, __ATOMIC_ACQUIRE) == pdn_thread_life)
				return &block[i];
	}
	return NULL;
}

static bool __attribute__((noinline)) is_alone_in_all_blocks(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *first = pdn_walk_next(&walk);

	return !first || (first == pdn_self_tls && !pdn_walk_next(&walk));
}

/*
 * All holds of a thread that has ended are seen: the loads are acquires, too. Most processes have
 * one block; it and the groups are loaded in the order of a walk.
 */
bool pdn_thread_is_alone(void)
{
	const struct pdn_thread *self = pdn_self_tls;
	uint64_t owned = owned_or_frees(0, false);

	if (__atomic_load_n(&record_groups_used, __ATOMIC_SEQ_CST))
		return is_alone_in_all_blocks();
	return !(owned & ~(self ? bit_of(self) : 0));
}

bool pdn_thread_waits(uint32_t tid)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	/* Relaxed: the caller has the number from that thread, under the lock. */
	while ((t = pdn_walk_next(&walk)))
		if (__atomic_load_n(&t->tid, __ATOMIC_RELAXED) == tid)
			return __atomic_load_n(&t->waits, __ATOMIC_RELAXED);
	return true;
}

/* ---- forks ----------------------------------------------------------------------------------- */

/* In a child: nobody owns any of its records, but this thread, perhaps, its own. */
static void begin_block_again(uint32_t b, struct pdn_thread *self)
{
	uint64_t own = self && pdn_thread_record_place(self) / BLOCK == b ? bit_of(self) : 0;

	for (uint64_t left = record_blocks[b].owned; left; left &= left - 1) {
		struct pdn_thread *t = record_blocks[b].records + __builtin_ctzll(left);

		memset(t->guards, 0, sizeof(t->guards));
		t->announced = 0;
		t->comparing = 0;
		t->waits = 0;
		t->tid = 0;
	}
	record_blocks[b].owned = own;
	record_blocks[b].frees &= own;
}

/* Relaxed: there is no other thread. */
void pdn_thread_records_fork_child(struct pdn_thread *self)
{
	memset(record_groups, 0, sizeof(record_groups));
	for (uint32_t b = 0; b < BLOCKS && record_blocks[b].records; b++)
		begin_block_again(b, self);
	if (self)
		list_block(pdn_thread_record_place(self) / BLOCK);
}
