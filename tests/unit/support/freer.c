/* SPDX-License-Identifier: MIT */
/* A free in another thread, which may stop in the driver. */
#include "tests/unit/support/freer.h"

struct freer freer;

static void free_there(void *arg)
{
	(void)arg;
	pdn_guard guard = freer.end(freer.base);

	__atomic_store_n(&freer.is_in_driver, true, __ATOMIC_SEQ_CST);
	gate_open(&freer.inside);
	if (freer.stops)
		gate_wait(&freer.go);
	fake_free(freer.base);
	pdn_ended(guard);
}

void freer_starts(pdn_guard (*end)(uint64_t), uint64_t base, bool stops)
{
	gate_init(&freer.inside);
	gate_init(&freer.go);
	freer.end = end;
	freer.base = base;
	freer.stops = stops;
	freer.is_in_driver = false;
	worker_start(&freer.worker, free_there, NULL);
}

void freer_stops_in_driver(pdn_guard (*end)(uint64_t), uint64_t base)
{
	freer_starts(end, base, true);
	gate_wait(&freer.inside);
}

void freer_ends(void)
{
	if (freer.stops)
		gate_open(&freer.go);
	worker_join(&freer.worker);
}

pdn_guard free_it(uint64_t base)
{
	return pdn_end_range(base, 0);
}

pdn_guard free_in_order(uint64_t base)
{
	return pdn_end_in_order(base);
}

pdn_guard unmap_it(uint64_t base)
{
	return pdn_end_range(base, LENGTH);
}

pdn_guard destroy_its_context(uint64_t base)
{
	(void)base;
	return pdn_end_context(FAKE_CONTEXT);
}

pdn_guard end_everything(uint64_t base)
{
	(void)base;
	return pdn_end_all();
}

pdn_guard (*const ends[ENDS])(uint64_t) = {free_it, free_in_order, unmap_it, destroy_its_context,
					   end_everything};
