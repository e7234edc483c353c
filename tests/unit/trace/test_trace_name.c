// SPDX-License-Identifier: MIT
/* The writer's file: its name, and what it tells about the process. */
#define _GNU_SOURCE
#include "tests/unit/support/trace_test.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "cache/trace/writer/file.h"
#include "cache/trace/journal/journal.h"
#include "tools/trace/journal.h"
#include "tools/trace/rank.h"

/* The default of PINDOWN_TRACE_EVENTS. */
#define ALL_BUT_HITS (((1u << PDN_EV_LOST) - 1) & ~(1u << PDN_EV_HIT))

/* ---- names ---------------------------------------------------------------------------------- */

static const struct {
	const char *given, *made; /* # is the process number, @ the host */
} names[] = {
	{"a.pdt", "a.#.pdt"},
	{"a", "a.#.pdt"},
	{"a.b.pdt", "a.b.#.pdt"},
	{"a%p.pdt", "a#.pdt"},
	{"%p", "#.pdt"},
	{"a%%p.pdt", "a%p.#.pdt"},
	{"a%p-%p.pdt", "a#-#.pdt"},
	{"a%h.pdt", "a@.#.pdt"},
	{"%h-%p", "@-#.pdt"},
	{"r%q{RANK_OF_JOB}.pdt", "r17.#.pdt"},
	{"%q{EMPTY}a%p.pdt", "a#.pdt"},
	{"%q{RANK_OF_JOB}%q{RANK_OF_JOB}.%%q", "1717.%q.#.pdt"},
};

/* Kept as they are, with one line. */
static const char *const not_replaced[] = {
	"a%",
	"a%n%s.pdt",
	"a%q",
	"a%q{",
	"a%q{RANK_OF_JOB",
	"a%q{NOT_SET}.pdt",
	"a%q{}",
	"%P%H",
	"a%qRANK_OF_JOB}",
	"%q{RANK_OF}",
	"%q{RANK_OF_JOB=17}",
};

START_TEST(file_names)
{
	char expected[1000] = "", *to = expected;
	struct utsname system;

	ck_assert_int_eq(uname(&system), 0);
	for (const char *at = names[_i].made; *at; at++) {
		if (*at == '#')
			to += sprintf(to, "%d", getpid());
		else if (*at == '@')
			to += sprintf(to, "%s", system.nodename);
		else
			*to++ = *at;
	}
	setenv("RANK_OF_JOB", "17", 1);
	setenv("EMPTY", "", 1);
	setenv("PINDOWN_TRACE", names[_i].given, 1);
	pdn_trace_open();
	ck_assert_uint_eq(pdn_trace_mask, ALL_BUT_HITS);
	ck_assert_msg(exists(expected), "%s is not there", expected);
	ck_assert_str_eq(printed(), "");
}
END_TEST

START_TEST(a_name_that_is_not_replaced)
{
	char name[100], expected[150];
	unsigned stem;

	setenv("RANK_OF_JOB", "17", 1);
	setenv("PINDOWN_TRACE", not_replaced[_i], 1);
	snprintf(name, sizeof(name), "%s", not_replaced[_i]);
	stem = (unsigned)(strstr(name, ".pdt") ? strstr(name, ".pdt") - name : (long)strlen(name));
	snprintf(expected, sizeof(expected), "%.*s.%d.pdt", (int)stem, name, getpid());
	pdn_trace_open();
	call_at(1);
	ck_assert_msg(exists(expected), "%s is not there", expected);
	expect_one_line("stays as it is: accepted are %h (host), %p (process), %q{VARIABLE}");
	read_back(expected);
	ck_assert_uint_eq(event_count, 1);
}
END_TEST

START_TEST(a_variable_too_long_for_a_name)
{
	char value[PATH_MAX + 100];

	memset(value, 'a', sizeof(value) - 1);
	value[sizeof(value) - 1] = '\0';
	setenv("RANK_OF_JOB", value, 1);
	setenv("PINDOWN_TRACE", "%q{RANK_OF_JOB}.pdt", 1);
	pdn_trace_open();
	ck_assert_uint_eq(pdn_trace_mask, 0);
	expect_one_line("File name too long; nothing is traced");
}
END_TEST

START_TEST(another_file_is_never_touched)
{
	char text[20] = "", first[100], name[100];
	FILE *file;

	snprintf(first, sizeof(first), "%s", own_name(getpid(), ""));
	snprintf(name, sizeof(name), "%s", own_name(getpid(), ".1"));
	put_file(first, "precious");
	ck_assert_int_eq(symlink("elsewhere", name), 0);
	pdn_trace_open();
	call_at(1);
	file = fopen(first, "r");
	ck_assert_ptr_nonnull(fgets(text, sizeof(text), file));
	fclose(file);
	ck_assert_str_eq(text, "precious");
	ck_assert(!exists("elsewhere"));
	read_back(own_name(getpid(), ".2"));
	ck_assert_uint_eq(event_count, 1);
}
END_TEST

START_TEST(the_start_directory_counts)
{
	pdn_config();
	ck_assert_int_eq(chdir("/"), 0);
	pdn_trace_open();
	ck_assert_int_eq(chdir(folder), 0);
	ck_assert(exists(own_name(getpid(), "")));
}
END_TEST

static const struct {
	const char *given, *says;
} impossible[] = {
	{"nowhere/t.pdt", "No such file or directory"},
	{"/proc/self/t.pdt", "No such file or directory"},
	{"/dev/null/t.pdt", "Not a directory"},
};

