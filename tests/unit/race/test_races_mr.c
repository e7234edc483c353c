/* SPDX-License-Identifier: MIT */
/*
 * The first ibv_mr of a process is made (hook/verbs/mr.c) while another thread forks, at each
 * instruction of that. The child makes its own.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/process/process.h"
#include "hook/verbs/mr.c"
#include "tests/unit/support/stepping.h"

#define TURNS 400

static struct pdn_mr *made;
static int childs_status;

static void nothing_reserved(void)
{
	if (pdn_mr_place.size)
		munmap((void *)pdn_mr_place.begin, pdn_mr_place.size);
	memset(&pdn_mr_place, 0, sizeof(pdn_mr_place));
	memset(lists, 0, sizeof(lists));
	pdn_process_loaded();
	made = NULL;
	childs_status = 0;
}

static void stepped_new(void)
{
	step_from_here();
	made = pdn_mr_new(PDN_MR_GIVEN);
	step_to_here();
}

static bool is_right(const struct pdn_mr *mr)
{
	return mr && pdn_mr_is_ours(&mr->verbs.mr) && mr->state == PDN_MR_GIVEN;
}

static void other_forks(void)
{
	pid_t child = fork();

	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(10);
		_exit(is_right(pdn_mr_new(PDN_MR_GIVEN)) ? 0 : 1);
	}
	race_ends_here();
	waitpid(child, &childs_status, 0);
}

static void check(void)
{
	ck_assert_msg(childs_status == 0, "instruction %u: the child ended with %#x",
		      race_instruction(), childs_status);
	ck_assert(is_right(made));
}

START_TEST(a_child_makes_its_own)
{
	static const struct race race = {nothing_reserved, stepped_new, other_forks, check};

	run_race("the first ibv_mr against fork", &race, TURNS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: the first ibv_mr");
	TCase *tc = tcase_create("fork");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_child_makes_its_own);
	suite_add_tcase(suite, tc);
	return run_stepped_suite(suite);
}
