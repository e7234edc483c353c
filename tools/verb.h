/* SPDX-License-Identifier: MIT */
#ifndef VERB_H
#define VERB_H

/* What a verb takes besides options, for completion in a shell. */
enum arguments {
	ARGUMENTS_NONE,
	ARGUMENTS_TRACES,
	ARGUMENTS_PROGRAMS, /* files, and names of programs */
	ARGUMENTS_COMMAND,  /* one program, and its own arguments */
	ARGUMENTS_PROCESSES,
};

struct option;

struct verb {
	const char *name, *summary;
	/* argv[0] is the verb's name; returns the exit status. */
	int (*run)(int argc, char **argv);
	const struct option *options; /* NULL: run_options() */
	enum arguments arguments;
};

/* The options of `run`, from the table of variables; the caller frees them. */
struct option *run_options(void);

extern const struct verb verb_run, verb_dump, verb_report, verb_check, verb_doctor, verb_bar,
	verb_top, verb_replay;

enum {
	STATUS_OK = 0,
	STATUS_DAMAGED = 1, /* a trace could not be read, or not wholly */
	STATUS_FOUND = 1,   /* what was looked at has a problem */
	STATUS_USAGE = 2,   /* bad options or a bad configuration */
};

#endif
