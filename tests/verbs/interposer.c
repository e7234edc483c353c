/* SPDX-License-Identifier: MIT */
/* A preload of another project: counts registrations and passes them to the next definition. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "hook/verbs/abi.h"

#define EXPORT __attribute__((visibility("default")))

static unsigned calls;

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	static typeof(ibv_reg_mr) *next;

	if (!next)
		next = INTERPOSER_LOOK("ibv_reg_mr");
	calls++;
	return next(pd, addr, length, access);
}

__attribute__((destructor)) static void tell(void)
{
	printf("interposer: %u\n", calls);
}
