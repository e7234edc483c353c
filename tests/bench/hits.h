/* SPDX-License-Identifier: MIT */
/*
 * The cache on a real driver: hits.c has main() and the threads, hits_pindown.c has these. Where no
 * driver is needed, workloads.c measures more.
 */
#ifndef BENCH_HITS_H
#define BENCH_HITS_H

#include <stddef.h>
#include <stdint.h>

#define HITS_REGION_BYTES 65536u

extern const char hits_name[];

/* Register `count` regions; their addresses go to addrs. Called once. */
void hits_open(uint64_t *addrs, size_t count);

/* To be called first in each measuring thread. */
void hits_thread(void);

/* Get and put the region at each of `count` addresses. */
void hits_loop(const uint64_t *addrs, size_t count);

/* Checks that the loops were answered from the cache, and gives all back. */
void hits_close(size_t regions, size_t gets);

#endif
