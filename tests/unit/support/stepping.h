/* SPDX-License-Identifier: MIT */
/*
 * Races at single instructions. A thread runs a piece of the cache one instruction at a time, by
 * the processor's trap flag; at the nth instruction it is stopped, and another thread does
 * something from beginning to end (or until it waits for the first); then the first goes on. Done
 * for each n in turn, every window between two instructions is entered, which no number of threads
 * and hours does with certainty. What stepping can't show is a processor's reordering of loads and
 * stores.
 */
#ifndef STEPPING_H
#define STEPPING_H

#include <stdbool.h>

#include "tests/unit/support/suite.h"

#if defined(__x86_64__)
#define CAN_STEP 1
#else
#define CAN_STEP 0
#endif
#if defined(__SANITIZE_THREAD__)
#undef CAN_STEP
#define CAN_STEP 0 /* its run-time library would be what is stepped through */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef CAN_STEP
#define CAN_STEP 0
#endif
#endif

/* main()'s result where everything in the suite is stepped through. */
int run_stepped_suite(Suite *suite);

struct race {
	void (*prepare)(void);
	void (*stepped)(
		void); /* calls step_from_here() and step_to_here() around what is stepped */
	void (*other)(void);
	void (*check)(void); /* both have ended */
};

/* Between these two the calling thread is single-stepped, if it is the turn of a race. */
void step_from_here(void);
void step_to_here(void);

/*
 * One turn without the other thread, to count the instructions, and then one for each of them (or
 * for at most `turns`, or so many as the environment's STEP_TURNS says: half of them at the
 * beginning, the others spread evenly). Asserts that the other thread ran to its end within the
 * first one's window at least once, and says how often.
 */
void run_race(const char *name, const struct race *race, unsigned turns);

/*
 * The same, but what `other` does is done by the stopped thread itself, in the signal handler that
 * stops it.
 */
void run_race_in_handler(const char *name, const struct race *race, unsigned turns);

/* How many instructions `stepped` runs between step_from_here() and step_to_here(). */
unsigned count_instructions(void (*stepped)(void));

/* For check(): did the other thread run at all in this turn? At which instruction? */
bool race_met(void);
bool race_was_inside(void); /* ...to its end, while the first one was stopped */
unsigned race_instruction(void);

#endif
