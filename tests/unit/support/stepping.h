/* SPDX-License-Identifier: MIT */
/*
 * Steps: races at single instructions. A thread runs a part of the cache one instruction at a time,
 * by the processor's trap flag. It is stopped at the nth instruction, and another thread runs its
 * own call to the end, or until it waits for the first one. Then the first thread continues. Done
 * for each n in turn, this covers each place between two instructions, which random scheduling
 * never does with certainty. Stepping does not show a processor's reordering of loads and stores:
 * see order_test.h.
 */
#ifndef STEPPING_H
#define STEPPING_H

#include <stdbool.h>

#include "tests/unit/support/sanitizers.h"
#include "tests/unit/support/suite.h"

/* Under ThreadSanitizer the steps would be those of its runtime. */
#if defined(__x86_64__) && !UNDER_TSAN
#define CAN_STEP 1
#else
#define CAN_STEP 0
#endif

/* Instructions are counted to compare them: those of a sanitizer would be among them. */
#define CAN_COUNT (CAN_STEP && !UNDER_ASAN)

/* The result of main() for a suite in which everything is stepped, or in which all of it counts. */
int run_stepped_suite(Suite *suite);
int run_counting_suite(Suite *suite);

struct race {
	void (*prepare)(void);
	void (*stepped)(
		void); /* calls step_from_here() and step_to_here() around the stepped code */
	void (*other)(void);
	void (*check)(void); /* runs when both have ended */
};

/* The calling thread is single-stepped between these two calls, if a race is being played. */
void step_from_here(void);
void step_to_here(void);

/*
 * `other` calls this when the rest of it is no part of the race, as the wait for a child's end:
 * the stopped thread takes that for the end of `other`, not for a wait for itself.
 */
void race_ends_here(void);

/*
 * Runs one turn without the other thread, to count the instructions, and then a turn for each
 * instruction. At most `turns` of them are tried, or as many as STEP_TURNS in the environment says:
 * half of them at the beginning, the others spread evenly. Asserts that the other thread ended at
 * least once while the first one was stopped, and prints how often.
 */
void run_race(const char *name, const struct race *race, unsigned turns);

/* The same, but the stopped thread itself runs `other`, in the signal handler that stops it. */
void run_race_in_handler(const char *name, const struct race *race, unsigned turns);

/* How many instructions `stepped` executes between step_from_here() and step_to_here(). */
unsigned count_instructions(void (*stepped)(void));

/* The same; before each of them, `at_each` is called with its number, from a signal handler. */
unsigned look_at_each(void (*stepped)(void), void (*at_each)(unsigned));

/* And how many system calls it makes there. */
unsigned count_system_calls(void (*stepped)(void));

/*
 * The fewest of a few such runs: what happens once in a process, and the code around the trap,
 * vary. A bound on a cost that needs no clock.
 */
unsigned fewest_instructions(void (*stepped)(void));

/* For check(): did the other thread run at all in this turn, and at which instruction? */
bool race_met(void);
bool race_was_inside(void); /* did it end while the first one was stopped? */
unsigned race_instruction(void);

#endif
