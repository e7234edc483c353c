/* SPDX-License-Identifier: MIT */
/* Many threads that are all there at once: see crowd.h. */
#include "tests/unit/support/crowd.h"

#include "cache/hit/region.h"

struct gate crowd_here, crowd_may_go[CROWD];
struct worker crowd[CROWD];

void crowd_get_and_stay(void *may_go)
{
	get_and_put(AT(0), 1);
	gate_open(&crowd_here);
	gate_wait(may_go);
}

void crowd_start(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		worker_start(&crowd[i], crowd_get_and_stay, &crowd_may_go[i]);
		gate_wait(&crowd_here);
	}
}

void crowd_end(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		gate_open(&crowd_may_go[i]);
	for (unsigned i = from; i < to; i++)
		worker_join(&crowd[i]);
}

void crowd_begin(void)
{
	gate_init(&crowd_here);
	for (unsigned i = 0; i < CROWD; i++)
		gate_init(&crowd_may_go[i]);
	fake_alloc(AT(0), PAGE, FAKE_LINEAR);
	fake_alloc(AT(1), PAGE, FAKE_LINEAR);
}

void crowd_move_orphans(void)
{
	for (unsigned i = 0; i < PDN_STRIPES / 16; i++) {
		get_and_put(AT(1), 1);
		pindown_invalidate(AT(1), PAGE);
	}
	ck_assert_uint_eq(pdn_stripe_orphans, 0);
}
