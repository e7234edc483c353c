/* SPDX-License-Identifier: MIT */
#include "tests/unit/support/descriptors.h"

#include <check.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define MOST 512

static int taken[MOST];
static unsigned count;

void allow_descriptors(unsigned most)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = most;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

void take_descriptors_but(unsigned left)
{
	while (count < MOST && (taken[count] = open("/dev/null", O_RDONLY)) >= 0)
		count++;
	ck_assert_uint_lt(count, MOST);
	ck_assert_uint_ge(count, left);
	while (left-- > 0)
		close(taken[--count]);
}

void give_descriptors_back(void)
{
	while (count > 0)
		close(taken[--count]);
}
