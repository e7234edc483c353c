/* SPDX-License-Identifier: MIT */
/* A record for each thread, and the stripes of hold counts. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/barrier.h"
#include "cache/base/cancel.h"
#include "cache/base/process.h"
#include "cache/base/thread.h"

__thread struct pdn_thread *pdn_self_tls __attribute__((tls_model("initial-exec")));

struct pdn_thread pdn_anonymous = {.counters = &pdn_anonymous.own_counters, .stripe_asked = true};

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

struct pdn_counters pdn_thread_ended[2];

PDN_WEAK_EVENT(thread_starts, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_exits, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_counts, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_quits, (void));
static pthread_key_t at_thread_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/*
 * Taken with acquire, given back with release: the next owner continues from the counts of the
 * last.
 */
static uint64_t stripes_taken[PDN_STRIPES / 64] = {1u << PDN_STRIPE_SHARED}; /* one bit each */
uint64_t pdn_stripes[PDN_STRIPES / 64];
uint32_t pdn_stripe_words = 1, pdn_stripe_orphans;

void pdn_thread_return_stripe(uint32_t stripe)
{
	__atomic_fetch_and(&stripes_taken[stripe / 64], ~(1ull << stripe % 64), __ATOMIC_RELEASE);
}

static void give_back_stripe(struct pdn_thread *self)
{
	/* Its counts stay as they are: they are summed, and the next owner continues from there. */
	if (self->stripe != PDN_STRIPE_SHARED) {
		__atomic_fetch_add(&pdn_stripe_orphans, 1, __ATOMIC_RELAXED);
		pdn_thread_return_stripe(self->stripe);
	}
	self->stripe = PDN_STRIPE_SHARED;
	self->stripe_asked = false;
	self->holds = NULL;
}

/*
 * With asynchronous cancellation, in the middle of a hit as well. Release: as at the end of
 * hold_if().
 */
static void drop_announcement(struct pdn_thread *self)
{
	__atomic_store_n(&self->probing, 0, __ATOMIC_RELEASE);
}

/* By the record's owner, or for an owner that is gone. */
static void change_ended(const struct pdn_thread *self, uint64_t sign)
{
	const uint64_t *counted = &self->counters->hits;
	uint64_t *sum = &pdn_thread_ended[self->in_page].hits;

	for (unsigned i = 0; i < sizeof(struct pdn_counters) / sizeof(*sum); i++)
		__atomic_fetch_add(&sum[i], sign * counted[i], __ATOMIC_RELAXED);
}

/* Relaxed: pairs with take_record(). */
static uint32_t place_of(const struct pdn_thread *record)
{
	return __atomic_load_n(&record->place, __ATOMIC_RELAXED);
}

static uint64_t bit_of(const struct pdn_thread *record)
{
	return 1ull << place_of(record) % BLOCK;
}

/* ---- which records are owned --------------------------------------------------------------- */

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

static void disown(const struct pdn_thread *record)
{
	uint32_t b = place_of(record) / BLOCK;
	uint64_t bit = bit_of(record);

	if (__atomic_fetch_and(&record_blocks[b].owned, ~bit, __ATOMIC_RELEASE) == bit)
		unlist_empty(b);
}

/* ---- ends ---------------------------------------------------------------------------------- */

/*
 * A thread can end in the middle of a call whose end it was to report. It frees no more. Release:
 * as in pdn_ended().
 */
static void drop_guards(struct pdn_thread *self)
{
	for (unsigned i = 0; i < PDN_GUARDS; i++)
		__atomic_store_n(&self->guards[i].kind, 0, __ATOMIC_RELEASE);
	self->guard_depth = PDN_NO_GUARD_YET;
	/* Release: a walk that does not visit the record for this sees what was stored before. */
	__atomic_fetch_and(&record_blocks[place_of(self) / BLOCK].frees, ~bit_of(self),
			   __ATOMIC_RELEASE);
}

/*
 * The record is to be ended by one caller only: by its thread, or by another one that has found
 * that the thread of this number is gone. Since the number was read, the record may have had an
 * owner more, whose it stays then. Acquire: pairs with the release of the number.
 */
static bool claim(struct pdn_thread *record, uint32_t tid)
{
	return tid && __atomic_compare_exchange_n(&record->tid, &tid, 0, false, __ATOMIC_ACQUIRE,
						  __ATOMIC_RELAXED);
}

