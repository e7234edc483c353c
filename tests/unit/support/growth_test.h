/* SPDX-License-Identifier: MIT */
/* What the tests of regions that are replaced by wider ones share: memory in several mappings. */
#ifndef GROWTH_TEST_H
#define GROWTH_TEST_H

#include "tests/unit/support/cache_test.h"

/* Four mappings in one reservation. */
#define SEGMENT	   (BASE + GIB(1))
#define PIECE	   MIB(2)
#define MAPPING(n) (SEGMENT + (uint64_t)(n)*PIECE)

/* Memory that is not among them. */
#define OTHER (BASE + MIB(128))

void map_segment(void);
void unmap_segment(void);

/* The region, which lies over these mappings. */
pindown_region *get_over(uint64_t addr, uint64_t length, unsigned first, unsigned count);

/* The first two mappings are pinned, and a window crosses into the third. */
void pin_first_two(void);
pindown_region *cross(unsigned first, unsigned count);

/* Two windows of an allocation of 16 MiB at OTHER, where 8 can be pinned. */
void pin_two_windows(void);

#endif
