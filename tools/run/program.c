// SPDX-License-Identifier: MIT
/* Starts the program of `pindown run`; with a trace, waits for its end to see that there is one. */
#define _GNU_SOURCE
#include "tools/run/program.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/system/programs.h"

/* ---- becoming the program ------------------------------------------------------------------- */

/*
 * Returns an errno. execvp() starts a shell for a file that the kernel can't execute; for an ELF
 * file that would give nonsense.
 */
static int execute(char **argv)
{
	char path[PATH_MAX];

	if (program_find(argv[0], path, sizeof(path)) && program_machine(path))
		execv(path, argv);
	else
		execvp(argv[0], argv);
	return errno;
}

static int complain_of(char **argv, int error)
{
	char path[PATH_MAX];
	const char *machine = NULL;

	if (error == ENOEXEC && program_find(argv[0], path, sizeof(path)))
		machine = program_machine(path);
	if (machine && program_is_foreign(path))
		complain("%s: Exec format error: it is a program for %s, and this machine is %s",
			 argv[0], machine, program_own_machine());
	else if (machine)
		complain("%s: Exec format error: it is a damaged ELF file", argv[0]);
	else
		complain("%s: %s", argv[0], strerror(error));
	return error == ENOENT ? NO_PROGRAM : CANT_START;
}

int program_become(char **argv)
{
	return complain_of(argv, execute(argv));
}

/* ---- the traces under a name ---------------------------------------------------------------- */

/* A pattern for every file that a process may write for this PINDOWN_TRACE. */
static char *pattern_of(const char *trace)
{
	size_t length = strlen(trace), used = 0;
	char *pattern = allocate(2 * length + 6);

	if (length > 4 && strcmp(trace + length - 4, ".pdt") == 0)
		length -= 4;
	for (size_t i = 0; i < length; i++) {
		if (trace[i] == '%' && i + 1 < length && trace[i + 1] != '%') {
			const char *end = trace[++i] == 'q' ? strchr(trace + i, '}') : NULL;

			if (end && end < trace + length)
				i = (size_t)(end - trace);
			pattern[used++] = '*';
			continue;
		}
		i += trace[i] == '%' && i + 1 < length; /* "%%" is a "%" */
		if (strchr("*?[\\", trace[i]))
			pattern[used++] = '\\';
		pattern[used++] = trace[i];
	}
	strcpy(pattern + used, "*.pdt");
	return pattern;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether a file is there that was not there before. Names are never used twice. */
static bool has_more(const char *pattern, const glob_t *before)
{
	glob_t now = {0};
	bool more = false;

	if (glob(pattern, 0, NULL, &now) != 0)
		return false;
	for (size_t i = 0; i < now.gl_pathc && !more; i++)
		more = !before->gl_pathc || !bsearch(&now.gl_pathv[i], before->gl_pathv,
						     before->gl_pathc, sizeof(char *), compare);
	globfree(&now);
	return more;
}

/* ---- running the program as a child --------------------------------------------------------- */

/*
 * All signals that can wait do, until sigwaitinfo() takes them: there is no handler. Not those of
 * this process's own faults, nor those that stop it when it uses a terminal in the background.
 */
static sigset_t waited_for(void)
{
	static const int others[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,
				     SIGTRAP, SIGSYS, SIGTTIN, SIGTTOU};
	sigset_t set;

	sigfillset(&set);
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		sigdelset(&set, others[i]);
	return set;
}

/* What the program inherits. */
struct inherited {
	sigset_t mask;
	struct sigaction on_child; /* of SIGCHLD */
};

/* In the child. It ends with this process, as if it had taken its place. */
static void start(char **argv, const struct inherited *inherited, pid_t parent, int errors)
{
	int error;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(CANT_START);
	sigaction(SIGCHLD, &inherited->on_child, NULL);
	sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
	error = execute(argv);
	if (write(errors, &error, sizeof(error)) < 0)
		_exit(CANT_START);
	_exit(CANT_START);
}

/*
 * Whether a terminal has sent the signal to its whole foreground group, and so to the child, too. A
 * terminal that is gone sends SIGHUP only to the leader of the session.
 */
static bool has_reached_group(const siginfo_t *info)
{
	switch (info->si_signo) {
	case SIGINT:
	case SIGQUIT:
	case SIGTSTP:
	case SIGWINCH:
		return info->si_code == SI_KERNEL;
	case SIGHUP:
		return info->si_code == SI_KERNEL && getsid(0) != getpid();
	default:
		return false;
	}
}

static void pass_on(pid_t child, const siginfo_t *info)
{
	if (has_reached_group(info))
		return;
	if (info->si_code == SI_QUEUE)
		sigqueue(child, info->si_signo, info->si_value);
	else
		kill(child, info->si_signo);
}

/* For a shell: stops as the program does by this signal, until SIGCONT. */
static void stop(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Whether the child has ended. As process 1 of a container, this one is the parent of orphans. */
static bool has_ended(pid_t child, int *status)
{
	pid_t whose = getpid() == 1 ? -1 : child, ended;
	int its_status;

	while ((ended = waitpid(whose, &its_status, WNOHANG)) > 0) {
		if (ended == child) {
			*status = its_status;
			return true;
		}
	}
	return false;
}

/* Passes signals on until the child ends. */
static int wait_for(pid_t child)
{
	sigset_t set = waited_for();
	int status;

	while (!has_ended(child, &status)) {
		siginfo_t info;
		int number = sigwaitinfo(&set, &info);

		if (number <= 0 || number == SIGCHLD)
			continue;
		pass_on(child, &info);
		if (number == SIGTSTP)
			stop();
	}
	return status;
}

/* Ends this process by the signal that has ended the child, without a second core file. */
static int end_by(int number)
{
	struct rlimit none = {0, 0};
	sigset_t set;

	setrlimit(RLIMIT_CORE, &none);
	signal(number, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, number);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(number);
	return 128 + number;
}

/* The status of the program, or -1 with the reason in *error if it could not start. */
static int run_child(char **argv, int *error)
{
	struct sigaction by_default = {.sa_handler = SIG_DFL};
	struct inherited inherited;
	sigset_t set = waited_for();
	pid_t parent = getpid(), child;
	int ends[2], status;

	if (pipe2(ends, O_CLOEXEC) != 0) {
		*error = errno;
		return -1;
	}
	sigprocmask(SIG_BLOCK, &set, &inherited.mask);
	/* If it is ignored, no child leaves a status. */
	sigaction(SIGCHLD, &by_default, &inherited.on_child);
	child = fork();
	if (child == 0)
		start(argv, &inherited, parent, ends[1]);
	*error = child < 0 ? errno : 0;
	close(ends[1]);
	/* It ends without a byte when the program has started. */
	if (child > 0 && read(ends[0], error, sizeof(*error)) < 0)
		*error = 0;
	close(ends[0]);
	status = child > 0 ? wait_for(child) : -1;
	return *error ? -1 : status;
}

int program_trace(char **argv, const char *trace)
{
	char *pattern = pattern_of(trace);
	glob_t before = {0};
	int status, error;

	if (glob(pattern, 0, NULL, &before) != 0)
		before.gl_pathc = 0;
	status = run_child(argv, &error);
	if (status != -1 && !has_more(pattern, &before))
		complain("%s did not use CUDA as far as pindown saw, so there is no trace; "
			 "pindown check says which calls it would see",
			 argv[0]);
	globfree(&before);
	release(pattern);
	if (status == -1)
		return complain_of(argv, error);
	return WIFSIGNALED(status) ? end_by(WTERMSIG(status)) : WEXITSTATUS(status);
}
