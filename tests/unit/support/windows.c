/* SPDX-License-Identifier: MIT */
/*
 * Holds threads up at the cache's named points, and counts which windows were entered: see
 * windows.h.
 */
#define _GNU_SOURCE
#include "tests/unit/support/windows.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/base/test_point.h"

#define MAX_THREADS 16
#define NOWHERE	    PDN_POINT_COUNT

/*
 * The decisive pairs. The first thread has passed its point, and has not done what follows in the
 * code, when the second thread passes the other point.
 */
#define WINDOWS(W)                                                                                 \
	/* a hit against whatever removes the region */                                            \
	W(HIT_FOUND, END_DYING, "a hit has found the region, not announced it; it ends")           \
	W(HIT_FOUND, END_UNPINNED, "the same, until it is unpinned and its record is free")        \
	W(HIT_FOUND, PIN_COMMITTED, "the same, until another is in its place")                     \
	W(HIT_ANNOUNCED, END_DYING, "a hit has announced it, not read its state; it ends")         \
	W(HIT_ANNOUNCED, END_BARRIER, "the same, and the end waits for the hit")                   \
	W(HIT_LIVE, END_DYING, "a hit has seen it live, not counted its hold; it ends")            \
	W(HIT_LIVE, END_BARRIER, "the same, and the end waits for the hit")                        \
	W(HIT_LIVE, EVICT_MARKED, "the same, and it is to be evicted")                             \
	W(HIT_HELD, END_BARRIER, "a hit has counted its hold, still announced")                    \
	W(HIT_COMPARED, FREE_GUARDED, "a checked hit was right; then it is freed")                 \
	W(HIT_COMPARES, FREE_GUARDED, "a hit is about to be checked; it is freed")                 \
	W(HIT_COMPARES, END_LETTING_GO, "the same, and the end waits for the answer")              \
	W(END_DYING, HIT_ANNOUNCED, "no longer live, still in the index; a hit announces it")      \
	W(END_UNLINKED, HIT_ANNOUNCED, "unlinked before the barrier; a late hit announces it")     \
	W(HIT_ANNOUNCED, EVICT_MARKED, "a hit has announced it; it is to be evicted")              \
	W(EVICT_CHOSEN, HIT_HELD, "it looked idle, is to be evicted; a hit takes it")              \
	W(EVICT_MARKED, HIT_ANNOUNCED, "to be evicted, before the barrier; a hit announces it")    \
	W(END_TELLING, QUESTION_BEGUN, "ended, not yet told; another get pins it again")           \
	W(END_UNPINNING, QUESTION_BEGUN, "told, not yet unpinned; another get pins it again")      \
	/* a put against whatever removes the region */                                            \
	W(PUT_DROPPED, END_DYING, "a put has dropped its hold, not read the state; it ends")       \
	W(PUT_DROPPED, END_COUNTING, "the same, and the holds are about to be counted")            \
	W(END_DYING, PUT_DROPPED, "it ends, holds not counted; a put drops one")                   \
	W(END_COUNTING, PUT_DROPPED, "holds are being counted; a put drops one")                   \
	W(END_COUNTING, PUT_SLOW, "the same, and it sees the end")                                 \
	W(END_TELLING, PUT_SLOW, "in use, not yet told; the last put comes for the lock")          \
	W(END_LETTING_GO, PUT_SLOW, "told; the end's own hold and the last put go together")       \
	W(PUT_SLOW, PUT_SLOW, "two puts both come for the lock")                                   \
	W(PUT_SLOW, END_LETTING_GO, "a put comes for the lock; the end drops its own hold")        \
	W(PUT_LAST, FREE_GUARDED, "the last put is about to unpin; a free of what is there")       \
	W(EVICT_COUNTING, PUT_DROPPED, "is it idle? a put makes it so just then")                  \
	W(PUT_DROPPED, EVICT_COUNTING, "a put has dropped its hold; is it idle?")                  \
	/* a pin against a free */                                                                 \
	W(FREE_GUARDED, QUESTION_BEGUN, "the guard is up, nothing looked at; a pin begins")        \
	W(FREE_LOOKING, QUESTION_BEGUN, "nothing was busy; a pin begins")                          \
	W(FREE_GUARDED, PIN_COMMITTED, "the guard is up; a pin that saw none gets into the index") \
	W(QUESTION_BEGUN, FREE_GUARDED, "a pin has begun, is before its barrier; a free begins")   \
	W(PIN_DESCRIBED, FREE_GUARDED, "the driver has answered a pin; a free begins")             \
	W(PIN_DESCRIBED, END_WAITING, "the same, and it waits for the pin")                        \
	W(PIN_ANNOUNCED, END_WAITING, "about to pin; a free waits for that")                       \
	W(PIN_PINNED, FREE_GUARDED, "pinned, not yet in the index; a free begins")                 \
	W(PIN_PINNED, END_WAITING, "the same, and it waits")                                       \
	W(PIN_SAME, FREE_GUARDED, "the id was the same, the lock not taken; a free begins")        \
	W(PIN_SAME, END_WAITING, "the same, and it waits")                                         \
	W(PIN_LOST, END_WAITING, "a pin has lost, is not given back; the free waits")              \
	W(PIN_COMMITTED, FREE_GUARDED, "in the index, not yet returned; a free begins")            \
	W(PIN_COMMITTED, END_COUNTING, "the same; its hold is counted")                            \
	W(PIN_WAITING, FREE_ENDED, "a pin waits for a guard, which is about to come down")         \
	W(PIN_ANNOUNCED, PIN_DUPLICATE, "two threads pin the same")                                \
	/* two ends; unpins that a free has to wait for */                                         \
	W(END_TELLING, FREE_GUARDED, "ended by one, not yet told; another frees it")               \
	W(END_UNPINNING, FREE_GUARDED, "ended by one, not yet unpinned; another frees it")         \
	W(END_UNPINNING, END_WAITING, "the same, and the free waits")                              \
	W(END_UNPINNED, END_WAITING, "unpinned, not yet announced; the free waits")                \
	W(END_LETTING_GO, END_WAITING, "in use and told, its own hold not dropped; a free waits")  \
	W(EVICT_MARKED, FREE_GUARDED, "to be evicted; a free begins")                              \
	/* new memory where old memory may have been freed unseen */                               \
	W(ALLOC_BEGUN, PIN_COMMITTED, "new memory, not told of yet; it is pinned already")         \
	W(ALLOC_FORGOTTEN, HIT_FOUND, "hits must not be compared; one finds what may be dead")     \
	W(ALLOC_FORGOTTEN, PIN_COMMITTED, "the same; a pin gets into the index")                   \
	W(ALLOC_COMPARED, HIT_FOUND, "dead regions are gone; a hit that is still checked")         \
	W(PIN_SAME, ALLOC_FORGOTTEN, "the id was the same; new memory takes its place")

