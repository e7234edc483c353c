/* SPDX-License-Identifier: MIT */
/*
 * Misses: ask the driver for the allocation at an address, pin it, and insert its region in the
 * index. If the memory is freed meanwhile, all of it is undone; guard.h says how that is noticed.
 * This calls attempt.c, pin_memory.c, refusal.c and commit.c, which do not call each other but for
 * the first.
 */
#include "cache/show/account.h"
#include "cache/pin/attempt.h"
#include "cache/backend/revocation.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"
#include "cache/pin/commit.h"
#include "cache/room/budget.h"
#include "cache/driver/cuda_abi.h"
#include "cache/room/evict.h"
#include "cache/hit/index.h"
#include "cache/end/kept.h"
#include "cache/trust/past.h"
#include "cache/pin/pin.h"
#include "cache/pin/pin_memory.h"
#include "cache/pin/refusal.h"
#include "cache/hit/region.h"
#include "cache/trace/writer/events.h"
#include "cache/trust/trust.h"

struct pindown_region *pdn_hold_locked(uint64_t addr, uint64_t length)
{
	uint32_t number = pdn_index_find(addr);
	struct pindown_region *region = &pdn_regions[number];

	if (!number || !pdn_state_is_live(pdn_state_of(pdn_region_number(region))) ||
	    !pdn_region_holds(region, addr, length))
		return NULL;
	pdn_hold(pdn_self_or_anonymous(), number);
	return region;
}

static void trace_pin(const struct pdn_attempt *a, int result)
{
	struct pdn_trace_region what = {
		.addr = a->what.memory.base,
		.size = a->what.memory.end - a->what.memory.base,
		.pin_addr = a->pin.base,
		.pin_size = a->pin.length,
		.buffer_id = a->what.buffer_id,
		.context = (uintptr_t)a->what.memory.context,
		.region = a->region ? pdn_region_number(a->region) : 0,
		.device = a->what.memory.device,
		.result = result,
		.flags = (uint16_t)((a->flags & PDN_REGION_VOLATILE ? PDN_TRACE_VOLATILE : 0) |
				    (a->flags & PDN_REGION_NO_SYNC ? PDN_TRACE_NO_SYNC : 0) |
				    (a->pin.fell_back ? PDN_TRACE_FELL_BACK : 0) |
				    (a->pin.pcie ? PDN_TRACE_PCIE : 0)),
	};

	pdn_trace_region(PDN_EV_PIN, &what, a->begin, pdn_ticks());
}

static int ask_driver(struct pdn_attempt *a)
{
	int result = pdn_growth_describe(&a->growth, &a->what, &a->driver_error);

	PDN_POINT(PIN_DESCRIBED, a->addr);
	return result;
}

/*
 * Lock held. The region that another thread has pinned since the first look, held; NULL: there is
 * none, or it is stale.
 */
static struct pindown_region *pinned_meanwhile(const struct pdn_attempt *a)
{
	struct pindown_region *region;

	if (pdn_index_unchanged(a->index_seq))
		return NULL;
	region = pdn_hold_locked(a->addr, a->length);
	if (region && pdn_growth_finds_stale(&a->what, region)) {
		pdn_unhold(pdn_self_or_anonymous(), pdn_region_number(region));
		return NULL;
	}
	return region;
}

static struct pdn_pin pin_of(const struct pdn_allocation *what)
{
	return (struct pdn_pin){.base = what->pin_base,
				.length = pdn_page_ceil(what->memory.end) - what->pin_base,
				.device = what->memory.device,
				.fd = -1,
				.word_value = pdn_revocation_word(0),
				.spans = what->mappings_hash != 0};
}

/*
 * The flight now says what it pins. Another thread may have pinned the same since the first look,
 * or be about to. Or there are regions that the pin has to take in: then the driver is asked again.
 */
