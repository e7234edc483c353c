/* SPDX-License-Identifier: MIT */
/* Pins that meet frees, and pins of the same memory. race.h says how they notice each other. */
#include "cache/account.h"
#include "cache/attempt.h"
#include "cache/base/barrier.h"
#include "cache/base/lock.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"

#define MAX_LOSSES 100 /* Give up with BUSY after this many lost races. */

bool pdn_is_same_buffer(const struct pdn_attempt *a)
{
	return pdn_driver_compare(a->what.memory.base, a->what.memory.end, a->what.buffer_id,
				  a->what.others) == PDN_TRUE;
}

/*
 * Another thread is freeing the memory to be pinned. Wait without a flight, or the free would wait
 * for this thread in turn.
 */
static int PDN_RARE wait_for_free(struct pdn_attempt *a)
{
	struct pdn_memory memory = pdn_growth_whole(&a->what);

	pdn_flight_end_unlocked(&a->flight);
	PDN_POINT(PIN_WAITING, a->addr);
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	return pdn_guard_wait(&memory, pdn_race_deadline()) ? PDN_AGAIN : PINDOWN_ERR_TIMED_OUT;
}

/*
 * Another thread may be freeing memory in [begin, end), which the driver would be asked about.
 * Without a flight, as above.
 */
static int PDN_RARE wait_before_asking(struct pdn_attempt *a, uint64_t begin, uint64_t end)
{
	pdn_flight_end_unlocked(&a->flight);
	PDN_POINT(PIN_WAITING, a->addr);
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	a->waits++;
	return pdn_guard_wait_near(begin, end, pdn_race_deadline()) ? PDN_AGAIN
								    : PINDOWN_ERR_TIMED_OUT;
}

int PDN_RARE pdn_attempt_wait_before_asking(struct pdn_attempt *a)
{
	return wait_before_asking(a, a->growth.base, a->growth.end);
}

#define MAX_WAITS 4

/*
 * Some guard is up. What may be there is as a rule a free of other memory: it is waited for a few
 * times, and a get that must not wait takes it for one.
 */
static bool PDN_RARE must_wait(const struct pdn_attempt *a, uint64_t begin, uint64_t end)
{
	enum pdn_nearness near = pdn_guard_near(begin, end);

	return near == PDN_GUARD_THERE ||
	       (near == PDN_GUARD_MAYBE_THERE && a->waits < MAX_WAITS && !a->flight.nowait);
}

bool PDN_RARE pdn_attempt_must_wait(const struct pdn_attempt *a)
{
	return must_wait(a, a->growth.base, a->growth.end);
}

int PDN_RARE pdn_attempt_asks_about_neighbours(struct pdn_attempt *a)
{
	uint64_t begin = a->pin.base, end = begin + a->pin.length;

	if (!pdn_flight_reaches_over(&a->flight))
		return PINDOWN_OK;
	pdn_flight_asks(&a->flight, begin, end);
	if (!pdn_guard_any(pdn_heavy_barrier()) || !must_wait(a, begin, end))
		return PINDOWN_OK;
	return wait_before_asking(a, begin, end);
}

int PDN_RARE pdn_attempt_narrower(struct pdn_attempt *a)
{
	pdn_flight_end_unlocked(&a->flight);
	return PDN_AGAIN;
}

/* A wide attempt meets frees of all the memory that it takes in, so not too many are made. */
#define WIDE_LOSSES 4

int PDN_RARE pdn_attempt_again(struct pdn_attempt *a)
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

/*
 * With mappings beside the request, up to the wanted size, the driver is asked about memory that
 * the program frees as it likes.
 */
bool PDN_RARE pdn_attempt_may_ask_wider(struct pdn_attempt *a)
{
	uint64_t more = a->growth.size, begin = a->growth.base, end = a->growth.end + more;

	begin = begin > more ? begin - more - 1 : 0;
	pdn_flight_asks(&a->flight, begin, end);
	if (!pdn_guard_any(pdn_heavy_barrier()))
		return true;
	a->frees_before = true;
	return pdn_guard_near(begin, end) == PDN_NO_GUARD_NEAR;
}

/*
 * Frees that began before the flight said what it pins were not compared with that. A free that is
 * still under way has its guard up. A free that is over has changed the buffer id, if it was a free
 * of this memory; else the memory is the one that the driver described, and the next free will be
 * compared with it. In this order: a free that ends between the two looks is seen by the second.
 *
 * PDN_AGAIN, or a result: the flight has ended.
 */
int PDN_RARE pdn_attempt_look_for_frees(struct pdn_attempt *a)
{
	struct pdn_memory memory = pdn_growth_whole(&a->what);
	unsigned guarded = pdn_guard_on(&memory);

	/* The request's own memory need not be what ends. */
	if (guarded != PDN_UNGUARDED && pdn_growth_shrinks(&a->growth, false))
		return pdn_attempt_narrower(a);
	if (guarded & PDN_GUARDED_BY_SELF) {
		/* A subscriber asks for the memory that is about to end. */
		pdn_flight_end_unlocked(&a->flight);
		return PINDOWN_ERR_BUSY;
	}
	if (guarded)
		return wait_for_free(a);
	PDN_POINT(PIN_UNGUARDED, a->addr);
	return pdn_is_same_buffer(a) ? PINDOWN_OK : pdn_attempt_again(a);
}

/*
 * Another thread is pinning the same: when that has settled, the memory is in the index, or free
 * again. Until then the driver is not asked again, and pins of other memory that settle are no
 * reason to. Whoever waits sleeps, however slow the machine is, and gives up when this one wait has
 * taken too long.
 */
int PDN_RARE pdn_attempt_wait_for_company(struct pdn_attempt *a)
{
	uint64_t deadline = pdn_race_deadline();
	bool in_time = true, pins;

	PDN_POINT(PIN_DUPLICATE, a->addr);
	pdn_lock();
	pdn_flight_end(&a->flight);
	while ((pins = pdn_flight_is_duplicate(&a->flight)) && in_time && !a->flight.nowait)
		in_time = pdn_wait_pending(deadline);
	pdn_unlock();
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	return pins ? PINDOWN_ERR_TIMED_OUT : PDN_AGAIN;
}
