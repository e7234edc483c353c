// SPDX-License-Identifier: MIT
/* The table of environment variables: every variable with good values, bad ones, and its limits. */
#define _GNU_SOURCE
#include "cache/base/environment/config.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "cache/base/environment/log.h"
#include "tests/unit/support/suite.h"
#include "cache/base/environment/event.h"

static struct pdn_config config;
static struct pdn_problems problems;

static void parse(char *assignment)
{
	char *environment[] = {assignment, NULL};

	memset(&config, 0x55, sizeof(config));
	pdn_config_parse(&config, &problems, environment);
}

/* The configuration's value for this variable, as text. */
static const char *value_of(const char *variable)
{
	static char text[PATH_MAX + 32];

	if (strcmp(variable, "PINDOWN") == 0)
		sprintf(text, "%d", config.enabled);
	else if (strcmp(variable, "PINDOWN_DMABUF_MAPPING") == 0)
		sprintf(text, "%d", (int)config.dmabuf_mapping);
	else if (strcmp(variable, "PINDOWN_BACKEND") == 0)
		sprintf(text, "%d", (int)config.backend);
	else if (strcmp(variable, "PINDOWN_MAX_BYTES") == 0)
		sprintf(text, "%llu", (unsigned long long)config.max_bytes);
	else if (strcmp(variable, "PINDOWN_MAX_REGIONS") == 0)
		sprintf(text, "%llu", (unsigned long long)config.max_regions);
	else if (strcmp(variable, "PINDOWN_VERIFY") == 0)
		sprintf(text, "%d", (int)config.verify);
	else if (strcmp(variable, "PINDOWN_TRACE") == 0)
		sprintf(text, "%s", config.trace ? config.trace : "none");
	else if (strcmp(variable, "PINDOWN_TRACE_EVENTS") == 0)
		sprintf(text, "%#x", config.trace_events);
	else if (strcmp(variable, "PINDOWN_LOG") == 0)
		sprintf(text, "%d", (int)config.log);
	else if (strcmp(variable, "PINDOWN_RDMA_CAPABLE") == 0)
		sprintf(text, "%d", config.rdma_capable);
	else if (strcmp(variable, "PINDOWN_DEBUG") == 0)
		sprintf(text, "%d", config.debug);
	else if (strcmp(variable, "PINDOWN_DEEPBIND") == 0)
		sprintf(text, "%d", (int)config.deepbind);
	else
		ck_abort_msg("no test knows %s", variable);
	return text;
}