static int announce(struct pdn_attempt *a, const struct pdn_backend *backend)
{
	int result = PINDOWN_OK;

	a->pin = pin_of(&a->what);
	/* A system call, so before the lock is taken. */
	a->flight.max_dmabufs =
		backend && backend->pin_takes_descriptor ? pdn_dmabufs_max() : UINT64_MAX;
	pdn_lock();
	a->region = pinned_meanwhile(a);
	if (!a->region && pdn_growth_wants_more(&a->growth, &a->what)) {
		pdn_unlock();
		return PDN_WIDER;
	}
	pdn_flight_is_of(&a->flight, &a->what.memory);
	a->flight.pin = &a->pin;
	if (!a->region) {
		if (pdn_flight_is_duplicate(&a->flight))
			result = PDN_AGAIN;
		else
			pdn_reserve_budget(&a->flight, a->pin.length);
	}
	pdn_unlock();
	return result;
}

/* Nothing is left to be tried. */
static void end_failed(struct pdn_attempt *a, bool is_pin_failure)
{
	pdn_lock();
	pdn_flight_end(&a->flight);
	if (is_pin_failure)
		pdn_account_pin_failure();
	pdn_unlock();
}

/* Pin the memory that ask_driver() has found. The flight ends in here. */
static int pin_and_commit(struct pdn_attempt *a, const struct pdn_backend *backend)
{
	int result;
	bool pinned;

	PDN_POINT(PIN_ANNOUNCED, a->addr);
	result = pdn_pin_memory(a, backend);
	pinned = result == PINDOWN_OK;
	PDN_POINT(PIN_PINNED, a->addr);
	/* The buffer id changed during the pin: discard the outcome and retry. */
	if ((pinned || result == PINDOWN_ERR_DRIVER) && !pdn_is_same_buffer(a))
		result = PDN_AGAIN;
	else if (result == PINDOWN_ERR_NO_SPACE && pdn_flight_lost(&a->flight))
		result = PDN_AGAIN; /* it gave up looking for space early */
	else if (pinned)
		result = pdn_pin_commit(a);
	if (pinned && result == PINDOWN_OK) {
		PDN_POINT(PIN_COMMITTED, a->addr);
		return result;
	}
	/* The flight ends after the unpin: a free that has marked it lost waits for that. */
	if (pinned) {
		PDN_POINT(PIN_LOST, a->addr);
		pdn_backend_of(&a->pin)->unpin(&a->pin);
	}
	if (result == PDN_AGAIN)
		return pdn_attempt_again(a);
	if (!pinned && pdn_refusal_may_pass(a, result))
		return PDN_AGAIN;
	if (a->narrows)
		return pdn_attempt_narrower(a);
	end_failed(a, !pinned && a->was_refused);
	return result;
}

/* The region that another thread has pinned is let go of. */
static void put(struct pdn_attempt *a)
{
	uint32_t number = pdn_region_number(a->region);
	struct pdn_ending last = {0};

	pdn_lock();
	pdn_unhold(pdn_self_or_anonymous(), number);
	pdn_region_take_kept(&last, number);
	pdn_unlock();
	pdn_unpin_kept(&last);
	a->region = NULL;
}

/*
 * The region that another thread has pinned is one that each hit compares with the driver, and the
 * driver was last asked before it was pinned. false: let go of; another attempt finds it stale.
 */
static bool is_good(struct pdn_attempt *a)
{
	uint32_t number = pdn_region_number(a->region);

	/*
	 * Relaxed: under the lock, before, it was live. Its memory may have become the past in the
	 * middle of a question to the driver.
	 */
	if ((__atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) != PDN_CHECKED ||
	     pdn_compare(a->region) != PDN_FALSE) &&
	    __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_SEQ_CST) != PDN_PAST)
		return true;
	put(a);
	return false;
}

