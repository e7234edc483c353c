/* SPDX-License-Identifier: MIT */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

/* So long the threads of a test wait for each other, on a slow machine. */
#define PATIENCE_NS 60000000000u

/*
 * A case of this suite in which each test is between these two (NULL: none), with time enough for a sanitizer on a
 * slow machine.
 */
TCase *suite_case(Suite *suite, const char *name, void (*begin)(void), void (*end)(void));

/*
 * This test can't show anything here, for this reason; it is to return now, and counts as skipped and not as
 * passed.
 */
void skip_test(const char *why, ...) __attribute__((format(printf, 1, 2)));

/* Runs the whole suite, and frees it: main()'s result. */
int run_suite(Suite *suite);

#endif
