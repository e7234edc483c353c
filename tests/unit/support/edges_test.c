/* SPDX-License-Identifier: MIT */
#include "tests/unit/support/edges_test.h"

#include "cache/end/work.h"

struct other other;

static void act_now(void *arg)
{
	(void)arg;
	other.act(other.base);
}

void start_other(void *arg)
{
	(void)arg;
	other.old_id = fake_id(other.base);
	worker_start(&other.worker, act_now, NULL);
	worker_wait_idle(&other.worker);
}

/* ---- what the other thread may do ---- */

static void end_then(pdn_guard guard, void (*real)(uint64_t), uint64_t base)
{
	other.exports_after_end = fake_open_exports_of(other.old_id);
	real(base);
	pdn_ended(guard);
}

static void nothing(uint64_t base)
{
	(void)base;
}

void really_free(uint64_t base)
{
	ck_assert_int_eq(fake_free(base), FAKE_SUCCESS);
}

void really_free_and_reuse(uint64_t base)
{
	really_free(base);
	fake_alloc(base, LENGTH, FAKE_LINEAR);
}

static void really_destroy_context(uint64_t base)
{
	(void)base;
	fake_context_destroy(FAKE_CONTEXT);
}

void free_it(uint64_t base)
{
	end_then(pdn_end_range(base, 0), really_free, base);
}

void unmap_it(uint64_t base)
{
	end_then(pdn_end_range(base, LENGTH), really_free, base);
}

void fail_to_free_it(uint64_t base)
{
	end_then(pdn_end_range(base, 0), nothing, base);
}

void free_and_reuse_it(uint64_t base)
{
	end_then(pdn_end_range(base, 0), really_free_and_reuse, base);
}

/* The driver keeps the memory: its stream's turn has not come. */
void free_it_later(uint64_t base)
{
	pdn_guard guard = pdn_end_in_order(base);

	pdn_ends_later(base, LENGTH);
	end_then(guard, nothing, base);
}

void destroy_its_context(uint64_t base)
{
	end_then(pdn_end_context(FAKE_CONTEXT), really_destroy_context, base);
}

void reset_its_device(uint64_t base)
{
	end_then(pdn_end_device(0), really_destroy_context, base);
}

void end_everything(uint64_t base)
{
	end_then(pdn_end_all(), really_free, base);
}

/* ---- the sweep ---- */

bool get_racing_at(unsigned edge, uint64_t base, void (*act)(uint64_t), int *result,
		   pindown_region **region)
{
	other.act = act;
	other.base = base;
	other.edge = edge;
	other.exports_after_end = 0;
	*region = NULL;
	fake_at_edge(FAKE_CALLS, edge, start_other, NULL);
	*result = pindown_get(base, LENGTH, 0, region);
	bool met = fake_edge_met();
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	if (met)
		worker_join(&other.worker);
	return met;
}

void assert_clean_after_race(void)
{
	ck_assert_msg(other.exports_after_end == 0, "edge %u: pinned still when the free went on",
		      other.edge);
	ck_assert_msg(fake_open_exports_of_dead() == 0, "edge %u: dead memory is pinned",
		      other.edge);
	assert_books_balance();
}

void sweep_losing(void (*act)(uint64_t), enum fake_kind kind)
{
	unsigned edge = 0;
	pindown_region *region;
	int result;

	for (;; edge++) {
		fake_alloc(BASE, LENGTH, kind);
		if (!get_racing_at(edge, BASE, act, &result, &region))
			break;
		ck_assert_msg(result == PINDOWN_ERR_NOT_DEVICE, "edge %u: %s", edge,
			      pindown_strerror(result));
		ck_assert(!is_cached(BASE, 1));
		ck_assert_uint_eq(stats().regions, 0);
		assert_clean_after_race();
	}
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_put(region);
	/*
	 * the questions about the memory, SYNC_MEMOPS, the export, the id again: at least two edges
	 * each
	 */
	ck_assert_uint_ge(edge, 8);
	ck_assert_uint_ge(stats().lost_races, 1);
}