static const struct {
	const char *variable, *value, *means;
} good[] = {
	{"PINDOWN", "0", "0"},
	{"PINDOWN", "1", "1"},
	{"PINDOWN", "", "1"},
	{"PINDOWN_DMABUF_MAPPING", "auto", "0"},
	{"PINDOWN_DMABUF_MAPPING", "default", "1"},
	{"PINDOWN_DMABUF_MAPPING", "pcie", "2"},
	{"PINDOWN_BACKEND", "auto", "0"},
	{"PINDOWN_BACKEND", "kmod", "1"},
	{"PINDOWN_BACKEND", "kmod-persistent", "2"},
	{"PINDOWN_BACKEND", "dmabuf", "3"},
	{"PINDOWN_BACKEND", "none", "4"},
	{"PINDOWN_MAX_BYTES", "0", "0"},
	{"PINDOWN_MAX_BYTES", "65536", "65536"},
	{"PINDOWN_MAX_BYTES", "4K", "4096"},
	{"PINDOWN_MAX_BYTES", "4k", "4096"},
	{"PINDOWN_MAX_BYTES", "3M", "3145728"},
	{"PINDOWN_MAX_BYTES", "3MiB", "3145728"},
	{"PINDOWN_MAX_BYTES", "2G", "2147483648"},
	{"PINDOWN_MAX_BYTES", "1T", "1099511627776"},
	{"PINDOWN_MAX_BYTES", "18446744073709551615", "18446744073709551615"},
	{"PINDOWN_MAX_BYTES", "16777215T", "18446742974197923840"},
	{"PINDOWN_MAX_REGIONS", "0", "0"},
	{"PINDOWN_MAX_REGIONS", "1000", "1000"},
	{"PINDOWN_MAX_REGIONS", "18446744073709551615", "18446744073709551615"},
	{"PINDOWN_VERIFY", "auto", "0"},
	{"PINDOWN_VERIFY", "always", "1"},
	{"PINDOWN_VERIFY", "never", "2"},
	{"PINDOWN_TRACE", "/tmp/a.pdt", "/tmp/a.pdt"},
	{"PINDOWN_TRACE", "", "none"},
	{"PINDOWN_TRACE_EVENTS", "all", "0x7fff"},
	{"PINDOWN_TRACE_EVENTS", "call", "0x1"},
	{"PINDOWN_TRACE_EVENTS", "pin,unpin", "0x6"},
	{"PINDOWN_TRACE_EVENTS", "all,-hit", "0x7ff7"},
	{"PINDOWN_TRACE_EVENTS", "-call", "0x7ff6"},
	{"PINDOWN_TRACE_EVENTS", "error,map,invalidate,evict,hit", "0xf8"},
	{"PINDOWN_LOG", "quiet", "0"},
	{"PINDOWN_LOG", "error", "1"},
	{"PINDOWN_LOG", "warn", "2"},
	{"PINDOWN_LOG", "info", "3"},
	{"PINDOWN_LOG", "debug", "4"},
	{"PINDOWN_DEBUG", "", "0"},
	{"PINDOWN_DEBUG", "0", "0"},
	{"PINDOWN_DEBUG", "1", "1"},
	{"PINDOWN_RDMA_CAPABLE", "", "0"},
	{"PINDOWN_RDMA_CAPABLE", "1", "1"},
	{"PINDOWN_DEEPBIND", "clear", "0"},
	{"PINDOWN_DEEPBIND", "keep", "1"},
};

START_TEST(good_values)
{
	char assignment[200];

	snprintf(assignment, sizeof(assignment), "%s=%s", good[_i].variable, good[_i].value);
	parse(assignment);
	ck_assert_uint_eq(problems.count, 0);
	ck_assert_str_eq(problems.text, "");
	ck_assert_str_eq(value_of(good[_i].variable), good[_i].means);
}
END_TEST

static const struct {
	const char *variable, *value;
} bad[] = {
	{"PINDOWN", "2"},
	{"PINDOWN", "yes"},
	{"PINDOWN", "00"},
	{"PINDOWN_DMABUF_MAPPING", "c2c"},
	{"PINDOWN_BACKEND", "dmabuf "},
	{"PINDOWN_BACKEND", "DMABUF"},
	{"PINDOWN_BACKEND", "kmod persistent"},
	{"PINDOWN_MAX_BYTES", "-1"},
	{"PINDOWN_MAX_BYTES", "+1"},
	{"PINDOWN_MAX_BYTES", " 1"},
	{"PINDOWN_MAX_BYTES", "K"},
	{"PINDOWN_MAX_BYTES", "1.5G"},
	{"PINDOWN_MAX_BYTES", "1P"},
	{"PINDOWN_MAX_BYTES", "1KK"},
	{"PINDOWN_MAX_BYTES", "1Mi"},
	{"PINDOWN_MAX_BYTES", "0x10"},
	{"PINDOWN_MAX_BYTES", "18446744073709551616"},
	{"PINDOWN_MAX_BYTES", "16777216T"},
	{"PINDOWN_MAX_REGIONS", "1K"},
	{"PINDOWN_MAX_REGIONS", "18446744073709551616"},
	{"PINDOWN_MAX_REGIONS", "many"},
	{"PINDOWN_VERIFY", "sometimes"},
	{"PINDOWN_TRACE", "folder/"},
	{"PINDOWN_TRACE_EVENTS", "cal"},
	{"PINDOWN_TRACE_EVENTS", "call,"},
	{"PINDOWN_TRACE_EVENTS", ",call"},
	{"PINDOWN_TRACE_EVENTS", "call,,pin"},
	{"PINDOWN_TRACE_EVENTS", "call pin"},
	{"PINDOWN_TRACE_EVENTS", "lost"},
	{"PINDOWN_TRACE_EVENTS", "--call"},
	{"PINDOWN_LOG", "verbose"},
	{"PINDOWN_DEBUG", "yes"},
	{"PINDOWN_RDMA_CAPABLE", "2"},
	{"PINDOWN_DEEPBIND", "1"},
};

