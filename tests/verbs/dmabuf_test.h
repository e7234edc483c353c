/* SPDX-License-Identifier: MIT */
/* What the tests of ibv_reg_dmabuf_mr share: memory that the program has exported itself. */
#ifndef DMABUF_TEST_H
#define DMABUF_TEST_H

#include "verbs_test.h"

extern CUdeviceptr p; /* 4 MiB */
extern int fd;	      /* all of it */

int export_range(CUdeviceptr addr, size_t size, unsigned long long flags);
void begin_with_export(void);

/* Registers in p's own addresses; the ibv_mr is as libibverbs makes it. */
struct ibv_mr *reg(struct ibv_pd *in, uint64_t offset, size_t length, uint64_t iova, int by,
		   int access);
struct ibv_mr *reg_at(uint64_t offset, size_t length);
void once(uint64_t offset, size_t length);

/* Did the last call reach libibverbs as the program made it? */
bool was_untouched(struct ibv_pd *in, uint64_t offset, size_t length, uint64_t iova, int by,
		   int access);

#endif
