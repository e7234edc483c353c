// SPDX-License-Identifier: MIT
/*
 * No cache: the two dependent loads of any cache that finds a record by address in a table. The
 * rest of a hit is the cache's own cost.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "peer.h"

#include <sys/mman.h>

const char peer_name[] = "two loads";
const bool peer_has_frees = false;

struct record {
	uint64_t addr;
} __attribute__((aligned(128)));

static uint32_t *numbers;
static struct record *records;
static volatile uint64_t sink;

static void *memory(size_t bytes)
{
	const size_t huge = (size_t)2 << 20;
	void *p = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED)
		stop("no memory", 0);
	p = (void *)(((uintptr_t)p + huge - 1) & ~(huge - 1));
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

const char *peer_version(void)
{
	return "-";
}

void peer_open(size_t regions, size_t limit)
{
	(void)limit;
	numbers = memory((regions + 1) * sizeof(*numbers));
	records = memory((regions + 1) * sizeof(*records));
	for (size_t i = 0; i <= regions; i++) {
		numbers[i] = (uint32_t)i;
		records[i].addr = i;
	}
}

void peer_thread(void)
{
}

void peer_gets(const struct regions *regions, const uint32_t *order, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t addr = region_at(regions, order[i]);

		sum += records[numbers[(addr - regions->base) >> regions->shift]].addr;
	}
	sink = sum;
}

/* ---- not for it --------------------------------------------------------------------------- */

void peer_gets_and_frees(const struct regions *regions, const uint32_t *order, size_t count)
{
	(void)regions, (void)order, (void)count;
}

void peer_frees(const struct regions *regions, const uint32_t *order, size_t count)
{
	(void)regions, (void)order, (void)count;
}

void peer_free_range(uint64_t begin, uint64_t length)
{
	(void)begin, (void)length;
}

void peer_hold(const struct regions *regions, uint32_t first, uint32_t count)
{
	(void)regions, (void)first, (void)count;
}

void peer_let_go(void)
{
}

void peer_flush(const struct regions *regions, const uint32_t *order, size_t count)
{
	(void)regions, (void)order, (void)count;
}

bool peer_count(void)
{
	return false;
}

uint64_t peer_pins(void)
{
	return 0;
}
