/* SPDX-License-Identifier: MIT */
/*
 * Registering memory for a network card is expensive, so the transport keeps registrations and
 * finds them again by address. By itself it has no way to learn that the memory behind an address
 * was freed. Where pindown is in the process it asks pindown instead.
 *
 * A registration is a dma-buf of the driver's.
 */
#define _GNU_SOURCE
#include "demo_transport.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "demo_card.h"
#include "cache/pindown.h"

#define EXPORT __attribute__((visibility("default")))

/* The part of a registration that a transfer needs, whichever cache keeps it. */
struct registration {
	CUdeviceptr at;
	size_t size;
	int fd;		       /* the dma-buf */
	uint64_t offset;       /* of `at` in it */
	unsigned long long id; /* of the memory that was registered */
	struct registration *next;
};

static struct registration *cache;

static unsigned long long memory_id(CUdeviceptr at)
{
	unsigned long long id = 0;

	cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
	return id;
}

/* ---- the card ------------------------------------------------------------------------------- */

static void card_reads(const struct registration *memory, struct demo_sent *sent)
{
	sent->right_memory = memory->id == memory_id(memory->at);
	sent->readable = demo_card_read(memory->fd, memory->offset, sent->first_bytes,
					sizeof(sent->first_bytes));
}

/* ---- the transport's own registration cache ------------------------------------------------- */

static struct registration *find_registration(CUdeviceptr at, size_t size)
{
	struct registration *known;

	for (known = cache; known != NULL; known = known->next)
		if (at == known->at && size <= known->size)
			return known;
	return NULL;
}

static struct registration *register_memory(CUdeviceptr at, size_t size)
{
	struct registration *made = calloc(1, sizeof(*made));
	CUresult result;

	if (made == NULL)
		return NULL;
	result = cuMemGetHandleForAddressRange(&made->fd, at, size,
					       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "transport: can't register GPU memory: error %d\n", result);
		free(made);
		return NULL;
	}
	made->at = at;
	made->size = size;
	made->id = memory_id(at);
	made->next = cache;
	cache = made;
	return made;
}

static bool send_by_own_cache(CUdeviceptr at, size_t size, struct demo_sent *sent)
{
	struct registration *memory = find_registration(at, size);

	sent->from_cache = memory != NULL;
	if (memory == NULL)
		memory = register_memory(at, size);
	if (memory == NULL)
		return false;
	card_reads(memory, sent);
	return true;
}

EXPORT void demo_close(void)
{
	struct registration *gone;

	while ((gone = cache) != NULL) {
		cache = gone->next;
		close(gone->fd);
		free(gone);
	}
}

/* ---- pindown's cache, if it is in the process ------------------------------------------------ */

static struct {
	__typeof__(&pindown_get) get;
	__typeof__(&pindown_put) put;
	__typeof__(&pindown_region_dmabuf) dmabuf;
	__typeof__(&pindown_region_buffer_id) id;
	__typeof__(&pindown_stats) stats;
	__typeof__(&pindown_strerror) strerror;
} pindown;

static bool find_pindown(void)
{
	if (pindown.get == NULL) {
		pindown.put = dlsym(RTLD_DEFAULT, "pindown_put");
		pindown.dmabuf = dlsym(RTLD_DEFAULT, "pindown_region_dmabuf");
		pindown.id = dlsym(RTLD_DEFAULT, "pindown_region_buffer_id");
		pindown.stats = dlsym(RTLD_DEFAULT, "pindown_stats");
		pindown.strerror = dlsym(RTLD_DEFAULT, "pindown_strerror");
		pindown.get = dlsym(RTLD_DEFAULT, "pindown_get");
	}
	return pindown.get != NULL;
}

/* For the demo's output; a transport that only sends does not need it. */
static uint64_t hits_so_far(void)
{
	struct pindown_stats stats = {0};

	pindown.stats(&stats, sizeof(stats), -1);
	return stats.hits;
}

static bool send_by_pindown(CUdeviceptr at, size_t size, struct demo_sent *sent)
{
	struct registration memory = {.at = at, .size = size};
	uint64_t hits = hits_so_far();
	pindown_region *region;
	int result = pindown.get(at, size, 0, &region);

	if (result == PINDOWN_OK) {
		result = pindown.dmabuf(region, at, &memory.fd, &memory.offset);
		memory.id = pindown.id(region);
		if (result == PINDOWN_OK)
			card_reads(&memory, sent);
		pindown.put(region);
	}
	sent->from_cache = hits_so_far() != hits;
	if (result != PINDOWN_OK)
		fprintf(stderr, "transport: %s\n", pindown.strerror(result));
	return result == PINDOWN_OK;
}

EXPORT bool demo_send(CUdeviceptr at, size_t size, struct demo_sent *sent)
{
	memset(sent, 0, sizeof(*sent));
	return find_pindown() ? send_by_pindown(at, size, sent) : send_by_own_cache(at, size, sent);
}
