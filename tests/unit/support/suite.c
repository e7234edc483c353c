/* SPDX-License-Identifier: MIT */
/* Test suites of the Check library whose tests can be skipped. */
#define _GNU_SOURCE
#include "tests/unit/support/suite.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static unsigned *skipped; /* shared with the processes in which the tests run */

void skip_test(const char *why, ...)
{
	va_list args;

	va_start(args, why);
	printf("skipped: ");
	vprintf(why, args);
	printf("\n");
	va_end(args);
	fflush(stdout);
	__atomic_fetch_add(skipped, 1, __ATOMIC_RELAXED);
}

bool emulator_lacks(const char *what)
{
	const char *emulator = getenv("TEST_EMULATOR");

	if (emulator)
		skip_test("%s lacks %s", emulator, what);
	return emulator;
}

bool wants_long_rounds(void)
{
	const char *given = getenv("CHECK_LONG");

	return given && strcmp(given, "1") == 0;
}

TCase *suite_case(Suite *suite, const char *name, void (*begin)(void), void (*end)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, begin, end);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	return tc;
}

uint64_t stress_seed(unsigned threads)
{
	const char *given = getenv("STRESS_SEED");
	uint64_t seed = 0;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		ck_assert_int_eq(getrandom(&seed, sizeof(seed), 0), (int)sizeof(seed));
	seed += !seed;
	printf("%u threads, STRESS_SEED=0x%" PRIx64 "\n", threads, seed);
	fflush(stdout);
	return seed;
}

uint64_t used_address_space(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%lu", &pages), 1);
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

const char *stderr_of(void (*fn)(void))
{
	static char text[65536];
	FILE *file = tmpfile();
	int saved = dup(2);
	ssize_t n;

	ck_assert_ptr_nonnull(file);
	dup2(fileno(file), 2);
	fn();
	dup2(saved, 2);
	n = pread(fileno(file), text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	fclose(file);
	close(saved);
	return text;
}

unsigned lines_of(const char *text)
{
	unsigned n = 0;

	while ((text = strchr(text, '\n')))
		text++, n++;
	return n;
}

int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int ran, failed;

	skipped = mmap(NULL, sizeof(*skipped), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (skipped == MAP_FAILED)
		return 1;
	srunner_run_all(runner, CK_ENV);
	ran = srunner_ntests_run(runner);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (*skipped) /* Check counts them as passed: see tests/run */
		printf("%d passed, %d failed, %u skipped\n", ran - failed - (int)*skipped, failed,
		       *skipped);
	return failed != 0;
}
