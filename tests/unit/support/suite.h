/* SPDX-License-Identifier: MIT */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/unit/support/patience.h"

/* Waits until another thread or process has made the condition true; fails the test otherwise. */
#define wait_until(condition) \
	ck_assert_msg(becomes_true(PATIENCE_NS, condition), "not within a minute: %s", #condition)

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

/* The seed of a test by chance, which it prints: STRESS_SEED's, or a random one. It is never 0. */
uint64_t stress_seed(unsigned threads);

/* The bytes of address space that this process has taken. */
uint64_t used_address_space(void);

/* What is written to standard error while fn runs; and how many lines a text has. */
const char *stderr_of(void (*fn)(void));
unsigned lines_of(const char *text);

/* Runs the whole suite and frees it. The result is main()'s. */
int run_suite(Suite *suite);

#endif
