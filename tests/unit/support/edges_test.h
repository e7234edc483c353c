/* SPDX-License-Identifier: MIT */
/* A get during which another thread acts, at one edge of a driver call: see test_races_pin.c. */
#ifndef EDGES_TEST_H
#define EDGES_TEST_H

#include "tests/unit/support/cache_test.h"

#define LENGTH MIB(2)

/* The other thread: what it does, and the exports that were open after its end. */
extern struct other {
	void (*act)(uint64_t base);
	uint64_t base, old_id;
	struct worker worker;
	unsigned exports_after_end; /* of old_id, when pdn_end_*() had returned */
	unsigned edge;
} other;

/* Runs in the pinning thread, at the edge. */
void start_other(void *arg);

/* ---- what it may do ---- */

void really_free(uint64_t base);
void really_free_and_reuse(uint64_t base);
void free_it(uint64_t base);
void unmap_it(uint64_t base);
void fail_to_free_it(uint64_t base);
void free_and_reuse_it(uint64_t base);
void free_it_later(uint64_t base);
void destroy_its_context(uint64_t base);
void reset_its_device(uint64_t base);
void end_everything(uint64_t base);

/* ---- the sweep ---- */

/*
 * One get, during which the other thread starts at this edge. Returns false if the get has no such
 * edge.
 */
bool get_racing_at(unsigned edge, uint64_t base, void (*act)(uint64_t), int *result,
		   pindown_region **region);
void assert_clean_after_race(void);
/* The memory is gone for good, and so the get must fail. */
void sweep_losing(void (*act)(uint64_t), enum fake_kind kind);

#endif
