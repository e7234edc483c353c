/* SPDX-License-Identifier: MIT */
/*
 * For tests that include the source that they test, and have no test library: what they check is
 * counted, and what is not so is printed.
 */
#ifndef CHECKED_H
#define CHECKED_H

#include <stdbool.h>
#include <stdio.h>

static unsigned checked_passed, checked_failed;

static inline void check(bool well, const char *what)
{
	if (well) {
		checked_passed++;
		return;
	}
	checked_failed++;
	printf("not so: %s\n", what);
}

/* The exit status of the program. */
static inline int checked_end(void)
{
	printf("%u passed, %u failed\n", checked_passed, checked_failed);
	return checked_failed != 0;
}

#endif
