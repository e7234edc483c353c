/* SPDX-License-Identifier: MIT */
/*
 * endure mr|dmabuf ROUNDS [BYTES]: each round allocates a buffer, registers it through the
 * middleware's cache, moves its first bytes, and frees it without telling the middleware. Ten times
 * on the way it says what the process has become: all of it should stay as it is.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stale.h"

#define MOVED 64 /* bytes */

static struct {
	unsigned long wrong, failed, unregistered;
	unsigned long long ns; /* in the driver's allocations, since the last line */
} seen;

/* ---- distinct addresses --------------------------------------------------------------------- */

static CUdeviceptr *addresses; /* a hash table; 0: free */
static unsigned long places, distinct;

static void note_address(CUdeviceptr addr)
{
	unsigned long at = (addr >> 9) * 0x9e3779b97f4a7c15 % places;

	while (addresses[at] && addresses[at] != addr)
		at = (at + 1) % places;
	distinct += !addresses[at];
	addresses[at] = addr;
}

/* ---- what the process has become ------------------------------------------------------------ */

static unsigned count_maps(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned lines = 0;
	int c;

	while (file && (c = getc(file)) != EOF)
		lines += c == '\n';
	if (file)
		fclose(file);
	return lines;
}

/* Without the simulated GPU's memory, which is a file. */
static unsigned long resident(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "RssAnon: %lu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib;
}

static void say(unsigned long round, unsigned long step)
{
	printf("round %lu: maps %u resident %lu KiB wrong %lu failed %lu unregistered %lu "
	       "addresses %lu allocation %llu ns\n",
	       round, count_maps(), resident(), seen.wrong, seen.failed, seen.unregistered,
	       distinct, seen.ns / step);
	fflush(stdout);
	seen.ns = 0;
}

/* ---- rounds --------------------------------------------------------------------------------- */

static unsigned long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void play(const struct middleware *middleware, struct card *card, const struct road *road,
		 unsigned long round, size_t bytes)
{
	unsigned long filling[MOVED / sizeof(long)];
	unsigned long long begin = now();
	struct keys keys;
	CUdeviceptr addr;

	stale_must(cuMemAlloc_v2(&addr, bytes), "cuMemAlloc");
	seen.ns += now() - begin;
	note_address(addr);
	for (unsigned i = 0; i < MOVED / sizeof(long); i++)
		filling[i] = round + i;
	stale_must(cuMemcpyHtoD_v2(addr, filling, MOVED), "cuMemcpyHtoD");
	if (!middleware->find(road, addr, bytes, &keys))
		seen.unregistered++;
	else if (card_move(card, &keys, addr, MOVED, middleware->remote) != IBV_WC_SUCCESS)
		seen.failed++;
	else
		seen.wrong += memcmp(card_bytes(card), filling, MOVED) != 0;
	stale_must(cuMemFree_v2(addr), "cuMemFree");
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 0, step;
	size_t bytes = argc > 3 ? strtoul(argv[3], NULL, 0) : 4 << 20;
	const struct middleware *middleware = stale_middleware();
	struct card *card;
	struct road road;
	CUcontext context;

	if (argc > 4 || !rounds || bytes < MOVED ||
	    (strcmp(argv[1], "mr") && strcmp(argv[1], "dmabuf")))
		return 2;
	step = rounds < 10 ? 1 : rounds / 10;
	places = 2 * rounds + 1;
	addresses = calloc(places, sizeof(*addresses));
	if (!addresses)
		return 1;
	stale_must(cuInit(0), "cuInit");
	stale_must(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
	card = card_open(4096);
	road = (struct road){card_pd(card), !strcmp(argv[1], "dmabuf")};
	for (unsigned long round = 1; round <= rounds; round++) {
		play(middleware, card, &road, round, bytes);
		if (round % step == 0)
			say(round, step);
	}
	printf("deregistration errors: %u\n", middleware->finish());
	card_close(card);
	return 0;
}
