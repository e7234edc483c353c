/* SPDX-License-Identifier: MIT */
/* Memory in several mappings, and regions over some of them: see growth_test.h. */
#include "tests/unit/support/growth_test.h"

void map_segment(void)
{
	fake_reserved = SEGMENT;
	fake_reserved_size = MIB(8);
	for (unsigned n = 0; n < 4; n++)
		watched_alloc(MAPPING(n), PIECE, FAKE_VMM);
}

void unmap_segment(void)
{
	for (unsigned n = 0; n < 4; n++)
		ck_assert_int_eq(watched_unmap(MAPPING(n), PIECE), FAKE_SUCCESS);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}

pindown_region *get_over(uint64_t addr, uint64_t length, unsigned first, unsigned count)
{
	pindown_region *region = must_get(addr, length);

	ck_assert_uint_eq(pindown_region_base(region), MAPPING(first));
	ck_assert_uint_eq(pindown_region_length(region), count * PIECE);
	return region;
}

void pin_first_two(void)
{
	map_segment();
	pindown_put(get_over(MAPPING(0), 2 * PIECE, 0, 2));
}

pindown_region *cross(unsigned first, unsigned count)
{
	return get_over(MAPPING(2) - MIB(1), MIB(2), first, count);
}

void pin_two_windows(void)
{
	fake_alloc(OTHER, MIB(16), FAKE_LINEAR);
	fake_pin_space(MIB(8));
	get_and_put(OTHER + MIB(4), 1);
	get_and_put(OTHER + MIB(7), 1);
	ck_assert_uint_eq(stats().bytes, MIB(2));
}
