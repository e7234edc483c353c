/* SPDX-License-Identifier: MIT */
/* What the caches share: registrations in an array, found by their address. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stale.h"

/* By the address, or by a dma-buf of its own, which is closed right after the import. */
static struct ibv_mr *register_memory(const struct road *road, CUdeviceptr addr, size_t length)
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

struct entry *stale_find(struct cache *cache, CUdeviceptr addr, size_t length)
{
	for (unsigned i = 0; i < cache->count; i++) {
		struct entry *entry = &cache->entries[i], found = *entry;

		if (addr < found.addr || addr + length > found.addr + found.length)
			continue;
		if (!cache->limit)
			return entry;
		memmove(entry, entry + 1, (cache->count - 1 - i) * sizeof(found));
		cache->entries[cache->count - 1] = found;
		return &cache->entries[cache->count - 1];
	}
	return NULL;
}

unsigned stale_remove(struct cache *cache, struct entry *entry)
{
	struct ibv_mr *mr = entry->mr;
	struct entry *end = cache->entries + cache->count--;

	memmove(entry, entry + 1, (end - entry - 1) * sizeof(*entry));
	return ibv_dereg_mr(mr) != 0;
}

unsigned stale_remove_all(struct cache *cache)
{
	unsigned errors = 0;

	while (cache->count)
		errors += stale_remove(cache, cache->entries + cache->count - 1);
	free(cache->entries);
	*cache = (struct cache){.limit = cache->limit};
	return errors;
}

/* At the limit, and when the card refuses, the least recently used ones go. */
struct entry *stale_add(struct cache *cache, const struct road *road, CUdeviceptr addr,
			size_t length)
{
	struct entry entry = {.addr = addr, .length = length};

	if (cache->limit && cache->count == cache->limit)
		stale_remove(cache, cache->entries);
	while (!(entry.mr = register_memory(road, addr, length)) && cache->limit && cache->count)
		stale_remove(cache, cache->entries);
	if (!entry.mr)
		return NULL;
	if (cache->count == cache->capacity) {
		cache->capacity = cache->capacity * 2 + 16;
		cache->entries = realloc(cache->entries, cache->capacity * sizeof(entry));
		if (!cache->entries)
			abort();
	}
	cache->entries[cache->count] = entry;
	return &cache->entries[cache->count++];
}

static unsigned long long buffer_id_of(CUdeviceptr addr)
{
	unsigned long long id = 0;

	cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, addr);
	return id;
}

struct entry *stale_find_checked(struct cache *cache, const struct road *road, CUdeviceptr addr,
				 size_t length)
{
	struct entry *entry = stale_find(cache, addr, length);

	if (entry && entry->buffer_id != buffer_id_of(addr)) {
		stale_remove(cache, entry);
		entry = NULL;
	}
	if (!entry) {
		entry = stale_add(cache, road, addr, length);
		if (entry)
			entry->buffer_id = buffer_id_of(addr);
	}
	return entry;
}

bool stale_give(const struct entry *entry, struct keys *keys)
{
	if (entry)
		*keys = (struct keys){entry->mr->lkey, entry->mr->rkey};
	return entry;
}
