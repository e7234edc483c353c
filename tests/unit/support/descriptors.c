/* SPDX-License-Identifier: MIT */
/* Limits and uses up the process's descriptors. */
#include "tests/unit/support/descriptors.h"

#include <check.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define CAPACITY 512

static int taken[CAPACITY];
static unsigned count;

void allow_descriptors(unsigned max)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void take_descriptors_but(unsigned left)
{
	while (count < CAPACITY && (taken[count] = open("/dev/null", O_RDONLY)) >= 0)
		count++;
	ck_assert_uint_lt(count, CAPACITY);
	ck_assert_uint_ge(count, left);
	while (left-- > 0)
		close(taken[--count]);
}

void give_descriptors_back(void)
{
	while (count > 0)
		close(taken[--count]);
}
