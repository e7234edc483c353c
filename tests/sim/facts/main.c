/* SPDX-License-Identifier: MIT */
/* facts [GROUP...]: asks the driver that it finds, and prints the answers. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "facts.h"

static const struct group {
	const char *name;
	void (*ask)(void);
} groups[] = {
	{"start", facts_start},
	{"linear", facts_linear},
	{"export", facts_export},
	{"kinds", facts_kinds},
	{"host", facts_host},
	{"contexts", facts_contexts},
	{"primary", facts_primary},
	{"green", facts_green},
	{"pools", facts_pools},
	{"pool exports", facts_pool_exports},
	{"vmm", facts_vmm},
	{"graphs", facts_graphs},
	{"capture", facts_capture},
	{"modules", facts_modules},
	{"lookup", facts_lookup},
	{"ipc", facts_ipc},
	{"old", facts_old},
	{"exit", facts_exit},
	{"fork", facts_fork},
	{"reserved", facts_reserved},
	{"reserved chunks", facts_reserved_chunks},
	{"reserved ends", facts_reserved_ends},
	{"reserved capture", facts_reserved_capture},
	{"reserved restore", facts_reserved_restore},
};
#define GROUPS (sizeof(groups) / sizeof(groups[0]))

static const char *group_name;

void say(const char *question, const char *format, ...)
{
	va_list args;

	printf("%s: %s = ", group_name, question);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

void answer(const char *question, CUresult result)
{
	const char *name = NULL;

	if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		say(question, "%d", (int)result);
	else
		say(question, "%s", name);
}

void need(const char *what, CUresult result)
{
	if (result == CUDA_SUCCESS)
		return;
	answer(what, result);
	_exit(1);
}

CUcontext begin(void)
{
	CUcontext context;

	NEED(cuInit(0));
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuCtxSetCurrent(context));
	return context;
}

static void run(const struct group *group)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		group_name = group->name;
		alarm(120); /* a driver that hangs ends the group by a signal */
		group->ask();
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		printf("%s: %s\n", group->name, strerror(errno));
	else if (WIFSIGNALED(status))
		printf("%s: died of signal %d\n", group->name, WTERMSIG(status));
	else if (WEXITSTATUS(status))
		printf("%s: ended with status %d\n", group->name, WEXITSTATUS(status));
}

static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < GROUPS; i++)
		if (wanted(groups[i].name, argc, argv))
			run(&groups[i]);
	return 0;
}
