/* SPDX-License-Identifier: MIT */
/*
 * A pool gives pieces back and gets others while threads use it, and an export of its memory begins
 * with a piece. The drivers of an H200 and an H100 have now and then refused memory of a pool that
 * nobody freed. So the driver is asked again where the piece begins.
 *
 * Three times at once, which takes less than a tenth of a millisecond. With many threads the pool
 * may still be changing then; so there are more tries, and pauses between them, which grow. During
 * a pause there is no flight, so that a free of the memory need not wait.
 *
 * Other refusals are for ever, as of a pool that another process has made, and the driver gives
 * the same error. To a program that asks for such memory again and again, the pauses of 4 ms would
 * be most of what it does. So after a final refusal there are no pauses for a second, of whatever
 * memory: whether a pool can be exported differs between devices, pools and drivers, and to
 * remember it for each would not tell when it changes. In that second a get may be refused that a
 * pause would have helped; on the GPUs such gets were a few in a million.
 */
#include "cache/pin/refusal.h"

#include "cache/base/thread/lock.h"
#include "cache/base/process/system.h"
#include "cache/base/visible.h"
#include "cache/driver/cuda_abi.h"

#define TRIES_AT_ONCE  3
#define PAUSES	       7
#define FIRST_PAUSE_NS 32000u /* each is twice as long as the one before */
#define PATIENCE_NS    1000000000u

static uint64_t no_pause_until; /* monotonic ns */

static bool is_over(unsigned refusals)
{
	uint64_t now = pdn_sys_clock_monotonic();

	/* Relaxed: nothing depends on it but the time that this takes. */
	if (refusals < TRIES_AT_ONCE + PAUSES)
		return now < __atomic_load_n(&no_pause_until, __ATOMIC_RELAXED);
	__atomic_store_n(&no_pause_until, now + PATIENCE_NS, __ATOMIC_RELAXED);
	return true;
}

bool pdn_refusal_may_pass(struct pdn_attempt *a, int result)
{
	unsigned refusals = a->refusals;

	if (result != PINDOWN_ERR_DRIVER || !a->what.pool ||
	    a->driver_error != CUDA_ERROR_INVALID_VALUE)
		return false;
	if (refusals >= TRIES_AT_ONCE && (a->flight.nowait || is_over(refusals)))
		return false;
	a->refusals++;
	pdn_flight_end_unlocked(&a->flight);
	if (refusals >= TRIES_AT_ONCE)
		pdn_sys_sleep((uint64_t)FIRST_PAUSE_NS << (refusals - TRIES_AT_ONCE));
	return true;
}
