/* SPDX-License-Identifier: MIT */
/* A command of the command, and how its words are taken: the same for all. */
#ifndef VERB_H
#define VERB_H

#include <stdbool.h>

#include "tools/base/status.h"

/* What a command takes besides options; also for completion in a shell. */
enum arguments {
	ARGUMENTS_NONE,
	ARGUMENTS_TRACES,
	ARGUMENTS_PROGRAMS,	/* files, and names of programs */
	ARGUMENTS_COMMAND_LINE, /* one program, and its own arguments */
	ARGUMENTS_PROCESSES,
};

/* An option does one of three things. */
struct setting {
	const char *name;
	bool *flag;			 /* it has no value and sets this */
	const char **text;		 /* its value is kept here */
	bool (*take)(const char *value); /* false after one line that says what is accepted */
};

struct command {
	const char *name, *summary, *help;
	const struct setting
		*settings; /* the last has no name; --color and --help are everybody's */
	enum arguments arguments;
	int (*run)(int argc, char **argv); /* with what is no option; returns the exit status */
	/* Instead of these two: takes all words, the first of which is its name ("pindown run"). */
	int (*run_words)(int argc, char **argv);
};

/* argv[0] is the command's name. Flags and texts are cleared first. Returns the exit status. */
int command_start(const struct command *command, int argc, char **argv);

/* Of a command with settings: for getopt_long(); for release(). */
struct option *command_options(const struct command *command);
/* The options of `run`, from the table of variables; the same. */
struct option *run_options(void);

/* Whether there are as many arguments as the command needs; false after one line. */
bool command_has_arguments(const struct command *command, int argc, char **argv);

extern const struct command command_run, command_dump, command_report, command_check,
	command_doctor, command_bar, command_top, command_replay;

#endif
