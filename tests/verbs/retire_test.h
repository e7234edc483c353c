/* SPDX-License-Identifier: MIT */
/* What the tests of PINDOWN_HELD=retire share: registered memory, and what became of both. */
#ifndef RETIRE_TEST_H
#define RETIRE_TEST_H

#include "dmabuf_test.h"

extern struct ibv_mr *mr; /* of p */
void begin_with(size_t size);

static inline bool is_reserved(CUdeviceptr at, size_t size)
{
	return sim_is_reserved(at, size);
}

/* Nothing of what the program has freed is kept; so many ranges are retired. */
void all_ended(unsigned ranges, uint64_t bytes);

/* A registration is kept, the address is not, and that is counted. */
void is_kept(void);

/* It has ended already: nobody is asked for anything. */
void drop_ended(struct ibv_mr *ended);

void drop_kept(struct ibv_mr *kept);

#endif
