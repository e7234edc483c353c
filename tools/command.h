/* SPDX-License-Identifier: MIT */
/* A command of the pindown tool, and the parsing of its options, which is the same for all. */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>

#include "tools/base/status.h"

/* The arguments that a command takes besides options; also for completion in a shell. */
enum arguments {
	ARGUMENTS_NONE,
	ARGUMENTS_TRACES,
	ARGUMENTS_PROGRAMS,	/* files, and names of programs */
	ARGUMENTS_COMMAND_LINE, /* one program and its arguments */
	ARGUMENTS_PROCESSES,
};

/* An option; it has exactly one of flag, text and take. */
struct setting {
	const char *name;
	bool *flag;	   /* set by an option without a value */
	const char **text; /* where its value is stored */
	/* Stores its value; false after one line that says which values are accepted. */
	bool (*take)(const char *value);
};

struct command {
	const char *name, *summary, *help;
	const struct setting *settings; /* ends with a NULL name; --color and --help are added */
	enum arguments arguments;
	int (*run)(int argc, char **argv); /* with the arguments; returns the exit status */
	/* Instead of settings and run(): parses all words itself; the first is "pindown run". */
	int (*run_words)(int argc, char **argv);
};

/*
 * Runs a command; argv[0] is its name. Clears its flags and texts first. Returns the exit status.
 */
int command_start(const struct command *command, int argc, char **argv);

/* The options of a command with settings, for getopt_long(); the caller frees them. */
struct option *command_options(const struct command *command);
/* The same for `run`, whose options come from the table of environment variables. */
struct option *run_options(void);

/* Whether the number of arguments suits the command; false after one line. */
bool command_has_arguments(const struct command *command, int argc, char **argv);

extern const struct command command_run, command_dump, command_report, command_check,
	command_doctor, command_top, command_quiesce, command_replay;

#endif
