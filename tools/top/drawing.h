/* SPDX-License-Identifier: MIT */
/* The output of pindown top: a screen of some rows, or once as many lines as are needed. */
#ifndef DRAWING_H
#define DRAWING_H

#include <stdbool.h>

struct drawing {
	bool on_screen;
	unsigned rows;	   /* that are left */
	bool ranks, users; /* columns of the table of processes */
};

/* Prints a line, if a row is left for it. */
void print_line(struct drawing *drawing, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
