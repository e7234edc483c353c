/* SPDX-License-Identifier: MIT */
#ifndef VERB_H
#define VERB_H

struct verb {
	const char *name, *summary;
	/* argv[0] is the verb's name; returns the exit status. */
	int (*run)(int argc, char **argv);
};

extern const struct verb verb_run, verb_dump, verb_report, verb_check, verb_doctor, verb_bar, verb_top;

enum {
	STATUS_OK = 0,
	STATUS_DAMAGED = 1, /* a trace could not be read, or not wholly */
	STATUS_FOUND = 1,   /* what was looked at has a problem */
	STATUS_USAGE = 2,   /* bad options or a bad configuration */
};

#endif