/* One line names the variable, the value and what is accepted; the default is used. */
START_TEST(bad_values)
{
	char assignment[200], expected[600], accepts[400], default_value[PATH_MAX + 32];
	const struct pdn_variable *variable = pdn_variables;

	parse(NULL);
	snprintf(default_value, sizeof(default_value), "%s", value_of(bad[_i].variable));
	while (strcmp(variable->name, bad[_i].variable) != 0)
		variable++;
	snprintf(assignment, sizeof(assignment), "%s=%s", bad[_i].variable, bad[_i].value);
	parse(assignment);
	ck_assert_uint_eq(problems.count, 1);
	snprintf(expected, sizeof(expected), "%s: must be %s\ttaken as %s\n", assignment,
		 pdn_variable_accepts(variable, accepts, sizeof(accepts)),
		 variable->default_value[0] ? variable->default_value : "not set");
	ck_assert_str_eq(problems.text, expected);
	ck_assert_str_eq(value_of(bad[_i].variable), default_value);
}
END_TEST

static const struct {
	const char *assignment, *line;
} unknown[] = {
	{"PINDOWN_BACKEN=none",
	 "PINDOWN_BACKEN: no such variable; the nearest known one is PINDOWN_BACKEND"},
	{"PINDOWN_=1", "PINDOWN_: no such variable; the nearest known one is PINDOWN"},
	{"PINDOWN_TRACE_EVENT=all",
	 "PINDOWN_TRACE_EVENT: no such variable; the nearest known one is PINDOWN_TRACE_EVENTS"},
	{"PINDOWN_MAXBYTES=1",
	 "PINDOWN_MAXBYTES: no such variable; the nearest known one is PINDOWN_MAX_BYTES"},
	{"PINDOWN_LGO=info", "PINDOWN_LGO: no such variable; the nearest known one is PINDOWN_LOG"},
};

START_TEST(unknown_variables)
{
	char assignment[100], line[200];

	strcpy(assignment, unknown[_i].assignment);
	parse(assignment);
	ck_assert_uint_eq(problems.count, 1);
	snprintf(line, sizeof(line), "%s\tignored\n", unknown[_i].line);
	ck_assert_str_eq(problems.text, line);
}
END_TEST

/* Other software may have variables of that prefix: they are one line, behind those of values. */
START_TEST(several_unknown_variables)
{
	char a[] = "PINDOWN_ROOT=/opt/pindown", b[] = "PINDOWN_LOG=loud", c[] = "PINDOWN_DIR=/x";
	char *environment[] = {a, b, c, NULL};

	pdn_config_parse(&config, &problems, environment);
	ck_assert_uint_eq(problems.count, 2);
	ck_assert_uint_eq(problems.unknown, 2);
	ck_assert_ptr_eq(strstr(problems.text, "PINDOWN_LOG=loud: must be"), problems.text);
	ck_assert_ptr_nonnull(
		strstr(problems.text, "\nPINDOWN_ROOT, PINDOWN_DIR: no such variables\tignored\n"));
}
END_TEST

START_TEST(others_variables)
{
	char a[] = "PINDOWNER=1", b[] = "PINDOW=0", c[] = "PATH=PINDOWN_X=1", d[] = "PINDOWN";
	char *environment[] = {a, b, c, d, NULL};

	pdn_config_parse(&config, &problems, environment);
	ck_assert_uint_eq(problems.count, 0);
	ck_assert(config.enabled);
}
END_TEST

START_TEST(the_first_assignment_counts)
{
	char a[] = "PINDOWN_LOG=info", b[] = "PINDOWN_LOG=nonsense";
	char *environment[] = {a, b, NULL};

	pdn_config_parse(&config, &problems, environment);
	ck_assert_uint_eq(problems.count, 0);
	ck_assert_int_eq(config.log, PDN_LOG_INFO);
}
END_TEST

START_TEST(a_relative_trace_is_from_here)
{
	char assignment[] = "PINDOWN_TRACE=b.pdt", expected[PATH_MAX + 10], here[PATH_MAX];

	parse(assignment);
	snprintf(expected, sizeof(expected), "%s/b.pdt", getcwd(here, sizeof(here)));
	ck_assert_str_eq(config.trace, expected);
}
END_TEST

