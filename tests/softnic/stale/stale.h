/* SPDX-License-Identifier: MIT */
/*
 * Programs whose middleware keeps a registration longer than its memory lives. Each library here
 * models the cache of one middleware, as its public issues describe it; program.c is the program
 * above it, which frees early; card.c moves the bytes. check-stale says what must be seen.
 */
#ifndef STALE_H
#define STALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "hook/cuda/abi.h"

/* The part of a registration that an operation needs, and that a peer gets. */
struct keys {
	uint32_t lkey, rkey;
};

/* How the middleware's libraries register. */
struct road {
	struct ibv_pd *pd;
	bool dmabuf;
};

struct middleware {
	const char *name;
	unsigned pieces; /* of one allocation, registered one by one */
	/*
	 * The program uses the keys that it got before the free: a peer has them, or a request that
	 * was prepared. Otherwise it asks the cache again.
	 */
	bool keeps_keys;
	bool remote; /* a peer reads the memory; otherwise the owner sends it */
	/* The registration for an operation, of the cache or new. false: it failed. */
	bool (*find)(const struct road *road, CUdeviceptr addr, size_t length, struct keys *keys);
	/* The middleware's hook, in front of the free; NULL: it has none. */
	void (*freed)(CUdeviceptr addr, size_t length);
	/* Deregisters everything; the number of errors. */
	unsigned (*finish)(void);
};
__attribute__((visibility("default"))) const struct middleware *stale_middleware(void);

static inline void stale_must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %d\n", what, (int)result);
	exit(1);
}

/* ---- cache.c: what the libraries share ------------------------------------------------------ */

#define STALE_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct entry {
	struct ibv_mr *mr;
	CUdeviceptr addr;
	size_t length;
	unsigned long long buffer_id;
	bool invalid;
};

/* Entries are in no order, except where there is a limit: then the least recently used is first. */
struct cache {
	unsigned limit; /* 0: none */
	unsigned count, capacity;
	struct entry *entries;
};

struct entry *stale_find(struct cache *cache, CUdeviceptr addr, size_t length);
struct entry *stale_add(struct cache *cache, const struct road *road, CUdeviceptr addr,
			size_t length);
/* The entry, or a new one; one whose memory was freed is removed, as its buffer id tells. */
struct entry *stale_find_checked(struct cache *cache, const struct road *road, CUdeviceptr addr,
				 size_t length);
/* Both: the number of errors. */
unsigned stale_remove(struct cache *cache, struct entry *entry);
unsigned stale_remove_all(struct cache *cache);
/* Is there an entry? */
bool stale_give(const struct entry *entry, struct keys *keys);

/* ---- card.c --------------------------------------------------------------------------------- */

struct card;
struct card *card_open(size_t length);
struct ibv_pd *card_pd(struct card *card);
/* Moves the bytes at `addr` into the card's buffer of host memory; how the operation completed. */
enum ibv_wc_status card_move(struct card *card, const struct keys *keys, CUdeviceptr addr,
			     size_t length, bool remote);
const uint8_t *card_bytes(const struct card *card);
void card_close(struct card *card);

#endif
