/* SPDX-License-Identifier: MIT */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

/* Runs the whole suite, and frees it: main()'s result. */
int run_suite(Suite *suite);

#endif
