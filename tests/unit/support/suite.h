/* SPDX-License-Identifier: MIT */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

/* How long the threads of a test wait for each other, also on a slow machine. */
#define PATIENCE_NS 60000000000u

/*
 * A test case of this suite; each test runs between these two functions (NULL: none). Its time is
 * enough for a sanitizer on a slow machine.
 */
TCase *suite_case(Suite *suite, const char *name, void (*begin)(void), void (*end)(void));

/*
 * Says that this test can't show anything here, and why. The test must return then; it counts as
 * skipped, not as passed.
 */
void skip_test(const char *why, ...) __attribute__((format(printf, 1, 2)));

/* The same where an emulator runs the tests (TEST_EMULATOR) and lacks something. */
bool emulator_lacks(const char *what);

/* Was the long round of the tests by chance asked for, by CHECK_LONG=1? */
bool wants_long_rounds(void);

/* The bytes of address space that this process has taken. */
uint64_t used_address_space(void);

/* Runs the whole suite and frees it. The result is main()'s. */
int run_suite(Suite *suite);

#endif