static struct window {
	enum pdn_point first, second;
	const char *what;
	uint64_t entered;
} windows[] = {
#define WINDOW(first, second, what) {PDN_POINT_##first, PDN_POINT_##second, what, 0},
	WINDOWS(WINDOW)
#undef WINDOW
};
#define COUNT (sizeof(windows) / sizeof(windows[0]))

static const char *const point_names[] = {
#define NAME(name) #name,
	PDN_POINTS_ALL(NAME)
#undef NAME
};

static uint64_t passed_all; /* points passed, by all threads */

/* Enough for one round. A step that is written while it is printed may be garbled. */
#define MAX_STEPS (1u << 18)
static struct step {
	const char *what;
	uint64_t unit, number;
	int thread;
} steps[MAX_STEPS];
static uint64_t steps_taken;

static struct stand {
	bool taken;
	uint64_t unit;
	uint32_t point;	    /* NOWHERE: the thread is not held up */
	uint32_t disturbed; /* how many windows were entered while it is held up */
} stands[MAX_THREADS] = {[0 ... MAX_THREADS - 1] = {.point = NOWHERE}};
static __thread struct stand *mine;
static __thread uint64_t dice;

static uint32_t roll(uint32_t sides)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return (uint32_t)((dice >> 32) * sides >> 32);
}

void windows_join(uint64_t seed)
{
	for (unsigned i = 0; i < MAX_THREADS && !mine; i++)
		if (!__atomic_test_and_set(&stands[i].taken, __ATOMIC_ACQUIRE))
			mine = &stands[i];
	if (!mine)
		abort();
	__atomic_store_n(&mine->point, NOWHERE, __ATOMIC_RELAXED);
	dice = seed | 1;
}

void windows_leave(void)
{
	__atomic_clear(&mine->taken, __ATOMIC_RELEASE);
	mine = NULL;
}

/* ---- remembering ---- */

uint64_t windows_note(const char *what, uint64_t addr, uint64_t number)
{
	uint64_t which = __atomic_fetch_add(&steps_taken, 1, __ATOMIC_SEQ_CST);
	struct step *step = &steps[which % MAX_STEPS];

	__atomic_store_n(&step->what, what, __ATOMIC_RELAXED);
	__atomic_store_n(&step->unit, addr / WINDOW_UNIT, __ATOMIC_RELAXED);
	__atomic_store_n(&step->number, number, __ATOMIC_RELAXED);
	__atomic_store_n(&step->thread, mine ? (int)(mine - stands) : -1, __ATOMIC_RELAXED);
	return which;
}

