/* SPDX-License-Identifier: MIT */
/*
 * two mr|dmabuf: one middleware registers a buffer and deregisters it, then another one registers
 * it, which pindown answers with the same registration of the card. The program frees the buffer
 * then: only the second middleware has a registration of it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stale.h"

#define BYTES ((size_t)1 << 20)

static const struct middleware *load(const char *name)
{
	__typeof__(&stale_middleware) get = NULL;
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (library)
		*(void **)&get = dlsym(library, "stale_middleware");
	if (!get) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return get();
}

int main(int argc, char **argv)
{
	const struct middleware *first = load("libstale_ucx.so"), *second;
	struct card *card;
	struct road road;
	struct keys keys;
	CUcontext context;
	CUdeviceptr addr;

	second = load("libstale_nccl.so");
	if (argc != 2 || cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&addr, BYTES))
		return 1;
	card = card_open(BYTES);
	road = (struct road){card_pd(card), !strcmp(argv[1], "dmabuf")};
	if (!first->find(&road, addr, BYTES, &keys) || first->finish() ||
	    !second->find(&road, addr, BYTES, &keys))
		return 1;
	if (card_move(card, &keys, addr, BYTES, true) != IBV_WC_SUCCESS || cuMemFree_v2(addr) ||
	    second->finish())
		return 1;
	card_close(card);
	return 0;
}
