/* SPDX-License-Identifier: MIT */
/*
 * A registration cache to be measured: workloads.c has main(), the threads and the clock; one file
 * for each cache has these functions. The loops are in that file, so that nothing stands between
 * them and the measured calls. Region i begins at base + (i << shift) and is PEER_BYTES long.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_BYTES 65536u
#define PEER_FREED 0x80000000u /* in an order: free the region's memory first */

struct regions {
	uint64_t base;
	unsigned shift;
};

static inline uint64_t region_at(const struct regions *regions, uint32_t i)
{
	return regions->base + ((uint64_t)i << regions->shift);
}

extern const char peer_name[];

/* Measurements that the peer can't make are left out. */
extern const bool peer_has_frees;

/*
 * The version of the measured library. It may load others, so it is called where nothing is
 * measured.
 */
const char *peer_version(void);

/*
 * `regions` is how many there will be at most; at most `limit` may be registered at once (0: any
 * number). pindown has its limit from the environment.
 */
void peer_open(size_t regions, size_t limit);

/* Each measuring thread calls this first. */
void peer_thread(void);

/* Gets and puts each; a miss pins. */
void peer_gets(const struct regions *regions, const uint32_t *order, size_t count);

/* The same, with some freed first. */
void peer_gets_and_frees(const struct regions *regions, const uint32_t *order, size_t count);

/* Notifies the cache that the memory at one address, or in a range, is freed. */
void peer_frees(const struct regions *regions, const uint32_t *order, size_t count);
void peer_free_range(uint64_t begin, uint64_t length);

/* Gets without puts, and the puts of all these. */
void peer_hold(const struct regions *regions, uint32_t first, uint32_t count);
void peer_let_go(void);

/* Ends all idle regions, which are these; it may leave the first. */
void peer_flush(const struct regions *regions, const uint32_t *order, size_t count);

/* Asks the cache for all its counters; false: it has none. */
bool peer_count(void);

/* The number of pins so far: a hit must not have been a miss. */
uint64_t peer_pins(void);

#endif
