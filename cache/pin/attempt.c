/* SPDX-License-Identifier: MIT */
/* Pins that meet frees, and pins of the same memory. guard.h says how they notice each other. */
#include "cache/show/account.h"
#include "cache/pin/attempt.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"

#define MAX_LOSSES 100 /* Give up with BUSY after this many lost races. */

bool pdn_is_same_buffer(const struct pdn_attempt *a)
{
	return pdn_driver_compare(a->what.memory.base, a->what.memory.end, a->what.buffer_id,
				  a->what.mappings_hash) == PDN_TRUE;
}

int pdn_attempt_wait_for_frees(struct pdn_attempt *a)
{
	pdn_flight_end_unlocked(&a->flight);
	if (pdn_growth_shrinks(&a->growth, false))
		return PDN_AGAIN;
	PDN_POINT(PIN_WAITING, a->addr);
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	return pdn_flight_wait(&a->flight) ? PDN_AGAIN : PINDOWN_ERR_TIMED_OUT;
}

int pdn_attempt_reaches_neighbours(struct pdn_attempt *a)
{
	uint64_t begin = a->pin.base, end = begin + a->pin.length;

	if (pdn_flight_reach(&a->flight, begin, end) & PDN_GUARDED)
		return pdn_attempt_wait_for_frees(a);
	return PINDOWN_OK;
}

int pdn_attempt_narrower(struct pdn_attempt *a)
{
	pdn_flight_end_unlocked(&a->flight);
	return PDN_AGAIN;
}

/* A wide attempt meets frees of all the memory that it takes in, so not too many are made. */
#define WIDE_LOSSES 4

int pdn_attempt_again(struct pdn_attempt *a)
{
	if (a->losses % WIDE_LOSSES == WIDE_LOSSES - 1)
		pdn_growth_shrinks(&a->growth, false);
	a->was_refused = false;
	pdn_lock();
	pdn_flight_end(&a->flight);
	pdn_account_lost_race();
	pdn_unlock();
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	return ++a->losses < MAX_LOSSES ? PDN_AGAIN : PINDOWN_ERR_BUSY;
}

int pdn_attempt_asks_wider(struct pdn_attempt *a)
{
	uint64_t more = a->growth.size ? a->growth.size + 1 : 0, begin = a->growth.base;

	begin = begin > more ? begin - more : 0;
	if (pdn_flight_reach(&a->flight, begin, a->growth.end + more) == PDN_UNGUARDED)
		return PINDOWN_OK;
	return pdn_attempt_wait_for_frees(a);
}

int pdn_attempt_meets_own_free(struct pdn_attempt *a)
{
	if (!(pdn_guard_on(&a->flight.memory) & PDN_GUARDED_BY_SELF))
		return PINDOWN_OK;
	/* The request's own memory need not be what ends. */
	if (pdn_growth_shrinks(&a->growth, false))
		return pdn_attempt_narrower(a);
	pdn_flight_end_unlocked(&a->flight);
	return PINDOWN_ERR_BUSY;
}

/*
 * Another thread is pinning the same: when that is over, the memory is in the index, or free
 * again. Until then the driver is not asked again, and the end of pins of other memory is no
 * reason to. Whoever waits sleeps, however slow the machine is, and gives up when this one wait has
 * taken too long.
 */
int pdn_attempt_wait_for_same_pin(struct pdn_attempt *a)
{
	uint64_t deadline = pdn_race_deadline();
	bool in_time = true, pins;

	PDN_POINT(PIN_DUPLICATE, a->addr);
	pdn_lock();
	pdn_flight_end(&a->flight);
	while ((pins = pdn_flight_is_duplicate(&a->flight)) && in_time && !a->flight.nowait)
		in_time = pdn_wait_for_work(deadline);
	pdn_unlock();
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	return pins ? PINDOWN_ERR_TIMED_OUT : PDN_AGAIN;
}
