/* SPDX-License-Identifier: MIT */
/* The cache on the scripted module: see kmod_test.h. */
#include "tests/unit/support/kmod_test.h"

static void begin_with(const char *backend)
{
	setenv("PINDOWN_BACKEND", backend, 1);
	fake_kmod_load();
	cache_begin();
}

void begin_kmod(void)
{
	begin_with("kmod");
}

void begin_auto(void)
{
	begin_with("auto");
}

void end_kmod(void)
{
	cache_end();
	ck_assert_uint_eq(fake_kmod_pins(), 0);
}

uint64_t part(unsigned i)
{
	return BASE + i * PART;
}

void map_parts(void)
{
	for (unsigned i = 0; i < PARTS; i++)
		watched_alloc(part(i), PART, FAKE_VMM);
}

void freed_unseen(uint64_t addr)
{
	ck_assert_int_eq(fake_free(addr), FAKE_SUCCESS);
	fake_kmod_revoke(addr);
}
