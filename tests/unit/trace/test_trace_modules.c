/* SPDX-License-Identifier: MIT */
/*
 * The modules and functions that stacks are written with: one thread at a time reads the maps, and
 * others wait for it, but not for themselves. The source is included, to play that thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/thread/lock.h"
#include "tests/unit/support/suite.h"

#define pdn_module_find	       own_module_find
#define pdn_module_name	       own_module_name
#define pdn_module_text	       own_module_text
#define pdn_modules_fork_child own_modules_fork_child
#define pdn_modules_generation own_modules_generation
#define pdn_modules_change     own_modules_change

/* Only a thread that waits for the reader calls this. */
static void wait_for_the_reader(struct pdn_backoff *rest);
#define pdn_backoff(rest) wait_for_the_reader(rest)
#include "cache/trace/stack/modules.c"
#undef pdn_backoff

static uint64_t here(void)
{
	return (uint64_t)(uintptr_t)&here;
}

static unsigned turns, last_turn; /* of waiting; 0: the reader never stops */

static void *stop_reading(void *arg)
{
	__atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
	return arg;
}

static void wait_for_the_reader(struct pdn_backoff *rest)
{
	pthread_t reader;

	if (++turns != last_turn) {
		pdn_backoff(rest);
		return;
	}
	ck_assert_int_eq(pthread_create(&reader, NULL, stop_reading, NULL), 0);
	pthread_join(reader, NULL);
}

START_TEST(a_thread_waits_for_the_one_that_reads)
{
	owner = 1; /* no thread of this process */
	last_turn = 150;
	ck_assert_ptr_nonnull(pdn_module_find(here()));
	ck_assert_uint_eq(turns, last_turn);
	ck_assert_int_eq(owner, 0);
}
END_TEST

/* As in a signal handler that interrupts the reading. */
START_TEST(no_thread_waits_for_itself)
{
	owner = (int32_t)gettid();
	ck_assert_ptr_null(pdn_module_find(here()));
	ck_assert_int_eq(owner, (int32_t)gettid());
	owner = 0;
	ck_assert_ptr_nonnull(pdn_module_find(here()));
}
END_TEST

START_TEST(a_thread_that_reads_for_ever_is_not_waited_for)
{
	owner = 1;
	ck_assert_ptr_null(pdn_module_find(here()));
	ck_assert_int_eq(owner, 1);
	owner = 0;
}
END_TEST

/* Functions at many places in the C library's table of symbols. */
START_TEST(functions_are_named)
{
	static const char *const names[] = {"getenv", "qsort",	   "strtol",  "printf",	 "fopen",
					    "malloc", "nanosleep", "bsearch", "getline", "mkdtemp"};
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD); /* not a sanitizer's functions */
	char name[200], file[64], wanted[80];
	uint64_t offset;

	ck_assert_ptr_nonnull(libc);
	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		uint64_t at = (uint64_t)(uintptr_t)dlsym(libc, names[i]);

		ck_assert_uint_ne(at, 0);
		ck_assert(pdn_module_name(at, file, sizeof(file), &offset));
		ck_assert_ptr_nonnull(strstr(file, "libc"));
		ck_assert(pdn_module_text(at + 4, name, sizeof(name)));
		snprintf(wanted, sizeof(wanted), "%s: ", file);
		ck_assert_ptr_eq(strstr(name, wanted), name);
		ck_assert_msg(strstr(name, "+0x4") != NULL, "%s: %s", names[i], name);
	}
	ck_assert(!pdn_module_text(0, name, sizeof(name)));
	ck_assert(!pdn_module_text(4096, name, sizeof(name)));
	dlclose(libc);
}
END_TEST

/* The first part of a program that is not position-independent says where it is. */
START_TEST(a_program_with_an_address_of_its_own)
{
	const struct {
		Elf64_Ehdr header;
		Elf64_Phdr part[2];
	} file = {.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64},
			     .e_phoff = sizeof(Elf64_Ehdr),
			     .e_phentsize = sizeof(Elf64_Phdr),
			     .e_phnum = 2},
		  .part = {{.p_type = PT_LOAD, .p_vaddr = 0x400abc},
			   {.p_type = PT_GNU_EH_FRAME, .p_vaddr = 0x401234, .p_memsz = 8}}};
	struct pdn_module module = {.begin = (uint64_t)(uintptr_t)&file};
	struct identity identity = {.length = 0};

	read_headers(&module, &identity);
	ck_assert_uint_eq(module.bias, module.begin - 0x400000);
	ck_assert_uint_eq(module.index, module.begin + 0x1234);
	ck_assert_uint_eq(module.index_bytes, 8);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("modules of stacks");
	TCase *tc = suite_case(suite, "reading", NULL, NULL);

	tcase_add_test(tc, a_thread_waits_for_the_one_that_reads);
	tcase_add_test(tc, no_thread_waits_for_itself);
	tcase_add_test(tc, a_thread_that_reads_for_ever_is_not_waited_for);
	tcase_add_test(tc, functions_are_named);
	tcase_add_test(tc, a_program_with_an_address_of_its_own);
	return run_suite(suite);
}
