// SPDX-License-Identifier: MIT
/* The transport of halo.c: pins each buffer that it sends, through pindown. */
#define _GNU_SOURCE
#include "halo_transport.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/pindown.h"

#define EXPORT __attribute__((visibility("default")))

struct transfer {
	pindown_region *region; /* held while the card reads the memory */
};

static int register_memory(struct transfer *transfer, CUdeviceptr at, size_t size)
{
	static __typeof__(&pindown_get) get;

	if (!get)
		get = dlsym(RTLD_DEFAULT, "pindown_get");
	return get ? get(at, size, 0, &transfer->region) : PINDOWN_ERR_DISABLED;
}

EXPORT struct transfer *transport_send(CUdeviceptr at, size_t size)
{
	struct transfer *transfer = calloc(1, sizeof(*transfer));
	int result = transfer ? register_memory(transfer, at, size) : PINDOWN_ERR_NO_MEMORY;

	if (result != PINDOWN_OK) {
		fprintf(stderr, "transport: can't register GPU memory: error %d\n", result);
		free(transfer);
		return NULL;
	}
	return transfer;
}

EXPORT void transport_wait(struct transfer *transfer)
{
	static __typeof__(&pindown_put) put;

	if (!put)
		put = dlsym(RTLD_DEFAULT, "pindown_put");
	if (transfer && put)
		put(transfer->region);
	free(transfer);
}
