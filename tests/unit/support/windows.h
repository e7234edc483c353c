/* SPDX-License-Identifier: MIT */
/*
 * Windows: provoked races. The cache is built with -DPDN_POINTS, so that each thread calls
 * pdn_point() between any two of its steps (cache/base/test_point.h). There it is held up by
 * chance, until other threads have passed points of their own for the same memory, or for some
 * time.
 *
 * A window is a pair of points: one thread is held up at the first while another passes the second,
 * for the same memory. windows.c lists the windows that the invariants depend on, and counts how
 * often each was entered.
 */
#ifndef WINDOWS_H
#define WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

/* Addresses in the same unit count as the same memory. */
#define WINDOW_UNIT ((uint64_t)2 << 20)

/* A thread takes part from here on, with a random generator of its own, until it leaves. */
void windows_join(uint64_t seed);
void windows_leave(void);

/*
 * The last steps of all threads are kept: each point, and what a test notes in between (a constant
 * text and a number). Returns the step's number in the order of all steps.
 */
uint64_t windows_note(const char *what, uint64_t addr, uint64_t number);

/*
 * Prints the steps about the same memory, or about no particular memory (0), from `before` steps
 * before that step to `behind` after it.
 */
void windows_print_steps(uint64_t addr, uint64_t which, uint64_t before, uint64_t behind);

/* Has each window been entered this many times? */
bool windows_all_entered(unsigned times);
void windows_print(void);

#endif
