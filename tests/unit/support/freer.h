/* SPDX-License-Identifier: MIT */
/* A free in another thread, which may stop in the driver. */
#ifndef FREER_H
#define FREER_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/hook_events.h"
#include "tests/unit/support/cache_test.h"

#define LENGTH MIB(2)
#define AT(n)  (BASE + (n)*LENGTH)

extern struct freer {
	pdn_guard (*end)(uint64_t base);
	uint64_t base;
	bool stops;
	struct worker worker;
	struct gate inside, go;
	bool is_in_driver;
} freer;

/* It begins; if it stops, then in the driver, up to its end. */
void freer_starts(pdn_guard (*end)(uint64_t), uint64_t base, bool stops);
/* The same, and waits until it is there. */
void freer_stops_in_driver(pdn_guard (*end)(uint64_t), uint64_t base);
void freer_ends(void);

/* What it may end: the memory at `base`, or what that is a part of. */
pdn_guard free_it(uint64_t base);
pdn_guard free_in_order(uint64_t base);
pdn_guard unmap_it(uint64_t base);
pdn_guard destroy_its_context(uint64_t base);
pdn_guard end_everything(uint64_t base);

/* All of these. */
#define ENDS 5
extern pdn_guard (*const ends[ENDS])(uint64_t);

#endif