void windows_print_steps(uint64_t addr, uint64_t which, uint64_t before, uint64_t behind)
{
	uint64_t taken = __atomic_load_n(&steps_taken, __ATOMIC_SEQ_CST);
	uint64_t kept = taken > MAX_STEPS ? taken - MAX_STEPS : 0;
	uint64_t first = which > kept + before ? which - before : kept;
	uint64_t end = which + behind < taken ? which + behind : taken;

	for (uint64_t i = first; i < end; i++) {
		const struct step *step = &steps[i % MAX_STEPS];

		if (step->unit && step->unit != addr / WINDOW_UNIT)
			continue;
		printf("%s%8" PRIu64 "  thread %d  %-28s %" PRIu64 "\n", i == which ? ">" : " ", i,
		       step->thread, step->what, step->number);
	}
	fflush(stdout);
}

/* ---- counting ---- */

static void enter(uint32_t first, uint32_t second)
{
	for (unsigned w = 0; w < COUNT; w++)
		if (windows[w].first == first && windows[w].second == second)
			__atomic_fetch_add(&windows[w].entered, 1, __ATOMIC_RELAXED);
}

/* Is another thread held up, for the same memory? Then this thread enters a window. */
static void disturb_others(enum pdn_point point, uint64_t unit)
{
	for (unsigned i = 0; i < MAX_THREADS; i++) {
		struct stand *other = &stands[i];
		uint32_t at = __atomic_load_n(&other->point, __ATOMIC_SEQ_CST);

		if (other == mine || at == NOWHERE ||
		    __atomic_load_n(&other->unit, __ATOMIC_RELAXED) != unit)
			continue;
		enter(at, point);
		__atomic_fetch_add(&other->disturbed, 1, __ATOMIC_RELAXED);
	}
}

/* ---- holding up ---- */

static bool is_wanted(enum pdn_point first)
{
	for (unsigned w = 0; w < COUNT; w++)
		if (windows[w].first == first &&
		    __atomic_load_n(&windows[w].entered, __ATOMIC_RELAXED) < 3)
			return true;
	return false;
}

/*
 * For how many turns of the processor a thread is held up at most. A long stop lets another thread
 * do all of a free, or of a free, an allocation and a pin. Windows that have not been entered yet
 * get more of them.
 */
static unsigned how_long(enum pdn_point point)
{
	uint32_t what = roll(100);

	if (is_wanted(point))
		return what < 50 ? 0 : what < 80 ? 100 : 1000;
	return what < 85 ? 0 : what < 95 ? 5 : 200;
}

static void stand_still(enum pdn_point point, uint64_t unit, unsigned turns)
{
	uint32_t enough = 1 + roll(8); /* passes of other threads */

	__atomic_store_n(&mine->disturbed, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&mine->unit, unit, __ATOMIC_RELAXED);
	__atomic_store_n(&mine->point, (uint32_t)point, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < turns; i++) {
		if (__atomic_load_n(&mine->disturbed, __ATOMIC_RELAXED) >= enough)
			break;
		sched_yield();
	}
	__atomic_store_n(&mine->point, NOWHERE, __ATOMIC_SEQ_CST);
}

void pdn_point(enum pdn_point point, uint64_t addr)
{
	uint64_t unit = addr / WINDOW_UNIT;
	unsigned turns;

	if (!mine)
		return;
	__atomic_fetch_add(&passed_all, 1, __ATOMIC_RELAXED);
	windows_note(point_names[point], addr, 0);
	disturb_others(point, unit);
	turns = how_long(point);
	if (turns)
		stand_still(point, unit, turns);
}

/* ---- the account ---- */

bool windows_all_entered(unsigned times)
{
	for (unsigned w = 0; w < COUNT; w++)
		if (__atomic_load_n(&windows[w].entered, __ATOMIC_RELAXED) < times)
			return false;
	return true;
}

void windows_print(void)
{
	printf("%" PRIu64 " points were passed. Windows entered:\n", passed_all);
	for (unsigned w = 0; w < COUNT; w++)
		printf("%10" PRIu64 "  %-15s %-15s %s\n", windows[w].entered,
		       point_names[windows[w].first], point_names[windows[w].second],
		       windows[w].what);
	fflush(stdout);
}