static int pin_attempt(struct pdn_attempt *a)
{
	unsigned guarded = pdn_flight_begin(&a->flight, a->growth.base, a->growth.end);
	const struct pdn_backend *backend = NULL;
	int result;

	if (guarded & PDN_GUARDED)
		return pdn_attempt_wait_for_frees(a);
	for (;;) {
		result = ask_driver(a);
		if (result == PINDOWN_OK) {
			/* The first time for a device it asks the driver: without the lock. */
			backend = pdn_backend_for(a->what.memory.device);
			result = announce(a, backend);
		}
		if (result != PDN_WIDER)
			break;
		result = pdn_attempt_asks_wider(a);
		if (result != PINDOWN_OK)
			return result;
	}
	if (result == PDN_AGAIN)
		return pdn_attempt_wait_for_same_pin(a);
	/* Compared with the id from before the description: the memory may have changed since. */
	if (result == PINDOWN_OK && a->region && !pdn_is_same_buffer(a)) {
		put(a);
		return pdn_attempt_again(a);
	}
	if (result != PINDOWN_OK || a->region) {
		pdn_flight_end_unlocked(&a->flight);
		return result != PINDOWN_OK || is_good(a) ? result : PDN_AGAIN;
	}
	if (!backend) {
		pdn_flight_end_unlocked(&a->flight);
		return PINDOWN_ERR_NO_BACKEND;
	}
	result = guarded ? pdn_attempt_meets_own_free(a) : PINDOWN_OK;
	if (result == PINDOWN_OK)
		result = pdn_attempt_reaches_neighbours(a);
	if (result != PINDOWN_OK)
		return result;
	result = pin_and_commit(a, backend);
	if (result != PDN_AGAIN && pdn_tracing(PDN_EV_PIN))
		trace_pin(a, result);
	return result;
}

/*
 * The process can have no more memory for a record or for the index. An idle region uses both, so a
 * few are evicted. No more: the index may need a part that none of them has.
 */
static int free_memory(struct pdn_attempt *a)
{
	static bool said;
	struct pdn_pressure pressure = {.place = -1, .nowait = a->flight.nowait};

	if (!pdn_region_limit)
		pdn_log_once(&said, PDN_LOG_WARN,
			     "nothing is cached: there is no memory for the tables (see ulimit -v "
			     "and ulimit -l); the program continues unpinned");
	if (a->memories++ < 4 && pdn_evict_for(&pressure))
		return PDN_AGAIN;
	return pressure.would_wait ? PINDOWN_ERR_WOULD_WAIT : PINDOWN_ERR_NO_MEMORY;
}

/*
 * Each wait has its own deadline, and others may have to be waited for again. This counts rounds in
 * which another thread came in between, and has finished since: there is no end of such threads.
 */
#define MOST_ROUNDS 2000

int pdn_pin(uint64_t addr, uint64_t length, unsigned flags, uint64_t index_seq,
	    struct pindown_region **region)
{
	struct pdn_attempt a;
	int result = PDN_AGAIN;

	if (!pdn_driver_permits()) {
		pdn_set_driver_error(PINDOWN_ERR_DRIVER, CUDA_ERROR_NOT_PERMITTED);
		return PINDOWN_ERR_DRIVER;
	}
	a.addr = addr;
	a.length = length;
	a.growth = (struct pdn_growth){.addr = addr, .length = length};
	a.flight.nowait = flags & PINDOWN_GET_NOWAIT;
	a.losses = a.rounds = a.refusals = a.memories = 0;
	a.was_refused = false;
	a.driver_error = 0;
	a.begin = pdn_tracing(PDN_EV_PIN) ? pdn_ticks() : 0;
	a.index_seq = index_seq;
	pdn_past_is_possible();
	for (;;) {
		if (!a.flight.nowait) /* then its commit gives up */
			pdn_past_look();
		a.flags = 0;
		a.region = NULL;
		a.has_evicted = a.narrows = false;
		pdn_growth_begin(&a.growth);
		result = pin_attempt(&a);
		if (result == PINDOWN_ERR_NO_MEMORY)
			result = free_memory(&a);
		if (result != PDN_AGAIN || ++a.rounds >= MOST_ROUNDS || pdn_process_is_off())
			break;
	}
	if (result == PDN_AGAIN)
		result = pdn_process_is_off() ? PINDOWN_ERR_NO_CUDA : PINDOWN_ERR_TIMED_OUT;
	if (result == PINDOWN_OK) {
		*region = a.region;
		if (pdn_region_flags(a.region) & PDN_REGION_LEAVING)
			pdn_end_leaving(pdn_region_number(a.region));
	} else {
		pdn_set_driver_error(result, a.driver_error);
	}
	return result;
}
