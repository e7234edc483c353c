/* SPDX-License-Identifier: MIT */
/*
 * program mr|dmabuf: moves a buffer through the middleware's cache, frees it early, allocates
 * another one, which the driver puts at the same address, and moves that. Each line of the output
 * is a fact that check-stale asks for. Exit status 1: the test itself went wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stale.h"

#define PIECE  ((size_t)1 << 20)
#define PIECES 4
#define BYTES  (PIECES * PIECE)

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %d\n", what, (int)result);
	exit(1);
}

static size_t free_memory(void)
{
	size_t left, all;

	must(cuMemGetInfo_v2(&left, &all), "cuMemGetInfo");
	return left;
}

static uint8_t pattern(unsigned seed, size_t i)
{
	return (uint8_t)(seed * 37 + i * 7 + (i >> 8));
}

static CUdeviceptr allocate(unsigned seed)
{
	uint8_t *bytes = malloc(BYTES);
	CUdeviceptr addr = 0;

	if (!bytes)
		exit(1);
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = pattern(seed, i);
	must(cuMemAlloc_v2(&addr, BYTES), "cuMemAlloc");
	must(cuMemcpyHtoD_v2(addr, bytes, BYTES), "cuMemcpyHtoD");
	free(bytes);
	return addr;
}

static bool arrived(const struct card *card, unsigned seed, size_t offset, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (card_bytes(card)[i] != pattern(seed, offset + i))
			return false;
	return true;
}

static const struct middleware *middleware;
static struct card *card;
static struct road road;

/* Each piece of the buffer; asks: the cache is asked, otherwise the keys are used as they are. */
static void move_all(const char *what, CUdeviceptr addr, unsigned seed, struct keys *keys,
		     bool asks)
{
	size_t length = BYTES / middleware->pieces;

	for (unsigned i = 0; i < middleware->pieces; i++) {
		size_t offset = i * length;
		enum ibv_wc_status status;

		if (asks && !middleware->find(&road, addr + offset, length, &keys[i])) {
			perror("no registration");
			exit(1);
		}
		status = card_move(card, &keys[i], addr + offset, length, middleware->remote);
		if (status == IBV_WC_SUCCESS)
			printf("%s: %s\n", what,
			       arrived(card, seed, offset, length) ? "arrived" : "wrong bytes");
		else
			printf("%s: %s\n", what, ibv_wc_status_str(status));
	}
}

int main(int argc, char **argv)
{
	struct keys keys[PIECES];
	CUcontext context;
	CUdeviceptr addr, again;
	size_t before, after;

	if (argc != 2 || (strcmp(argv[1], "mr") && strcmp(argv[1], "dmabuf")))
		return 2;
	middleware = stale_middleware();
	must(cuInit(0), "cuInit");
	must(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
	card = card_open(BYTES);
	road = (struct road){card_pd(card), !strcmp(argv[1], "dmabuf")};

	addr = allocate(1);
	move_all("first", addr, 1, keys, true);
	before = free_memory();
	if (middleware->freed)
		middleware->freed(addr, BYTES);
	must(cuMemFree_v2(addr), "cuMemFree");
	after = free_memory();
	printf("came back: %s\n", after - before >= BYTES ? "yes" : "no");

	again = allocate(2);
	printf("same address: %s\n", again == addr ? "yes" : "no");
	if (middleware->keeps_keys)
		move_all("old keys", again, 2, keys, false);
	move_all("second", again, 2, keys, true);

	printf("deregistration errors: %u\n", middleware->finish());
	must(cuMemFree_v2(again), "cuMemFree");
	card_close(card);
	return 0;
}
