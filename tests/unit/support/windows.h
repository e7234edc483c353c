/* SPDX-License-Identifier: MIT */
/*
 * Races on purpose. The cache is built with -DPD_POINTS, so that each thread comes by here between any
 * two of its steps (cache/base/test_point.h). By chance it is held up there, and goes on when another thread has
 * come by with something about the same memory, or when none does for a while.
 *
 * A window is a pair of points: one thread stands at the first while another passes the second, about
 * the same memory. The list of those that the invariants rest on is in windows.c; how often each was
 * entered is counted.
 */
#ifndef WINDOWS_H
#define WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

/* Addresses of the same unit are the same memory. */
#define WINDOW_UNIT ((uint64_t)2 << 20)

/* A thread takes part from here on, with dice of its own, until it leaves. */
void windows_join(uint64_t seed);
void windows_leave(void);

/*
 * The last steps of all threads are kept: each point, and what a test says between them (a constant, and a number). Returns
 * which one it was, in the order of all.
 */
uint64_t windows_note(const char *what, uint64_t addr, uint64_t number);

/* Those about the same memory, or about none in particular (0), from `before` earlier to `behind` later than that one. */
void windows_print_steps(uint64_t addr, uint64_t which, uint64_t before, uint64_t behind);

/* Has each window been entered so many times? */
bool windows_all_entered(unsigned times);
void windows_print(void);

#endif
