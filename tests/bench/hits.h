/* SPDX-License-Identifier: MIT */
/*
 * The cache on a real driver: hits.c has main() and the threads, hits_pindown.c has these
 * functions. workloads.c measures more, where no driver is needed.
 */
#ifndef BENCH_HITS_H
#define BENCH_HITS_H

#include <stddef.h>
#include <stdint.h>

#define HITS_REGION_BYTES 65536u

extern const char hits_name[];

/* Registers `count` regions; their addresses go to addrs. Called once. */
void hits_open(uint64_t *addrs, size_t count);

/* Each measuring thread calls this first. */
void hits_thread(void);

/* Gets and puts the region at each of `count` addresses. */
void hits_loop(const uint64_t *addrs, size_t count);

/* Checks that the cache answered the loops, and drops everything. */
void hits_close(size_t regions, size_t gets);

#endif
