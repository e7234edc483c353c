/* SPDX-License-Identifier: MIT */
/* What the tests of the cache on the scripted module share: memory in several mappings. */
#ifndef KMOD_TEST_H
#define KMOD_TEST_H

#include "tests/unit/support/cache_test.h"
#include "tests/unit/support/fake_kmod.h"

#define PARTS 3u
#define PART  MIB(2)
#define ALL   (PARTS * PART)

/* Before and after a test with PINDOWN_BACKEND=kmod, or =auto. */
void begin_kmod(void);
void begin_auto(void);
void end_kmod(void);

uint64_t part(unsigned i);
void map_parts(void);

/* Without the cache's knowledge; the module revokes its pins. */
void freed_unseen(uint64_t addr);

#endif
