/* SPDX-License-Identifier: MIT */
/*
 * program mr|dmabuf [BYTES [ROUNDS]]: moves a buffer through the middleware's cache, frees it
 * early, allocates another one, which the driver puts at the same address, and moves that; and so
 * on. Each line of the output is a fact that check-stale asks for. Exit status 1: the test itself
 * went wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stale.h"

#define PIECES 4
#define BLOCK  ((size_t)2 << 20) /* smaller allocations share one */

static size_t bytes = 4 << 20;

static size_t free_memory(void)
{
	size_t left, all;

	stale_must(cuMemGetInfo_v2(&left, &all), "cuMemGetInfo");
	return left;
}

static uint8_t pattern(unsigned seed, size_t i)
{
	return (uint8_t)(seed * 37 + i * 7 + (i >> 8));
}

static CUdeviceptr allocate(unsigned seed)
{
	uint8_t *filling = malloc(bytes);
	CUdeviceptr addr = 0;

	if (!filling)
		exit(1);
	for (size_t i = 0; i < bytes; i++)
		filling[i] = pattern(seed, i);
	stale_must(cuMemAlloc_v2(&addr, bytes), "cuMemAlloc");
	stale_must(cuMemcpyHtoD_v2(addr, filling, bytes), "cuMemcpyHtoD");
	free(filling);
	return addr;
}

static bool are_of(unsigned seed, const uint8_t *moved, size_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (moved[i] != pattern(seed, offset + i))
			return false;
	return true;
}

/* Whose bytes were moved: those of this buffer, or of one that was freed? */
static const char *judge(const uint8_t *moved, unsigned seed, size_t offset, size_t length)
{
	if (are_of(seed, moved, offset, length))
		return "arrived";
	while (--seed)
		if (are_of(seed, moved, offset, length))
			return "old bytes";
	return "wrong bytes";
}

static const struct middleware *middleware;
static struct card *card;
static struct road road;

/* Each piece of the buffer; asks: the cache is asked, otherwise the keys are used as they are. */
static void move_all(const char *what, CUdeviceptr addr, unsigned seed, struct keys *keys,
		     bool asks)
{
	size_t length = bytes / middleware->pieces;

	for (unsigned i = 0; i < middleware->pieces; i++) {
		size_t offset = i * length;
		enum ibv_wc_status status;

		if (asks && !middleware->find(&road, addr + offset, length, &keys[i])) {
			perror("no registration");
			exit(1);
		}
		status = card_move(card, &keys[i], addr + offset, length, middleware->remote);
		printf("%s: %s\n", what,
		       status == IBV_WC_SUCCESS ? judge(card_bytes(card), seed, offset, length)
						: ibv_wc_status_str(status));
	}
}

/* Frees the buffer under its registration, and moves the next one. */
static CUdeviceptr replace(CUdeviceptr addr, unsigned seed, struct keys *keys)
{
	size_t before = free_memory(), after;
	CUdeviceptr again;

	if (middleware->freed)
		middleware->freed(addr, bytes);
	stale_must(cuMemFree_v2(addr), "cuMemFree");
	after = free_memory();
	printf("came back: %s\n", after - before >= bytes ? "yes" : "no");

	again = allocate(seed);
	printf("same address: %s\n", again == addr ? "yes" : "no");
	if (middleware->keeps_keys)
		move_all("old keys", again, seed, keys, false);
	move_all("second", again, seed, keys, true);
	return again;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 3 ? strtoul(argv[3], NULL, 0) : 1;
	struct keys keys[PIECES];
	CUcontext context;
	CUdeviceptr addr, neighbour = 0;

	if (argc < 2 || argc > 4 || (strcmp(argv[1], "mr") && strcmp(argv[1], "dmabuf")))
		return 2;
	if (argc > 2)
		bytes = strtoul(argv[2], NULL, 0);
	middleware = stale_middleware();
	stale_must(cuInit(0), "cuInit");
	stale_must(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
	card = card_open(bytes);
	road = (struct road){card_pd(card), !strcmp(argv[1], "dmabuf")};

	if (bytes < BLOCK)
		stale_must(cuMemAlloc_v2(&neighbour, bytes), "cuMemAlloc");
	addr = allocate(1);
	move_all("first", addr, 1, keys, true);
	for (unsigned seed = 2; seed < rounds + 2; seed++)
		addr = replace(addr, seed, keys);

	printf("deregistration errors: %u\n", middleware->finish());
	stale_must(cuMemFree_v2(addr), "cuMemFree");
	if (neighbour)
		stale_must(cuMemFree_v2(neighbour), "cuMemFree");
	card_close(card);
	return 0;
}
