/* SPDX-License-Identifier: MIT */
/*
 * What hook/ knows of a library is filled in by the first thread that asks (hook/library.c). Another
 * one forks meanwhile, at each instruction of that: its child has no such thread, and must not wait.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "asker.h"
#include "hook.h"
#include "library.h"
#include "stepping.h"

#define TURNS 300

static struct pd_library library;
static bool found;
static int childs_status;

/* Of the rest of hook/, what library.c calls elsewhere. */
const struct pd_loader *pd_loader_of_libc(void)
{
	return NULL;
}

bool pd_was_at_start(unsigned index)
{
	(void)index;
	return true;
}

static bool is_right(void)
{
	void *function = dlsym(RTLD_DEFAULT, "getpid");

	return pd_elf_find(&library.elf, "getpid") == function &&
	       pd_library_has(&library, function);
}

static void nothing_known(void)
{
	memset(&library, 0, sizeof(library));
	library.soname = "libc.so.6";
	found = false;
	childs_status = 0;
}

static void stepped_find(void)
{
	step_from_here();
	found = pd_library_find(&library);
	step_to_here();
}

static void other_forks(void)
{
	pid_t child = fork();

	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(10);
		_exit(pd_library_find(&library) && is_right() ? 0 : 1);
	}
	waitpid(child, &childs_status, 0);
}

static void check(void)
{
	ck_assert_msg(childs_status == 0, "instruction %u: the child ended with %#x%s",
		      race_instruction(), childs_status,
		      WIFSIGNALED(childs_status) ? ": it waited" : "");
	ck_assert(found);
	ck_assert(is_right());
}

START_TEST(a_child_does_not_wait_for_a_thread_of_its_parents)
{
	static const struct race race = {nothing_known, stepped_find, other_forks, check};

	run_race("finding a library against fork", &race, TURNS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: what is known of a library");
	TCase *tc = tcase_create("fork");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_child_does_not_wait_for_a_thread_of_its_parents);
	suite_add_tcase(suite, tc);
	return run_stepped_suite(suite);
}
