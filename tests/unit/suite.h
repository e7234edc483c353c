/* SPDX-License-Identifier: MIT */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

/*
 * A case of this suite in which each test is between these two (NULL: none), with time enough for a sanitizer on a
 * slow machine.
 */
TCase *suite_case(Suite *suite, const char *name, void (*begin)(void), void (*end)(void));

/* Runs the whole suite, and frees it: main()'s result. */
int run_suite(Suite *suite);

#endif
