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
#include <unistd.h>

#include <infiniband/verbs.h>

#include "hook/cuda/abi.h"

/* What an operation needs of a registration, and what a peer is given of it. */
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

/* ---- what the libraries share --------------------------------------------------------------- */

#define STALE_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* By the address, or by a dma-buf of its own, which is closed right after the import. */
static inline struct ibv_mr *stale_register(const struct road *road, CUdeviceptr addr,
					    size_t length)
{
	struct ibv_mr *mr;
	int fd;

	if (!road->dmabuf)
		return ibv_reg_mr(road->pd, (void *)(uintptr_t)addr, length, STALE_ACCESS);
	if (cuMemGetHandleForAddressRange(&fd, addr, length, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					  0) != CUDA_SUCCESS)
		return NULL;
	mr = ibv_reg_dmabuf_mr(road->pd, 0, length, addr, fd, STALE_ACCESS);
	close(fd);
	return mr;
}

#define STALE_ENTRIES 16

/* An entry of a cache. */
struct entry {
	struct ibv_mr *mr; /* NULL: free */
	CUdeviceptr addr;
	size_t length;
	unsigned long long buffer_id;
	bool invalid;
};

static inline struct entry *stale_find(struct entry *entries, CUdeviceptr addr, size_t length)
{
	for (struct entry *entry = entries; entry < entries + STALE_ENTRIES; entry++)
		if (entry->mr && addr >= entry->addr &&
		    addr + length <= entry->addr + entry->length)
			return entry;
	return NULL;
}

static inline struct entry *stale_add(struct entry *entries, const struct road *road,
				      CUdeviceptr addr, size_t length)
{
	for (struct entry *entry = entries; entry < entries + STALE_ENTRIES; entry++)
		if (!entry->mr) {
			*entry = (struct entry){stale_register(road, addr, length), addr, length, 0,
						false};
			return entry->mr ? entry : NULL;
		}
	return NULL;
}

/* The number of errors. */
static inline unsigned stale_remove(struct entry *entry)
{
	struct ibv_mr *mr = entry->mr;

	entry->mr = NULL;
	return mr && ibv_dereg_mr(mr) != 0;
}

static inline unsigned stale_remove_all(struct entry *entries)
{
	unsigned errors = 0;

	for (unsigned i = 0; i < STALE_ENTRIES; i++)
		errors += stale_remove(&entries[i]);
	return errors;
}

static inline bool stale_give(const struct entry *entry, struct keys *keys)
{
	if (entry)
		*keys = (struct keys){entry->mr->lkey, entry->mr->rkey};
	return entry;
}

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
