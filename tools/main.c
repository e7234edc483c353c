// SPDX-License-Identifier: MIT
/* The pindown tool: starts one of its commands, each of which has a folder of its name. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/complete.h"
#include "cache/pindown.h"
#include "tools/command.h"

static const struct command *const commands[] = {&command_run,	   &command_dump,   &command_report,
						 &command_check,   &command_doctor, &command_top,
						 &command_quiesce, &command_replay};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static void print_help(FILE *to)
{
	fputs("usage: pindown COMMAND [options] ...\n\n", to);
	for (unsigned i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-10s%s\n", commands[i]->name, commands[i]->summary);
	fputs("\n"
	      "  pindown COMMAND --help (or -h) describes one command; pindown --version\n"
	      "  prints the version.\n"
	      "\n"
	      "Run a program with a trace, then look at it:\n"
	      "  pindown run --trace app.pdt ./app\n"
	      "  pindown report app.pdt\n"
	      "  pindown dump --stale app.pdt\n",
	      to);
}

static int help_about(int argc, char **argv)
{
	char option[] = "--help", *arguments[] = {NULL, option, NULL};

	if (argc > 2 && strcmp(argv[2], "bar") == 0)
		return command_start(&command_top, 2, arguments);
	for (unsigned i = 0; argc > 2 && i < COMMANDS; i++) {
		if (strcmp(argv[2], commands[i]->name) == 0) {
			arguments[0] = argv[2];
			return command_start(commands[i], 2, arguments);
		}
	}
	print_help(stdout);
	return STATUS_OK;
}

/* `pindown bar` is another word for `pindown top --bar --once`. */
static int start_bar(int argc, char **argv)
{
	char bar[] = "--bar", once[] = "--once";
	char **words = allocate(((size_t)argc + 4) * sizeof(*words));
	int status;

	words[1] = bar;
	words[2] = once;
	memcpy(words + 3, argv, (size_t)argc * sizeof(*argv));
	status = command_start(&command_top, argc + 3, words);
	release(words);
	return status;
}

/*
 * Where a standard descriptor is missing, the next file that the driver opens would get its number,
 * and the output with it. Nobody can write to what is opened here, as to a missing one, and no
 * program that is started gets it.
 */
static void fill_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static int start(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return STATUS_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("pindown %d.%d\n", PINDOWN_VERSION_MAJOR, PINDOWN_VERSION_MINOR);
		return STATUS_OK;
	}
	if (strcmp(argv[1], "--complete") == 0)
		return complete(argv + 2, argc - 2, commands, COMMANDS);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0)
		return help_about(argc, argv);
	if (strcmp(argv[1], "bar") == 0)
		return start_bar(argc - 2, argv + 2);
	for (unsigned i = 0; i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i]->name) == 0)
			return command_start(commands[i], argc - 1, argv + 1);
	fprintf(stderr, "pindown: there is no command %s; the commands are", argv[1]);
	for (unsigned i = 0; i < COMMANDS; i++)
		fprintf(stderr, "%s %s", i ? "," : "", commands[i]->name);
	fputc('\n', stderr);
	return STATUS_USAGE;
}

int main(int argc, char **argv)
{
	int status;

	setlocale(LC_CTYPE, "");
	fill_standard_descriptors();
	status = start(argc, argv);
	if (status != STATUS_OK || (fflush(stdout) == 0 && !ferror(stdout)))
		return status;
	/* EPIPE: the reader has closed the pipe, which is no error. */
	if (errno != EPIPE)
		complain("standard output: %s", strerror(errno));
	return STATUS_DAMAGED;
}