/*
 * It has been claimed. A lock that is taken here may find that this is a child, which then begins
 * again: nobody owns the record there any more, and what it counted was the parent's.
 */
static void end_record(struct pdn_thread *record)
{
	drop_guards(record);
	drop_announcement(record);
	__atomic_store_n(&record->waits, 0, __ATOMIC_RELAXED);
	PDN_NOTIFY(thread_exits, record);
	if (record->life != pdn_thread_life)
		return;
	give_back_stripe(record);
	change_ended(record, 1);
	disown(record);
}

/*
 * While a record changes hands, no signal handler runs in its thread: it could fork, or take a
 * record itself. Nor is the thread cancelled. Signals that an instruction raises are let through,
 * as the system would end the process.
 */
static void hold_signals(sigset_t *before)
{
	static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (unsigned i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		sigdelset(&all, raised[i]);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

static void let_signals_in(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* ---- frees without a record ---------------------------------------------------------------- */

uint32_t pdn_thread_recordless;

/* This thread's. It may be cancelled in the driver's free, and may have got a record by then. */
static __thread int own_recordless __attribute__((tls_model("initial-exec")));

/*
 * Not interrupted in between: a signal handler could fork, and the child, which counts from 0
 * again, would count down what it has not counted, or never what it has. (An asynchronous
 * cancellation leaves one counted for good: pins wait for it, but none is overlooked.)
 */
uint32_t __attribute__((cold)) pdn_thread_count_recordless(int change, uint32_t life)
{
	sigset_t signals;
	uint32_t now;

	hold_signals(&signals);
	now = pdn_thread_life;
	if (!life || life == now) {
		if (change < 0)
			own_recordless += change;
		__atomic_fetch_add(&pdn_thread_recordless, (uint32_t)change, __ATOMIC_SEQ_CST);
		if (change > 0)
			own_recordless += change;
	}
	let_signals_in(&signals);
	return now;
}

/* ---- a thread ends -------------------------------------------------------------------------- */

static void detach(void *record)
{
	PDN_UNCANCELLED;
	struct pdn_thread *self = record;
	sigset_t signals;
	bool claimed;

	hold_signals(&signals);
	if (own_recordless)
		pdn_thread_count_recordless(-own_recordless, 0);
	claimed = claim(self, __atomic_load_n(&self->tid, __ATOMIC_RELAXED));
	/*
	 * Code of pindown's that this thread runs from here on gets a record once more. It does not
	 * take this one for lost, as it is claimed.
	 */
	pdn_self_tls = NULL;
	if (claimed)
		end_record(self);
	let_signals_in(&signals);
}

static void init_once(void)
{
	if (pthread_key_create(&at_thread_exit, detach) != 0)
		at_thread_exit = (pthread_key_t)-1; /* then end_lost() finds the records */
	pdn_barrier_init();
	if (!pdn_process_is_known())
		pdn_process_begin();
}

/* ---- taking a record ----------------------------------------------------------------------- */

/* Acquire: pairs with the release below. Two threads that map the same block: one wins. */
static struct pdn_thread *block_at(uint32_t b)
{
	struct pdn_thread *block = __atomic_load_n(&record_blocks[b].records, __ATOMIC_ACQUIRE),
			  *none = NULL;
	const size_t bytes = sizeof(first_block);

	if (block)
		return block;
	block = b ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
		  : first_block;
	if (block == MAP_FAILED)
		return NULL;
	if (__atomic_compare_exchange_n(&record_blocks[b].records, &none, block, false,
					__ATOMIC_RELEASE, __ATOMIC_ACQUIRE))
		return block;
	if (b)
		munmap(block, bytes);
	return none;
}

/* The lowest one that is free, so that they stay few. */
static struct pdn_thread *take_record(void)
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

/* ---- threads that ended unseen ------------------------------------------------------------- */

/* A record beyond this number is a reason to look for them. Relaxed: any value is good. */
#define LOOK_AT_LEAST 16u
static uint32_t look_from = LOOK_AT_LEAST;
static uint32_t looking; /* one thread looks; acquire and release */

static bool is_gone(uint32_t tid)
{
	return syscall(SYS_sched_getscheduler, tid) < 0 && errno == ESRCH;
}

/*
 * A thread that was made by clone(), that ended by the bare system call, or that used pindown in
 * its last destructor has not given its record back. The system no longer knows such a thread. This
 * is looked for when there are twice as many records in use as there were threads at the last look.
 * So records are at most twice as many as threads, and a new thread makes two system calls for that
 * on the average. A record whose number is not known yet is left alone.
 */
static void end_lost(void)
{
	uint32_t living = 0, mine = (uint32_t)syscall(SYS_gettid), at_least = LOOK_AT_LEAST;
	struct pdn_walk walk = PDN_WALK;
	struct pdn_thread *t;

	if (__atomic_exchange_n(&looking, 1, __ATOMIC_ACQUIRE))
		return;
	while ((t = pdn_walk_next(&walk))) {
		uint32_t tid = __atomic_load_n(&t->tid, __ATOMIC_RELAXED);

		/* This thread has none: a record of its number is that of an earlier one. */
		if ((tid == mine || (tid && is_gone(tid))) && claim(t, tid))
			end_record(t);
		else
			living++;
	}
	__atomic_store_n(&look_from, 2 * living > at_least ? 2 * living : at_least,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&looking, 0, __ATOMIC_RELEASE);
}

static struct pdn_thread *take_low_record(void)
{
	struct pdn_thread *record = take_record();

	if (!record || place_of(record) < __atomic_load_n(&look_from, __ATOMIC_RELAXED))
		return record;
	end_lost();
	disown(record);
	return take_record();
}

/*
 * A record that was not used before in this process; in a child it may be one of the parent's.
 * Release: pairs with pdn_counter_sum().
 */
static void begin_record(struct pdn_thread *self)
{
	memset(&self->own_counters, 0, sizeof(self->own_counters));
	memset(self, 0, offsetof(struct pdn_thread, probing));
	self->counters = &self->own_counters;
	__atomic_fetch_add(&pdn_thread_records, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&self->life, pdn_thread_life, __ATOMIC_RELEASE);
}

/* Signals are held, and the thread is not cancelled. */
static struct pdn_thread *begin_thread(void)
{
	/*
	 * Pairs with the walks: they see this thread, or this thread sees what was stored before
	 * them.
	 */
	struct pdn_thread *self = take_low_record();

	if (!self) {
		/* So that detach() is called all the same. */
		pthread_setspecific(at_thread_exit, &pdn_anonymous);
		return NULL;
	}
	if (self->life == pdn_thread_life)
		change_ended(self, -1ull);
	else
		begin_record(self);
	self->guard_depth = PDN_NO_GUARD_YET;
	pdn_self_tls = self;
	/* Release: a thread that finds that this one is gone ends all of the above. */
	__atomic_store_n(&self->tid, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	if (at_thread_exit != (pthread_key_t)-1)
		pthread_setspecific(at_thread_exit, self);
	PDN_NOTIFY(thread_starts, self);
	PDN_NOTIFY(thread_counts, self);
	return self;
}

struct pdn_thread *pdn_thread_attach(void)
{
	PDN_UNCANCELLED;
	struct pdn_thread *self;
	sigset_t signals;
	int saved = errno;

	hold_signals(&signals); /* first: a handler would wait for what this thread begins once */
	pthread_once(&once, init_once);
	/* Since it was looked for, a signal handler may have taken one for this thread. */
	self = pdn_self_tls ? pdn_self_tls : begin_thread();
	let_signals_in(&signals);
	errno = saved;
	return self;
}

uint32_t pdn_my_tid(void)
{
	const struct pdn_thread *self = pdn_self();

	return self ? self->tid : (uint32_t)syscall(SYS_gettid);
}

/* ---- walks --------------------------------------------------------------------------------- */

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
	__atomic_fetch_or(&record_blocks[place_of(self) / BLOCK].frees, bit_of(self),
			  __ATOMIC_SEQ_CST);
	self->guard_depth = 0;
}

/* Acquire: pairs with begin_record(). */
struct pdn_thread *pdn_thread_next_ever(const struct pdn_thread *before)
{
	uint32_t place = before ? place_of(before) + 1 : 0;
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

/* ---- stripes ------------------------------------------------------------------------------- */

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
void pdn_thread_use_shared_stripe(void)
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
uint32_t pdn_thread_take_stripe(void)
{
	uint32_t stripe = PDN_STRIPE_SHARED;

	for (uint32_t word = 0; word < PDN_STRIPES / 64 && stripe == PDN_STRIPE_SHARED; word++)
		stripe = take_stripe_in(word);
	return stripe;
}

void pdn_thread_use_stripe(struct pdn_thread *self, uint32_t stripe)
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

uint32_t pdn_thread_take_orphan(void)
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
void pdn_thread_return_orphan(uint32_t stripe)
{
	__atomic_fetch_and(&pdn_stripes[stripe / 64], ~(1ull << stripe % 64), __ATOMIC_RELEASE);
	pdn_thread_return_stripe(stripe);
}

/* ---- events for all threads ---------------------------------------------------------------- */

void pdn_thread_look_now(void)
{
	for (struct pdn_thread *t = pdn_thread_next_ever(NULL); t; t = pdn_thread_next_ever(t))
		__atomic_store_n(&t->until_look, 0, __ATOMIC_RELAXED);
}

/* In a child: nobody owns any of its records, but this thread, perhaps, its own. */
static void begin_block_again(uint32_t b, struct pdn_thread *self)
{
	uint64_t own = self && place_of(self) / BLOCK == b ? bit_of(self) : 0;

	for (uint64_t left = record_blocks[b].owned; left; left &= left - 1) {
		struct pdn_thread *t = record_blocks[b].records + __builtin_ctzll(left);

		memset(t->guards, 0, sizeof(t->guards));
		t->probing = 0;
		t->waits = 0;
		t->tid = 0;
	}
	record_blocks[b].owned = own;
	record_blocks[b].frees &= own;
}

/* Relaxed: there is no other thread. */
static void begin_blocks_again(struct pdn_thread *self)
{
	memset(record_groups, 0, sizeof(record_groups));
	for (uint32_t b = 0; b < BLOCKS && record_blocks[b].records; b++)
		begin_block_again(b, self);
	if (self)
		list_block(place_of(self) / BLOCK);
}

void pdn_thread_fork_child(void)
{
	struct pdn_thread *self = pdn_self_tls;

	/* This thread may have been interrupted in a get, and keeps its stripe. */
	memset(stripes_taken, 0, sizeof(stripes_taken));
	memset(pdn_stripes, 0, sizeof(pdn_stripes)); /* no count is of a region of the child's */
	pdn_stripe_orphans = 0;
	stripes_taken[0] = 1u << PDN_STRIPE_SHARED;
	if (self) {
		stripes_taken[self->stripe / 64] |= 1ull << self->stripe % 64;
		use_stripe(self->stripe);
	}
	begin_blocks_again(self);
	/* The next owners of the other records begin them. */
	pdn_thread_life++;
	pdn_thread_records = 0;
	pdn_thread_recordless = 0;
	own_recordless = 0;
	memset(pdn_thread_ended, 0, sizeof(pdn_thread_ended));
	looking = 0;
	if (!self)
		return;
	memset(&self->own_counters, 0, sizeof(self->own_counters));
	self->counters = &self->own_counters;
	self->in_page = false;
	if (self->guard_depth > 0)
		self->guard_depth = 0;
	self->life = pdn_thread_life;
	self->tid = (uint32_t)syscall(SYS_gettid);
	pdn_thread_records = 1;
}

void __attribute__((cold)) pdn_thread_quits(void)
{
	PDN_NOTIFY(thread_quits);
}

static uint64_t counter(const struct pdn_counters *counters, unsigned which)
{
	const char *at = (const char *)counters + which;

	/* Relaxed: pairs with pdn_count(), or change_ended(); the sum need not be exact. */
	return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
}

uint64_t pdn_counter_sum(unsigned which)
{
	uint64_t sum =
		counter(&pdn_thread_ended[false], which) + counter(&pdn_thread_ended[true], which);
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk)))
		/*
		 * Acquire: pairs with begin_record(), and with trace/stream.c and top/page.c, which
		 * move the counters when they have filled them.
		 */
		if (__atomic_load_n(&t->life, __ATOMIC_ACQUIRE) == pdn_thread_life)
			sum += counter(__atomic_load_n(&t->counters, __ATOMIC_ACQUIRE), which);
	return sum;
}
