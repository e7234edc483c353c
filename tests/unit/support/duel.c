/* SPDX-License-Identifier: MIT */
/* Two threads that meet on two processors, round by round: see duel.h. */
#define _GNU_SOURCE
#include "tests/unit/support/duel.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>

/*
 * Store buffers have from 48 to about 110 entries. More stores than fit would only take time. Each
 * of these stores crosses two lines, which takes twice as long.
 */
#define LATE   64
#define LINE   64
#define STRIDE (4 * LINE)
#define SPLIT  (2 * LINE - 2)

struct split {
	uint32_t word;
} __attribute__((packed));

/* What each thread has for itself. */
static struct corner {
	char lines[LATE * STRIDE] __attribute__((aligned(4096)));
	uint64_t dice;
	cpu_set_t processor;
} corners[2];
static __thread struct corner *mine = &corners[0];

/* The two threads signal each other here. Each word is written by one of them only. */
/* written by the caller of duel_round(): get ready for this round */
static uint32_t called __attribute__((aligned(128)));
static uint32_t started __attribute__((aligned(128)));
/* written by the other thread: ready for this round */
static uint32_t ready __attribute__((aligned(128)));
static uint32_t done __attribute__((aligned(128)));

static const struct duel *duel; /* NULL tells the other thread to end */
static pthread_t other;
static cpu_set_t before;

static uint32_t roll(uint32_t sides)
{
	mine->dice ^= mine->dice << 13;
	mine->dice ^= mine->dice >> 7;
	mine->dice ^= mine->dice << 17;
	return (uint32_t)((mine->dice >> 32) * sides >> 32);
}

static void flush_lines(void)
{
#if DUEL_HAS_LATE_STORES
	for (unsigned i = 0; i < LATE; i++) {
		__builtin_ia32_clflush(&mine->lines[i * STRIDE + SPLIT]);
		__builtin_ia32_clflush(&mine->lines[i * STRIDE + SPLIT + 2]);
	}
	__builtin_ia32_mfence();
#endif
}

void stores_come_late(void)
{
	for (unsigned i = 0; i < LATE; i++)
		((volatile struct split *)(void *)&mine->lines[i * STRIDE + SPLIT])->word = 1;
}

/*
 * Spins and never yields, whatever else runs on this processor. The two threads only meet while
 * both run: one that yields is not there when the other comes back.
 */
static void wait_for(const uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value)
		;
}

void wait_a_bit(void)
{
	uint32_t turns = roll(4096);

	for (uint32_t i = 0; i < turns; i++)
		__asm__ volatile("" ::: "memory");
}

static void stay_on(const cpu_set_t *processors)
{
	ck_assert_int_eq(sched_setaffinity(0, sizeof(*processors), processors), 0);
}

static void *be_the_other(void *arg)
{
	mine = &corners[1];
	stay_on(&mine->processor);
	for (uint32_t round = 1;; round++) {
		wait_for(&called, round);
		if (!duel)
			return arg;
		if (duel->ready)
			duel->ready();
		flush_lines();
		__atomic_store_n(&ready, round, __ATOMIC_RELEASE);
		wait_for(&started, round);
		wait_a_bit();
		duel->there();
		__atomic_store_n(&done, round, __ATOMIC_SEQ_CST);
	}
}

/* The first two processors that this process may use. */
static bool choose_processors(void)
{
	unsigned found = 0;

	if (sched_getaffinity(0, sizeof(before), &before) != 0)
		return false;
	for (unsigned i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &before)) {
			CPU_ZERO(&corners[found].processor);
			CPU_SET(i, &corners[found].processor);
			found++;
		}
	return found == 2;
}

const char *duel_why_not(void)
{
	if (!DUEL_HAS_LATE_STORES)
		return "stores come late on x86-64, and not for as long as a sanitizer's code "
		       "takes";
	return choose_processors() ? NULL : "it takes two processors";
}

void duel_begin(void)
{
	ck_assert(choose_processors());
	for (unsigned i = 0; i < 2; i++) {
		memset(corners[i].lines, 0, sizeof(corners[i].lines));
		corners[i].dice = 0x9e3779b97f4a7c15u * (i + 1);
	}
	stay_on(&mine->processor);
	called = started = ready = done = 0;
	ck_assert_int_eq(pthread_create(&other, NULL, be_the_other, NULL), 0);
}

static uint32_t call(const struct duel *what)
{
	duel = what;
	return __atomic_add_fetch(&called, 1, __ATOMIC_SEQ_CST);
}

void duel_round(const struct duel *what)
{
	uint32_t round = call(what);

	flush_lines();
	wait_for(&ready, round);
	__atomic_store_n(&started, round, __ATOMIC_SEQ_CST);
	wait_a_bit();
	duel->here();
	wait_for(&done, round);
}

void duel_end(void)
{
	call(NULL);
	pthread_join(other, NULL);
	stay_on(&before);
}
