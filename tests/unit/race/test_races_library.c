/* SPDX-License-Identifier: MIT */
/*
 * The first thread that asks fills in what hook/ knows of a library (hook/loader/library.c).
 * Another thread forks meanwhile, at each instruction of that. The child does not have the first
 * thread and must not wait for it. So the child walks the loader's list itself
 * (hook/loader/loaded/loaded.c), whatever the list contains.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hook/hook.h"
#include "hook/loader/library.h"
#include "hook/loader/loaded/loaded.h"
#include "cache/base/process/process.h"
#include "tests/unit/support/stepping.h"

#define TURNS 300

static struct pdn_library library;
static bool found;
static int childs_status;

static bool is_right(void)
{
	void *function = dlsym(RTLD_DEFAULT, "getpid");

	return pdn_elf_find(&library.elf, "getpid") == function &&
	       pdn_library_has(&library, function);
}

static void nothing_known(void)
{
	pdn_process_loaded();
	pdn_loader_of_libc();
	memset(&library, 0, sizeof(library));
	library.soname = "libc.so.6";
	found = false;
	childs_status = 0;
}

static void stepped_find(void)
{
	step_from_here();
	found = pdn_library_find(&library);
	step_to_here();
}

static void other_forks(void)
{
	pid_t child = fork();

	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(10);
		_exit(pdn_library_find(&library) && is_right() ? 0 : 1);
	}
	race_ends_here();
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

/* ---- the loader's list in a child ------------------------------------------------------------ */

#define A_PAGE 4096u

/* Looks in a child of a process whose loader was asked before. `look` returns 0 if all is well. */
static void in_a_child(int (*look)(void))
{
	int status = -1;
	pid_t child;

	pdn_process_loaded();
	child = fork();
	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		alarm(10);
		_exit(look());
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "the child ended with %#x", status);
}

static struct link_map *last_map(void)
{
	struct link_map *map = _r_debug.r_map;

	while (map->l_next)
		map = map->l_next;
	return map;
}

struct seen {
	ElfW(Addr) address;
	unsigned count; /* how many objects at that address */
	bool has_headers;
};

static bool look_for(const struct pdn_loaded *object, void *arg)
{
	struct seen *seen = arg;

	if (object->elf.base != seen->address)
		return false;
	seen->count++;
	seen->has_headers |= object->count != 0;
	return false;
}

static bool look_at_all(struct seen *seen)
{
	struct pdn_loaded object;

	return pdn_find_loaded(&object, look_for, seen);
}

/* The last object of the list is seen once, with headers or without. */
static int is_seen(struct link_map *object, bool with_headers)
{
	struct seen seen = {.address = object->l_addr};

	last_map()->l_next = object;
	look_at_all(&seen);
	return seen.count != 1 || seen.has_headers != with_headers;
}

static char *copy_of_a_library(size_t bytes)
{
	char *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(copy, (const void *)last_map()->l_addr, A_PAGE);
	return copy;
}

/* A library whose header is mapped, and whose dynamic section is not. */
static int find_half_unmapped(void)
{
	const struct link_map *last = last_map();
	size_t dynamic = (uintptr_t)last->l_ld - last->l_addr;
	size_t bytes = (dynamic + 2 * A_PAGE) & ~(size_t)(A_PAGE - 1);
	char *copy = copy_of_a_library(bytes);
	static struct link_map object;

	object.l_addr = (uintptr_t)copy;
	object.l_ld = (void *)(copy + dynamic);
	munmap(copy + A_PAGE, bytes - A_PAGE);
	return is_seen(&object, false);
}

static int find_unmapped(void)
{
	char *copy = copy_of_a_library(2 * A_PAGE);
	static struct link_map object;

	object.l_addr = (uintptr_t)copy;
	object.l_ld = (void *)(copy + A_PAGE);
	munmap(copy, 2 * A_PAGE);
	return is_seen(&object, false);
}

/* Another object lies where the list has a library. */
static int find_another_in_its_place(void)
{
	char *copy = copy_of_a_library(2 * A_PAGE);
	static struct link_map object;

	object.l_addr = (uintptr_t)copy;
	object.l_ld = (void *)(copy + A_PAGE + 8);
	return is_seen(&object, false);
}

/*
 * The list may have no end, or a circle, in the middle of a change: neither keeps the child busy.
 */
static int find_a_circle(void)
{
	struct seen seen = {.address = 1};

	last_map()->l_next = _r_debug.r_map;
	return look_at_all(&seen);
}

static int find_what_is_no_object(void)
{
	struct seen seen = {.address = 1};

	last_map()->l_next = (struct link_map *)(uintptr_t)A_PAGE;
	return look_at_all(&seen);
}

static int find_a_library(void)
{
	struct seen seen = {.address = last_map()->l_addr};

	look_at_all(&seen);
	return seen.count != 1 || !seen.has_headers;
}

START_TEST(a_child_believes_no_object_that_is_not_there)
{
	in_a_child(find_a_library);
	in_a_child(find_unmapped);
	in_a_child(find_half_unmapped);
	in_a_child(find_another_in_its_place);
	in_a_child(find_a_circle);
	in_a_child(find_what_is_no_object);
}
END_TEST

/* As long as the list does not change, the child can't know whether the loader's lock works. */
static int load_another(void)
{
	struct seen seen = {.address = 1};

	for (int i = 0; i < 2; i++)
		if (look_at_all(&seen) || pdn_this_process.loader_lock_works)
			return 1;
	if (!dlopen("libresolv.so.2", RTLD_NOW))
		return 3;
	return look_at_all(&seen) || !pdn_this_process.loader_lock_works;
}

static int fork_after_that(void)
{
	int status = -1;
	pid_t child;

	if (load_another())
		return 2;
	child = fork();
	if (child == 0)
		_exit(pdn_this_process.loader_lock_works || pdn_this_process.last_library);
	return waitpid(child, &status, 0) != child || status;
}

START_TEST(a_child_takes_the_lock_when_it_is_seen_to_work)
{
	in_a_child(load_another);
	in_a_child(fork_after_that);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: what is known of a library");
	TCase *tc = tcase_create("fork");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_child_does_not_wait_for_a_thread_of_its_parents);
	suite_add_tcase(suite, tc);
	tc = tcase_create("the loader's list");
	tcase_add_test(tc, a_child_believes_no_object_that_is_not_there);
	tcase_add_test(tc, a_child_takes_the_lock_when_it_is_seen_to_work);
	suite_add_tcase(suite, tc);
	return run_stepped_suite(suite);
}
