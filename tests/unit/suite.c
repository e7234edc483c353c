/* SPDX-License-Identifier: MIT */
#include "suite.h"

TCase *suite_case(Suite *suite, const char *name, void (*begin)(void), void (*end)(void))
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, begin, end);
	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	return tc;
}

int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