START_TEST(a_name_that_is_too_long)
{
	static char assignment[PATH_MAX + 100] = "PINDOWN_TRACE=/";

	memset(assignment + strlen(assignment), 'x', PATH_MAX);
	parse(assignment);
	ck_assert_uint_eq(problems.count, 1);
	ck_assert_ptr_null(config.trace);
	/* Only the beginning of the value is printed. */
	ck_assert_uint_lt(problems.used, 200);
}
END_TEST

/* A value is printed as text, without control characters for the terminal. */
START_TEST(control_characters)
{
	char assignment[] = "PINDOWN_LOG=\033[2J\n\t";

	parse(assignment);
	ck_assert_ptr_nonnull(strstr(problems.text, "PINDOWN_LOG=?[2J??: must be"));
}
END_TEST

/* More names than can be stored are counted, and do no harm. */
START_TEST(many_problems)
{
	static char text[200][40];
	char *environment[201];

	for (unsigned i = 0; i < 200; i++) {
		sprintf(text[i], "PINDOWN_NO_SUCH_VARIABLE_%u=1", i);
		environment[i] = text[i];
	}
	environment[200] = NULL;
	pdn_config_parse(&config, &problems, environment);
	ck_assert_uint_eq(problems.count, 1);
	ck_assert_uint_eq(problems.unknown, 200);
	ck_assert_uint_lt(problems.used, sizeof(problems.text));
	ck_assert_uint_eq(problems.used, strlen(problems.text));
	ck_assert_int_eq(problems.text[problems.used - 1], '\n');
}
END_TEST

/* A row without one of these would leave a gap in the help and in the manual. */
START_TEST(rows_are_complete)
{
	const struct pdn_variable *row = &pdn_variables[_i];
	const struct pdn_option *shown = pdn_option_of(row);
	char accepts[400];

	ck_assert_int_eq(strncmp(row->name, "PINDOWN", 7), 0);
	ck_assert_uint_lt(strnlen(row->name, sizeof(row->name)), sizeof(row->name));
	ck_assert_uint_lt(strnlen(row->default_value, sizeof(row->default_value)),
			  sizeof(row->default_value));
	ck_assert_ptr_nonnull(shown->option);
	ck_assert_ptr_nonnull(shown->argument);
	ck_assert_uint_gt(strlen(shown->help), 20);
	ck_assert_int_eq(shown->help[strlen(shown->help) - 1], '.');
	ck_assert_uint_lt(strlen(pdn_variable_accepts(row, accepts, sizeof(accepts))), 399);
	for (unsigned i = 0; i < (unsigned)_i; i++) {
		ck_assert_str_ne(row->name, pdn_variables[i].name);
		ck_assert_str_ne(shown->option, pdn_options[i].option);
	}
}
END_TEST

/* ---- the configuration of the process ------------------------------------------------------- */

/* Redirects standard error into a file, for what is printed there. */
static int redirected(void)
{
	FILE *file = tmpfile();
	int fd = dup(fileno(file));

	fclose(file);
	dup2(fd, STDERR_FILENO);
	return fd;
}

static const char *printed(int fd)
{
	static char text[8192];
	ssize_t length = pread(fd, text, sizeof(text) - 1, 0);

	text[length > 0 ? length : 0] = '\0';
	return text;
}

START_TEST(own_environment)
{
	int fd = redirected();

	setenv("PINDOWN_VERIFY", "perhaps", 1);
	setenv("PINDOWN_MAX_BYTES", "1M", 1);
	errno = 99;
	ck_assert_uint_eq(pdn_config()->max_bytes, 1 << 20);
	ck_assert_int_eq(errno, 99);
	/* Read once. */
	setenv("PINDOWN_MAX_BYTES", "2M", 1);
	ck_assert_uint_eq(pdn_config()->max_bytes, 1 << 20);
	/* A program that never touches CUDA prints nothing. */
	ck_assert_str_eq(printed(fd), "");
	pdn_config_complain();
	ck_assert_int_eq(errno, 99);
	ck_assert_str_eq(printed(fd),
			 "pindown: PINDOWN_VERIFY=perhaps: must be one of auto, always, "
			 "never; taken as auto\n");
	pdn_config_complain();
	ck_assert_int_eq(strlen(printed(fd)),
			 strlen("pindown: PINDOWN_VERIFY=perhaps: must be one of "
				"auto, always, never; taken as auto\n"));
}
END_TEST

