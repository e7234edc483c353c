// SPDX-License-Identifier: MIT
/* Starts a pager and sends standard output through it. */
#define _GNU_SOURCE
#include "tools/ui/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/base/out.h"
#include "tools/system/programs.h"

static pid_t pager;

static const char *choose(void)
{
	const char *name = getenv("PAGER");
	char path[4096];

	if (name)
		return *name && strcmp(name, "cat") != 0 ? name : NULL;
	return program_find("less", path, sizeof(path)) ? "less" : NULL;
}

static void become(const char *name, int from)
{
	/* Show colours, quit at once if all fits on the screen, and cut long lines. */
	setenv("LESS", "FRSX", 0);
	dup2(from, STDIN_FILENO);
	execlp("sh", "sh", "-c", name, (char *)NULL);
	_exit(127);
}

/* At exit: the terminal belongs to the pager until the user quits it. */
static void wait_for_pager(void)
{
	out_flush();
	close(out.fd);
	while (waitpid(pager, NULL, 0) < 0 && errno == EINTR)
		;
}

void pager_begin(bool wanted)
{
	const char *name;
	int ends[2];

	if (!wanted || !isatty(out.fd) || !isatty(STDIN_FILENO) || !(name = choose()) ||
	    pipe2(ends, O_CLOEXEC) != 0)
		return;
	pager = fork();
	if (pager == 0)
		become(name, ends[0]);
	close(ends[0]);
	if (pager < 0) {
		close(ends[1]);
		return;
	}
	out.fd = ends[1];
	/* Ctrl-C is for the pager. When the pager quits, the next write gets EPIPE. */
	signal(SIGINT, SIG_IGN);
	atexit(wait_for_pager);
}
