/* SPDX-License-Identifier: MIT */
/* Registrations that are held over a free: see retire_test.h. */
#include "retire_test.h"

struct ibv_mr *mr;

void begin_with(size_t size)
{
	begin();
	p = gpu_alloc(size);
	mr = must_register(pd, p, 4096, ALL_ACCESS);
}

void all_ended(unsigned ranges, uint64_t bytes)
{
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(stats().retired_ranges, ranges);
	ck_assert_uint_eq(stats().retired_bytes, bytes);
	ck_assert_uint_eq(stats().unprotected, 0);
	ck_assert_uint_eq(stats().escapes, 0);
}

void is_kept(void)
{
	ck_assert_uint_eq(recorder_open_mrs() + recorder_open_umems(), 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(stats().retired, 0);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().unprotected, 1);
}

void drop_ended(struct ibv_mr *ended)
{
	uint64_t calls = sim_calls_all();
	unsigned deregs = dereg_calls();

	must_deregister(ended);
	ck_assert_uint_eq(sim_calls_all(), calls);
	ck_assert_uint_eq(dereg_calls(), deregs);
}

void drop_kept(struct ibv_mr *kept)
{
	must_deregister(kept);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
