/* SPDX-License-Identifier: MIT */
/*
 * Functions for all measuring programs. Each program prints lines "NAME<tab>NANOSECONDS" (or
 * another unit that NAME states), one for each measurement; tests/bench/run repeats and compares
 * them.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline double median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), compare_doubles);
	return values[count / 2];
}

static inline void print_measure(const char *name, double value)
{
	printf("%s\t%.2f\n", name, value);
}

/* Ends a benchmark that can't continue. */
static inline void stop(const char *why, int code)
{
	fprintf(stderr, "bench: %s: %d\n", why, code);
	exit(1);
}

#endif
