/* SPDX-License-Identifier: MIT */
/* For the tests of the API: consumers, gets that do not wait, visitors. */
#ifndef API_TEST_H
#define API_TEST_H

#include <setjmp.h>

#include "tests/unit/support/objects_test.h"

/* The books of consumers that open_wide() adds. */
extern struct books wide;
int open_wide(uint64_t rights, uint64_t flags);

/* With PINDOWN_GET_NOWAIT: the result. */
int attach_nowait(uint64_t addr, uint64_t owner);

/* Two mappings side by side, of which the first is pinned. */
#define SEGMENT (BASE + GIB(1))
#define PIECE	MIB(2)
void pin_half_a_segment(void);

struct pindown_consumer_stats stats_of(int id);

/* ---- visitors ---- */

struct visits {
	struct pindown_region_info regions[8];
	struct pindown_object_info objects[8];
	int count, stop_at;
	void (*act)(void);
	jmp_buf *out;
};

int see_region(const struct pindown_region_info *info, void *arg);
int see_object(const struct pindown_object_info *info, void *arg);

#endif
