/* SPDX-License-Identifier: MIT */
/* Starting the program of `pindown run`. */
#ifndef RUN_PROGRAM_H
#define RUN_PROGRAM_H

enum { CANT_START = 126, NO_PROGRAM = 127 };

/* Replaces this process by the program. Returns an exit status, after one line, if that fails. */
int program_become(char **argv);

/*
 * Runs the program as a child and returns its exit status, or ends by the signal that ended it. If
 * no process has written a trace of that name by then, one line says so.
 */
int program_trace(char **argv, const char *trace);

#endif