START_TEST(quiet_is_quiet)
{
	int fd = redirected();

	setenv("PINDOWN_VERIFY", "perhaps", 1);
	setenv("PINDOWN_LOG", "quiet", 1);
	pdn_config_complain();
	pdn_log(PDN_LOG_ERROR, "nothing");
	ck_assert_str_eq(printed(fd), "");
}
END_TEST

START_TEST(levels)
{
	static bool once;
	int fd = redirected();

	setenv("PINDOWN_LOG", "warn", 1);
	pdn_log(PDN_LOG_INFO, "info");
	pdn_log(PDN_LOG_WARN, "a %s, %d", "warning", 5);
	for (int i = 0; i < 3; i++)
		pdn_log_once(&once, PDN_LOG_ERROR, "off, time %d", i);
	ck_assert_str_eq(printed(fd), "pindown: a warning, 5\npindown: off, time 0\n");
}
END_TEST

START_TEST(long_lines_are_cut)
{
	int fd = redirected();
	char text[3000] = "";

	memset(text, 'y', sizeof(text) - 1);
	pdn_log(PDN_LOG_ERROR, "%s", text);
	ck_assert_uint_lt(strlen(printed(fd)), 1024);
	ck_assert_uint_gt(strlen(printed(fd)), 1000);
	ck_assert_int_eq(printed(fd)[strlen(printed(fd)) - 1], '\n');
}
END_TEST

/* Standard error may be a pipe that is not read, or closed: neither kills the program nor shows. */
START_TEST(nobody_listens)
{
	sigset_t pending;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	close(ends[0]);
	dup2(ends[1], STDERR_FILENO);
	errno = 77;
	pdn_log(PDN_LOG_ERROR, "lost");
	ck_assert_int_eq(errno, 77);
	sigpending(&pending);
	ck_assert_int_eq(sigismember(&pending, SIGPIPE), 0);
	close(STDERR_FILENO);
	pdn_log(PDN_LOG_ERROR, "lost");
	ck_assert_int_eq(errno, 77);
}
END_TEST

/* Descriptor 2 is another file than at load. */
static off_t bytes_logged_to(int flags)
{
	char name[] = "/tmp/pindown-log-XXXXXX";
	int fd = mkstemp(name), opened = open(name, flags);
	struct stat status;

	ck_assert_int_ge(opened, 0);
	dup2(opened, STDERR_FILENO);
	errno = 77;
	pdn_log(PDN_LOG_ERROR, "a line");
	ck_assert_int_eq(errno, 77);
	ck_assert_int_eq(fstat(fd, &status), 0);
	close(opened);
	close(fd);
	unlink(name);
	return status.st_size;
}

START_TEST(a_file_of_the_programs)
{
	pdn_log_at_load();
	ck_assert_int_eq(bytes_logged_to(O_RDWR), 0);
	ck_assert_int_gt(bytes_logged_to(O_WRONLY), 0);
	ck_assert_int_gt(bytes_logged_to(O_RDWR | O_APPEND), 0);
}
END_TEST

/* Is a line written into the other end of it, which then is descriptor 2? */
static bool is_logged_to(const int ends[2])
{
	int waiting;

	dup2(ends[1], STDERR_FILENO);
	errno = 77;
	pdn_log(PDN_LOG_ERROR, "a line");
	ck_assert_int_eq(errno, 77);
	ck_assert_int_eq(ioctl(ends[0], FIONREAD, &waiting), 0);
	return waiting > 0;
}

START_TEST(a_socket_or_pipe_of_the_programs)
{
	int sockets[2], ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	ck_assert_int_eq(pipe(ends), 0);
	pdn_log_at_load();
	ck_assert(!is_logged_to(sockets));
	ck_assert(!is_logged_to(ends));
	/* It was standard error at load. */
	pdn_log_at_load();
	ck_assert(is_logged_to(ends));
}
END_TEST