/* One line is printed, and the program runs on. */
START_TEST(no_file_can_be_made)
{
	setenv("PINDOWN_TRACE", impossible[_i].given, 1);
	errno = 55;
	pdn_trace_open();
	ck_assert_int_eq(errno, 55);
	ck_assert_uint_eq(pdn_trace_mask, 0);
	call_at(1);
	pdn_trace_error("nothing", 0, 0, 0);
	pdn_trace_open();
	pdn_trace_close();
	ck_assert_ptr_nonnull(strstr(printed(), impossible[_i].says));
	ck_assert_ptr_nonnull(strstr(printed(), "nothing is traced\n"));
	ck_assert_ptr_eq(strchr(printed(), '\n'), strrchr(printed(), '\n'));
}
END_TEST

START_TEST(no_trace_is_wanted)
{
	DIR *directory;
	struct dirent *found;

	unsetenv("PINDOWN_TRACE");
	pdn_trace_open();
	ck_assert_uint_eq(pdn_trace_mask, 0);
	call_at(1);
	pdn_trace_close();
	directory = opendir(".");
	while ((found = readdir(directory)))
		ck_assert_int_eq(found->d_name[0], '.');
	closedir(directory);
	ck_assert_str_eq(printed(), "");
}
END_TEST

START_TEST(switched_off)
{
	setenv("PINDOWN", "0", 1);
	pdn_trace_open();
	ck_assert_uint_eq(pdn_trace_mask, 0);
	ck_assert(!exists(own_name(getpid(), "")));
}
END_TEST

/* ---- about the process ---------------------------------------------------------------------- */

START_TEST(about_the_process)
{
	char here[PATH_MAX], host[100];
	struct trace_file *file;

	pdn_trace_open();
	journals_look();
	file = trace_file_open(own_name(getpid(), ""));
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(file->header.pid, (unsigned)getpid());
	ck_assert_uint_eq(file->header.ppid, (unsigned)getppid());
	ck_assert_uint_eq(file->header.event_mask, ALL_BUT_HITS);
	ck_assert_uint_eq(file->call_count, 3);
	ck_assert_str_eq(file->calls[2], "cuMemAllocAsync");
	ck_assert_str_eq(file->directory, getcwd(here, sizeof(here)));
	gethostname(host, sizeof(host));
	ck_assert_str_eq(file->host, host);
	ck_assert_ptr_nonnull(strstr(file->program, "test_trace"));
	ck_assert_ptr_nonnull(strstr(file->command, "test_trace"));
	ck_assert_ptr_nonnull(
		memmem(file->environment, file->environment_bytes, "PINDOWN_TRACE=t.pdt", 20));
	ck_assert_uint_ne(file->header.begin.ticks, 0);
	trace_file_close(file);
}
END_TEST

START_TEST(call_names_may_come_late)
{
	struct trace_file *file;

	pdn_trace_call_names(NULL);
	pdn_trace_open();
	pdn_trace_call_names("cuOne\0cuTwo\0");
	journals_look();
	file = trace_file_open(own_name(getpid(), ""));
	ck_assert_uint_eq(file->call_count, 2);
	ck_assert_str_eq(file->calls[1], "cuTwo");
	trace_file_close(file);
}
END_TEST

static const struct {
	const char *variables[4];
	int64_t rank;
} launchers[] = {
	{{NULL}, NO_RANK},
	{{"SLURM_PROCID=12"}, 12},
	{{"PMI_RANK=3"}, 3},
	{{"PMIX_RANK=3999"}, 3999},
	/* mpirun in a batch script of Slurm: all ranks inherit the script's number. */
	{{"SLURM_PROCID=0", "OMPI_COMM_WORLD_RANK=7"}, 7},
	{{"SLURM_PROCID=0", "PMI_RANK=0"}, 0},
	{{"PMIX_RANK=many", "SLURM_PROCID=4"}, 4},
	{{"SLURM_PROCID="}, NO_RANK},
	{{"SLURM_PROCID=-1"}, NO_RANK},
	{{"SLURM_PROCID=99999999999"}, NO_RANK},
};

START_TEST(ranks)
{
	struct trace_file *file;

	for (unsigned i = 0; launchers[_i].variables[i]; i++)
		ck_assert_int_eq(putenv((char *)launchers[_i].variables[i]), 0);
	pdn_trace_open();
	journals_look();
	file = trace_file_open(own_name(getpid(), ""));
	ck_assert_int_eq(file->rank, launchers[_i].rank);
	ck_assert(!memmem(file->environment, file->environment_bytes, "PATH=", 5));
	trace_file_close(file);
}
END_TEST

/* ---- all ------------------------------------------------------------------------------------ */

int main(void)
{
	Suite *suite = suite_create("trace file: name");
	TCase *names_case;

	names_case = add_case(suite, "names",
			      (const TTest *const[]){
				      another_file_is_never_touched, a_variable_too_long_for_a_name,
				      the_start_directory_counts, no_trace_is_wanted, switched_off,
				      about_the_process, call_names_may_come_late, NULL});
	tcase_add_loop_test(names_case, file_names, 0, sizeof(names) / sizeof(names[0]));
	tcase_add_loop_test(names_case, a_name_that_is_not_replaced, 0,
			    sizeof(not_replaced) / sizeof(not_replaced[0]));
	tcase_add_loop_test(names_case, ranks, 0, sizeof(launchers) / sizeof(launchers[0]));
	tcase_add_loop_test(names_case, no_file_can_be_made, 0,
			    sizeof(impossible) / sizeof(impossible[0]));
	return run_suite(suite);
}
