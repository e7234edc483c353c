/* SPDX-License-Identifier: MIT */
/* Bar charts in text. */
#ifndef PLOT_H
#define PLOT_H

#include <stdint.h>

/* A bar for each value, `rows` lines high, with a scale of bytes at the left and time below. */
void plot_bytes(const uint64_t *values, unsigned count, unsigned rows, uint64_t span_ns);

/* Columns of the scale at the left. */
enum { PLOT_MARGIN = 12 };

#endif