/* Whatever gets the number later is the program's own. */
START_TEST(standard_error_is_closed_at_load)
{
	close(STDERR_FILENO);
	pdn_log_at_load();
	ck_assert_int_eq(bytes_logged_to(O_WRONLY), 0);
	ck_assert_int_eq(bytes_logged_to(O_RDWR | O_APPEND), 0);
}
END_TEST

/* A sandbox may allow no file to grow, and standard error may be one. */
START_TEST(no_file_may_grow)
{
	const struct rlimit none = {0, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
	int fd = redirected();
	sigset_t pending;

	setrlimit(RLIMIT_FSIZE, &none);
	errno = 77;
	pdn_log(PDN_LOG_ERROR, "lost");
	setrlimit(RLIMIT_FSIZE, &all); /* Check writes to files, too */
	ck_assert_int_eq(errno, 77);
	sigpending(&pending);
	ck_assert_int_eq(sigismember(&pending, SIGXFSZ), 0);
	ck_assert_str_eq(printed(fd), "");
}
END_TEST

/* In a session whose terminal stops jobs in the background that write to it. */
static void log_in_the_background(void)
{
	int terminal = posix_openpt(O_RDWR), status;
	struct termios modes;
	pid_t job;

	if (setsid() < 0 || terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
		_exit(77);
	dup2(open(ptsname(terminal), O_RDWR), STDERR_FILENO);
	if (tcgetattr(STDERR_FILENO, &modes) != 0)
		_exit(77);
	modes.c_lflag |= TOSTOP;
	tcsetattr(STDERR_FILENO, TCSANOW, &modes);
	job = fork();
	if (job == 0) {
		setpgid(0, 0);
		pdn_log(PDN_LOG_ERROR, "a line");
		_exit(0);
	}
	waitpid(job, &status, WUNTRACED);
	if (WIFSTOPPED(status))
		kill(job, SIGKILL);
	_exit(WIFSTOPPED(status));
}

START_TEST(a_job_in_the_background_is_not_stopped)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		log_in_the_background();
	waitpid(child, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_test("there is no terminal here");
	else
		ck_assert_int_eq(status, 0);
}
END_TEST

static const int own_signals[] = {SIGPIPE, SIGXFSZ, SIGTTOU};

/* A signal of the program's own, blocked and pending, must stay pending. */
START_TEST(a_pending_signal_stays)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, own_signals[_i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(own_signals[_i]);
	pdn_log(PDN_LOG_ERROR, "a line");
	sigpending(&set);
	ck_assert_int_eq(sigismember(&set, own_signals[_i]), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *table = suite_case(suite, "table", NULL, NULL);
	TCase *own = suite_case(suite, "own", NULL, NULL);

	tcase_add_loop_test(table, good_values, 0, sizeof(good) / sizeof(good[0]));
	tcase_add_loop_test(table, bad_values, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_loop_test(table, unknown_variables, 0, sizeof(unknown) / sizeof(unknown[0]));
	tcase_add_test(table, several_unknown_variables);
	tcase_add_test(table, others_variables);
	tcase_add_test(table, the_first_assignment_counts);
	tcase_add_test(table, a_relative_trace_is_from_here);
	tcase_add_test(table, a_name_that_is_too_long);
	tcase_add_test(table, control_characters);
	tcase_add_test(table, many_problems);
	tcase_add_loop_test(table, rows_are_complete, 0, (int)pdn_variable_count);
	tcase_add_test(own, own_environment);
	tcase_add_test(own, quiet_is_quiet);
	tcase_add_test(own, levels);
	tcase_add_test(own, long_lines_are_cut);
	tcase_add_test(own, nobody_listens);
	tcase_add_test(own, a_file_of_the_programs);
	tcase_add_test(own, a_socket_or_pipe_of_the_programs);
	tcase_add_test(own, standard_error_is_closed_at_load);
	tcase_add_test(own, no_file_may_grow);
	tcase_add_test(own, a_job_in_the_background_is_not_stopped);
	tcase_add_loop_test(own, a_pending_signal_stays, 0, 3);
	return run_suite(suite);
}
