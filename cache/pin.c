/* SPDX-License-Identifier: MIT */
/*
 * Misses: ask the driver for the allocation at an address, pin it, and insert its region in the
 * index. If the memory is freed meanwhile, all of it is undone; race.h says how that is noticed.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/account.h"
#include "cache/backend/backend.h"
#include "cache/backend/revocation.h"
#include "cache/base/barrier.h"
#include "cache/base/config.h"
#include "cache/base/fork_gate.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/base/visible.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/evict.h"
#include "cache/growth.h"
#include "cache/index.h"
#include "cache/invalidate.h"
#include "cache/pin.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/recheck.h"
#include "cache/region.h"
#include "cache/trace/writer.h"
#include "cache/trust.h"
#include "cache/volatile.h"

#define MAX_REFUSALS 3	 /* of unchanged memory: then the driver's answer is final */
#define MAX_LOSSES   100 /* Give up with BUSY after this many lost races. */

/* The outcome of an attempt: a pindown_result, or this: something has changed, try again. */
#define AGAIN 1
/* The same, but nothing has ended yet: the driver is asked about a wider range at once. */
#define WIDER 2

struct attempt {
	uint64_t addr, length;
	struct pdn_growth growth; /* of mapped memory: what is pinned beside the request */
	uint64_t deadline;	  /* 0: there was nothing to wait for yet; see deadline_of() */
	struct pdn_flight flight;
	bool frees_before; /* some began before the flight said what it pins */
	struct pdn_allocation what;
	struct pdn_pin pin;
	uint16_t flags; /* PDN_REGION_* */
	int driver_error;
	bool has_evicted; /* regions, for a pin that was refused all the same */
	bool was_refused; /* a pin for the request */
	bool narrows;	  /* another one that reaches less far may work */
	unsigned waits;	  /* for guards that may be on the memory to be asked about */
	unsigned losses;
	unsigned refusals;  /* how often the driver has refused memory of a pool */
	unsigned memories;  /* how often an eviction was made for a record's memory */
	uint64_t index_seq; /* see pdn_pin() */
	uint64_t begin;	    /* ticks */
	struct pindown_region *region;
};

struct pindown_region *PDN_RARE pdn_hold_locked(uint64_t addr, uint64_t length)
{
	uint32_t number = pdn_index_find(addr);
	struct pindown_region *region = &pdn_regions[number];

	if (!number || !pdn_state_is_live(pdn_brief_of(region)->state) ||
	    !pdn_region_holds(region, addr, length))
		return NULL;
	pdn_hold(pdn_self_or_anonymous(), number);
	return region;
}

static uint64_t page_floor(uint64_t addr)
{
	return addr & ~(uint64_t)(PINDOWN_PAGE_SIZE - 1);
}

static uint64_t page_ceil(uint64_t addr)
{
	return page_floor(addr + PINDOWN_PAGE_SIZE - 1);
}

static void PDN_RARE trace_pin(const struct attempt *a, int result)
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

/* Most pins wait for nothing, and need not ask for the time. */
static uint64_t deadline_of(struct attempt *a)
{
	if (!a->deadline)
		a->deadline = pdn_race_deadline();
	return a->deadline;
}

/* ---- the flight -------------------------------------------------------------------------- */

static void pin_begin(struct attempt *a)
{
	pdn_flight_begin(&a->flight, a->growth.base, a->growth.end);
	PDN_POINT(PIN_BEGUN, a->addr);
	/* Pairs with pdn_guard_up()'s publish. */
	a->frees_before = pdn_guard_any(pdn_heavy_barrier_after_change());
	pdn_barrier_report();
}

/*
 * Another thread is freeing the memory to be pinned. Wait without a flight, or the free would wait
 * for this thread in turn.
 */
static int PDN_RARE wait_for_free(struct attempt *a)
{
	struct pdn_memory memory = pdn_growth_whole(&a->what);

	pdn_flight_end_unlocked(&a->flight);
	PDN_POINT(PIN_WAITING, a->addr);
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	return pdn_guard_wait(&memory, deadline_of(a)) ? AGAIN : PINDOWN_ERR_TIMED_OUT;
}

/*
 * Another thread may be freeing memory that the driver would be asked about. Without a flight, as
 * above.
 */
static int PDN_RARE wait_before_asking(struct attempt *a)
{
	pdn_flight_end_unlocked(&a->flight);
	PDN_POINT(PIN_WAITING, a->addr);
	if (a->flight.nowait)
		return PINDOWN_ERR_WOULD_WAIT;
	a->waits++;
	return pdn_guard_wait_near(a->growth.base, a->growth.end, deadline_of(a))
		       ? AGAIN
		       : PINDOWN_ERR_TIMED_OUT;
}

#define MAX_WAITS 4

/*
 * Some guard is up. What may be there is as a rule a free of other memory: it is waited for a few
 * times, and a get that must not wait takes it for one.
 */
static bool PDN_RARE must_wait_before_asking(const struct attempt *a)
{
	enum pdn_nearness near = pdn_guard_near(a->growth.base, a->growth.end);

	return near == PDN_GUARD_THERE ||
	       (near == PDN_GUARD_MAYBE_THERE && a->waits < MAX_WAITS && !a->flight.nowait);
}

/* Nothing has gone wrong but that the attempt reached too far. */
static int PDN_RARE retry_narrower(struct attempt *a)
{
	pdn_flight_end_unlocked(&a->flight);
	return AGAIN;
}

/* A wide attempt meets frees of all the memory that it takes in, so not too many are made. */
#define WIDE_LOSSES 4

/* Let the free that was faster proceed, and look again. */
static int PDN_RARE pin_retry(struct attempt *a)
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
	return ++a->losses < MAX_LOSSES ? AGAIN : PINDOWN_ERR_BUSY;
}

/* ---- steps, without the lock ------------------------------------------------------------- */

/*
 * With mappings beside the request, up to the wanted size, the driver is asked about memory that
 * the program frees as it likes.
 */
static bool PDN_RARE may_ask_wider(struct attempt *a)
{
	uint64_t more = a->growth.size, begin = a->growth.base, end = a->growth.end + more;

	begin = begin > more ? begin - more - 1 : 0;
	pdn_flight_asks(&a->flight, begin, end);
	if (!pdn_guard_any(pdn_heavy_barrier()))
		return true;
	a->frees_before = true;
	return pdn_guard_near(begin, end) == PDN_NO_GUARD_NEAR;
}

static int ask_driver(struct attempt *a)
{
	int result = pdn_growth_describe(&a->growth, &a->what, &a->driver_error);

	pdn_flight_has_asked(&a->flight);
	PDN_POINT(PIN_DESCRIBED, a->addr);
	return result;
}

/*
 * Lock held. The region that another thread has pinned since the first look, held; NULL: there is
 * none, or it is stale.
 */
static struct pindown_region *pinned_meanwhile(const struct attempt *a)
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
				.length = page_ceil(what->memory.end) - what->pin_base,
				.device = what->memory.device,
				.fd = -1,
				.word_value = pdn_revocation_word(0),
				.spans = what->others != 0};
}

/*
 * The flight now says what it pins. Another thread may have pinned the same since the first look,
 * or be about to. Or there are regions that the pin has to take in: then the flight does not say so
 * yet, and a free that begins meanwhile leaves its mark, as before the first question to the driver
 * (race.h).
 */
static int announce(struct attempt *a, const struct pdn_backend *backend)
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
		return WIDER;
	}
	a->flight.memory = pdn_growth_whole(&a->what);
	a->flight.known = true;
	a->frees_before |= a->flight.disturbed;
	a->flight.pin = &a->pin;
	if (!a->region) {
		if (!pdn_flight_is_alone(&a->flight) && pdn_flight_is_duplicate(&a->flight))
			result = AGAIN;
		else
			pdn_reserve_budget(&a->flight, a->pin.length);
	}
	pdn_unlock();
	return result;
}

/*
 * How many bytes of it the driver would pin now, without an eviction. The driver has no call for
 * that, so smaller pins are tried and given back at once.
 */
static uint64_t PDN_RARE bytes_that_fit(const struct attempt *a, const struct pdn_backend *backend)
{
	uint64_t fits = 0, too_many = a->pin.length / PINDOWN_PAGE_SIZE;
	int error;

	while (too_many - fits > 1 && !pdn_flight_lost(&a->flight)) {
		struct pdn_pin part = a->pin;
		uint64_t pages = fits + (too_many - fits) / 2;

		part.trial = true;
		part.length = pages * PINDOWN_PAGE_SIZE;
		pdn_descriptor_begin(); /* a fork waits until it is unpinned */
		if (backend->pin(&part, a->what.current, &error) == PINDOWN_OK) {
			/* No flight names it: for the child of a fork that waits no longer. */
			pdn_descriptor_note(part.fd, part.fd_identity);
			backend->unpin(&part);
			fits = pages;
		} else {
			too_many = pages;
		}
		pdn_descriptor_end();
	}
	return fits * PINDOWN_PAGE_SIZE;
}

/* The driver has no space for it. Would it still have none if all idle regions went? */
static bool PDN_RARE is_hopeless(const struct attempt *a, const struct pdn_backend *backend)
{
	uint64_t idle = pdn_idle_bytes(a->pin.device, a->pin.length);

	return idle < a->pin.length &&
	       (idle == 0 || idle + bytes_that_fit(a, backend) < a->pin.length);
}

/* BAR space is the device's own; other shortages are the process's. */
static void PDN_RARE set_place(const struct attempt *a, const struct pdn_backend *backend,
			       struct pdn_pressure *pressure)
{
	bool of_device = a->driver_error == CUDA_ERROR_OUT_OF_MEMORY;

	pressure->nowait = a->flight.nowait;
	pressure->wanted = of_device ? a->pin.length : 0;
	pressure->is_hopeless = false;
	if (of_device)
		pressure->place = a->pin.device;
	else
		pressure->place = backend->pin_takes_descriptor ? PDN_WITH_DMABUF : -1;
	if (of_device && !pressure->regions)
		pressure->is_hopeless = is_hopeless(a, backend);
}

/* Then nothing is evicted for it, and no other backend tried. */
static bool is_more_than_needed(const struct attempt *a)
{
	return pdn_growth_is_wide(&a->growth) && a->growth.reach == PDN_REACH_TWOFOLD;
}

/* By one of the backend's two ways. */
static inline __attribute__((always_inline)) int pin_by(int (*pin)(struct pdn_pin *, void *, int *),
							const struct pdn_backend *backend,
							struct attempt *a)
{
	int result;

	if (!backend->pin_takes_descriptor)
		return pin(&a->pin, a->what.current, &a->driver_error);
	pdn_descriptor_begin();
	result = pin(&a->pin, a->what.current, &a->driver_error);
	pdn_descriptor_end();
	return result;
}

/*
 * The driver has no space. Other processes are asked once, when our own idle regions are not
 * enough. What they give may make ours enough, so ours are looked at once more.
 */
static int PDN_RARE evict_and_pin(struct attempt *a, const struct pdn_backend *backend)
{
	struct pdn_pressure pressure = {0};
	bool may_ask = backend->pin_at_last && !a->flight.nowait;
	int result = PINDOWN_ERR_NO_SPACE;

	for (;; result = pin_by(backend->pin, backend, a)) {
		if (result != PINDOWN_ERR_NO_SPACE || pdn_flight_lost(&a->flight))
			return result;
		if (is_more_than_needed(a))
			return result;
		set_place(a, backend, &pressure);
		if (pdn_growth_is_wide(&a->growth) && !pressure.is_hopeless &&
		    pdn_evict_replaced(&a->what))
			continue;
		if (pdn_evict_for(&pressure))
			continue;
		a->has_evicted = pressure.regions != 0;
		if (pressure.would_wait)
			return PINDOWN_ERR_WOULD_WAIT;
		if (!may_ask)
			return result;
		may_ask = false;
		result = pin_by(backend->pin_at_last, backend, a);
		if (result != PINDOWN_ERR_NO_SPACE)
			return result;
	}
}

static int pin_or_evict(struct attempt *a, const struct pdn_backend *backend)
{
	int result = pin_by(backend->pin, backend, a);

	return result == PINDOWN_ERR_NO_SPACE ? evict_and_pin(a, backend) : result;
}

/* Does the driver still describe the same memory at this address? */
static bool is_same_buffer(const struct attempt *a)
{
	return pdn_driver_compare(a->what.memory.base, a->what.memory.end, a->what.buffer_id,
				  a->what.others) == PDN_TRUE;
}

static void PDN_RARE tell_of_refusal(const struct attempt *a, int error)
{
	static bool said;

	pdn_log_once(&said, PDN_LOG_WARN,
		     "pindown.ko can't pin %llu bytes at 0x%llx (CUDA error %d): the driver's "
		     "dma-buf pins this memory instead, and any other that the module refuses",
		     (unsigned long long)a->pin.length, (unsigned long long)a->pin.base, error);
}

/* Pin with the other backend what the first one refused. Not used for lack of space. */
static int PDN_RARE pin_instead(struct attempt *a, const struct pdn_backend *other)
{
	uint64_t most = pdn_dmabufs_max();
	int error = a->driver_error, result;

	pdn_lock();
	a->flight.reserved = 0; /* for a pin that takes no descriptor */
	a->flight.max_dmabufs = most;
	pdn_unlock();
	a->pin.fell_back = true;
	result = pdn_evict_and_reserve_budget(&a->flight, a->pin.length);
	if (result == PINDOWN_OK)
		result = pin_or_evict(a, other);
	if (result == PINDOWN_OK)
		tell_of_refusal(a, error);
	return result;
}

/*
 * Room under the budgets. For more than it needs a pin takes none from other regions; for a union
 * it takes first what the union replaces.
 */
static int PDN_RARE make_room(struct attempt *a)
{
	if (pdn_growth_is_wide(&a->growth)) {
		if (is_more_than_needed(a) || !pdn_idle_is_enough_for(a->pin.length))
			return PINDOWN_ERR_NO_SPACE;
		pdn_evict_replaced(&a->what);
	}
	return pdn_evict_and_reserve_budget(&a->flight, a->pin.length);
}

/*
 * There was no space for all of the memory, under the budget or on the device. Windows of it are of
 * no use where eviction could not make room for anything.
 */
static bool PDN_RARE begins_windows(struct attempt *a, bool was_tried)
{
	int device = a->pin.device;
	uint64_t space = pdn_config()->max_bytes, fits;

	if (!was_tried)
		return space && pdn_growth_to_windows(&a->growth, &a->what, space);
	if (!pdn_growth_may_have_windows(&a->growth, &a->what))
		return false;
	fits = bytes_that_fit(a, pdn_backend_of(&a->pin));
	if (!fits && (a->has_evicted || !pdn_idle_bytes(device, 1)))
		return false;
	pdn_lock();
	fits += pdn_pinned_bytes_of(device);
	pdn_unlock();
	return pdn_growth_to_windows(&a->growth, &a->what, space && space < fits ? space : fits);
}

/* The pin has failed, if it was tried. */
static bool PDN_RARE can_reach_less_far(struct attempt *a, int result, bool was_tried)
{
	bool for_space = result == PINDOWN_ERR_NO_SPACE && !pdn_flight_lost(&a->flight) &&
			 (!was_tried || a->driver_error == CUDA_ERROR_OUT_OF_MEMORY);

	if (a->growth.reach < PDN_REACH_WINDOW && !pdn_growth_is_wide(&a->growth))
		return for_space && begins_windows(a, was_tried);
	if (for_space && a->has_evicted && a->growth.reach == PDN_REACH_WINDOW)
		for_space = bytes_that_fit(a, pdn_backend_of(&a->pin)) != 0;
	return pdn_growth_shrinks(&a->growth, for_space);
}

static int pin_in_room(struct attempt *a, const struct pdn_backend *backend)
{
	const struct pdn_backend *other =
		is_more_than_needed(a) ? NULL : pdn_backend_instead_of(backend);
	int result;

	if (!pdn_driver_sync_memops(a->what.memory.base, a->what.mapped))
		a->flags |= PDN_REGION_NO_SYNC;
	result = pin_or_evict(a, backend);
	/*
	 * If the memory has been freed meanwhile, that is why the pin was refused: do not try
	 * again.
	 */
	if (result == PINDOWN_ERR_DRIVER && other && is_same_buffer(a))
		result = pin_instead(a, other);
	return result;
}

static void PDN_RARE note_failure(struct attempt *a, int result, bool was_tried)
{
	a->was_refused |= was_tried;
	a->narrows = can_reach_less_far(a, result, was_tried);
	if (a->was_refused && !a->narrows) {
		pdn_lock();
		pdn_account_pin_failure();
		pdn_unlock();
	}
}

static int pin_memory(struct attempt *a, const struct pdn_backend *backend)
{
	int result = a->flight.reserved ? PINDOWN_OK : make_room(a);
	bool was_tried = result == PINDOWN_OK;

	if (was_tried)
		result = pin_in_room(a, backend);
	if (result == PINDOWN_OK)
		return result;
	note_failure(a, result, was_tried);
	return result;
}

/*
 * Frees that began before the flight said what it pins were not compared with that. A free that is
 * still under way has its guard up. A free that is over has changed the buffer id, if it was a free
 * of this memory; else the memory is the one that the driver described, and the next free will be
 * compared with it. In this order: a free that ends between the two looks is seen by the second.
 *
 * AGAIN, or a result: the flight has ended.
 */
static int PDN_RARE look_for_frees(struct attempt *a)
{
	struct pdn_memory memory = pdn_growth_whole(&a->what);
	enum pdn_guarded guarded = pdn_guard_on(&memory);

	/* The request's own memory need not be what ends. */
	if (guarded != PDN_UNGUARDED && pdn_growth_shrinks(&a->growth, false))
		return retry_narrower(a);
	switch (guarded) {
	case PDN_GUARDED:
		return wait_for_free(a);
	case PDN_GUARDED_BY_SELF: /* a subscriber asks for the memory that is about to end */
		pdn_flight_end_unlocked(&a->flight);
		return PINDOWN_ERR_BUSY;
	case PDN_UNGUARDED:
		break;
	}
	PDN_POINT(PIN_UNGUARDED, a->addr);
	return is_same_buffer(a) ? PINDOWN_OK : pin_retry(a);
}

/* ---- into the index ---------------------------------------------------------------------- */

/*
 * Lock held. Regions still indexed where this memory lies are stale, or are replaced: end them.
 * Returns how often the replaced ones were used, as in struct pdn_brief.
 */
static uint8_t end_overlapping(const struct pdn_allocation *what, struct pdn_victims *stale,
			       struct pdn_victims *replaced)
{
	uint64_t at = what->memory.base;
	uint8_t used = 0;
	uint32_t number;

	while ((number = pdn_index_next(&at, what->memory.end)) != 0) {
		uint8_t uses = __atomic_load_n(&pdn_briefs[number].used, __ATOMIC_RELAXED);

		if (pdn_growth_finds_stale(what, &pdn_regions[number])) {
			pdn_victims_add(stale, number, PINDOWN_REASON_STALE);
			continue;
		}
		/* A settled region may have used its uses up, and has been used all the same. */
		if (!uses && pdn_regions[number].queue & PDN_QUEUE_SETTLED)
			uses = 1;
		if (uses > used)
			used = uses;
		pdn_victims_add(replaced, number, PINDOWN_REASON_EVICTED);
	}
	return used;
}

/* Lock held, and the record is filled in. */
static void set_pages(struct pdn_brief *brief, const struct pindown_region *region)
{
	uint64_t first = page_ceil(region->base), end = page_floor(region->end);
	uint64_t pages = end > first && !region->word ? (end - first) / PINDOWN_PAGE_SIZE : 0;

	__atomic_store_n(&brief->first_page, (uint32_t)(first / PINDOWN_PAGE_SIZE),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&brief->pages, (uint16_t)(pages < UINT16_MAX ? pages : UINT16_MAX),
			 __ATOMIC_RELAXED);
}

/* Lock held. false: no room for a record. */
static bool insert(struct attempt *a)
{
	const struct pdn_memory *memory = &a->what.memory;
	uint32_t number = pdn_region_alloc();
	struct pindown_region *region = &pdn_regions[number];
	struct pdn_brief *brief = &pdn_briefs[number];

	if (!number)
		return false;
	if (!pdn_index_insert(number, memory->base, memory->end)) {
		pdn_region_free(number);
		return false;
	}
	if (pdn_is_volatile(memory->base, memory->end))
		a->flags |= PDN_REGION_VOLATILE;
	pdn_region_fill(region, &a->what, &a->pin, a->flags);
	set_pages(brief, region);
	pdn_queues_add(number);
	/* Before the flight ends: nothing_at_all() sees this, or that something is unsettled. */
	pdn_occupied_add(1);
	pdn_account_pin(region);
	pdn_hold(pdn_self_or_anonymous(), number);
	/* Release: pairs with get.c's acquire. A hit that finds it live finds all of the above. */
	__atomic_store_n(&brief->state, pdn_state_for(a->flags & PDN_REGION_VOLATILE),
			 __ATOMIC_RELEASE);
	a->region = region;
	return true;
}

/* For the eviction the region is no newcomer. Relaxed: as pdn_touch(). */
static void inherit_uses(struct pindown_region *region, uint8_t used)
{
	__atomic_store_n(&pdn_brief_of(region)->used, used, __ATOMIC_RELAXED);
}

#define FOUND_GONE "a pin found it gone"

/* Lock held, and let go: see commit(). There are regions where the new one is to be. */
static int PDN_RARE commit_over_others(struct attempt *a)
{
	struct pdn_victims dead = {.missed = FOUND_GONE};
	struct pdn_victims replaced = {.are_replaced = true};
	uint8_t used = end_overlapping(&a->what, &dead, &replaced);
	bool ok = insert(a);

	if (ok && used)
		inherit_uses(a->region, used);
	pdn_victims_split_idle_and_held(&dead);
	pdn_victims_split_idle_and_held(&replaced);
	if (ok)
		pdn_flight_end(&a->flight);
	pdn_unlock();
	pdn_victims_dispatch(&dead);
	pdn_victims_dispatch(&replaced);
	return ok ? PINDOWN_OK : PINDOWN_ERR_NO_MEMORY;
}

/* Lock held. Within a page, one look at the index tells, as a rule. */
static bool is_empty(const struct pdn_memory *memory)
{
	uint64_t at = memory->base;

	if ((at ^ (memory->end - 1)) < PINDOWN_PAGE_SIZE && !pdn_index_peek(at))
		return true;
	return !pdn_index_next(&at, memory->end);
}

/*
 * Commit point, under the lock: a free of the memory that has looked since the flight said what it
 * pins has marked it lost, and a free that begins after this finds the region in the index. On
 * success the flight ends here.
 */
static int commit(struct attempt *a)
{
	int result = PINDOWN_OK;

	PDN_POINT(PIN_SAME, a->addr);
	/*
	 * Of the mappings that a replaced region is over, one may have been replaced unseen: only a
	 * comparison of the region itself tells.
	 */
	if (a->what.mapped)
		pdn_drop_changed(a->what.memory.base, a->what.memory.end, FOUND_GONE);
	pdn_lock();
	if (a->flight.lost) {
		result = AGAIN;
	} else if (!is_empty(&a->what.memory)) {
		return commit_over_others(a);
	} else if (insert(a)) {
		pdn_flight_end(&a->flight);
	} else {
		result = PINDOWN_ERR_NO_MEMORY;
	}
	pdn_unlock();
	return result;
}

/*
 * A pool gives pieces back and gets others while threads use it, and an export of its memory begins
 * with a piece. An H200's driver has now and then refused memory of a pool that nobody freed: ask
 * the driver again where the piece begins.
 */
static bool PDN_RARE may_have_moved(struct attempt *a, int result)
{
	return result == PINDOWN_ERR_DRIVER && a->what.pool &&
	       a->driver_error == CUDA_ERROR_INVALID_VALUE && a->refusals++ < MAX_REFUSALS;
}

/* Pin the memory that ask_driver() has found. The flight ends in here. */
static int pin_and_commit(struct attempt *a, const struct pdn_backend *backend)
{
	int result;
	bool pinned;

	PDN_POINT(PIN_ANNOUNCED, a->addr);
	result = pin_memory(a, backend);
	pinned = result == PINDOWN_OK;
	PDN_POINT(PIN_PINNED, a->addr);
	/* The buffer id changed during the pin: discard the outcome and retry. */
	if ((pinned || result == PINDOWN_ERR_DRIVER) && !is_same_buffer(a))
		result = AGAIN;
	else if (!pinned && may_have_moved(a, result))
		result = AGAIN;
	else if (result == PINDOWN_ERR_NO_SPACE && pdn_flight_lost(&a->flight))
		result = AGAIN; /* it gave up looking for space early */
	else if (pinned)
		result = commit(a);
	if (pinned && result == PINDOWN_OK) {
		PDN_POINT(PIN_COMMITTED, a->addr);
		return result;
	}
	/* The flight ends after the unpin: a free that has marked it lost waits for that. */
	if (pinned) {
		PDN_POINT(PIN_LOST, a->addr);
		pdn_backend_of(&a->pin)->unpin(&a->pin);
	}
	if (result == AGAIN)
		return pin_retry(a);
	if (a->narrows)
		return retry_narrower(a);
	pdn_flight_end_unlocked(&a->flight);
	return result;
}

/*
 * Another thread is pinning the same: when that has settled, the memory is in the index, or free
 * again.
 */
static int PDN_RARE wait_for_company(struct attempt *a)
{
	uint64_t deadline = pdn_deadline(1000000);

	PDN_POINT(PIN_DUPLICATE, a->addr);
	pdn_lock();
	pdn_flight_end(&a->flight);
	/* Pins of other memory settle meanwhile: they are no reason to ask the driver again. */
	while (!a->flight.nowait && pdn_flight_is_duplicate(&a->flight) &&
	       pdn_wait_pending(deadline))
		;
	pdn_unlock();
	return a->flight.nowait ? PINDOWN_ERR_WOULD_WAIT : AGAIN;
}

/*
 * The region that another thread has pinned is one that each hit compares with the driver, and the
 * driver was last asked before it was pinned. false: let go of; another attempt finds it stale.
 */
static bool PDN_RARE is_good(struct attempt *a)
{
	uint32_t number = pdn_region_number(a->region);
	bool last;

	/* Relaxed: under the lock, before, it was live. */
	if (__atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) != PDN_CHECKED ||
	    pdn_compare(a->region) != PDN_FALSE)
		return true;
	pdn_lock();
	pdn_unhold(pdn_self_or_anonymous(), number);
	last = pdn_region_take_kept(number);
	pdn_unlock();
	if (last)
		pdn_unpin_kept(number);
	return false;
}

static int pin_attempt(struct attempt *a)
{
	const struct pdn_backend *backend = NULL;
	int result;

	if (a->frees_before && must_wait_before_asking(a))
		return wait_before_asking(a);
	for (;;) {
		result = ask_driver(a);
		if (result == PINDOWN_OK) {
			/* The first time for a device it asks the driver: without the lock. */
			backend = pdn_backend_for(a->what.memory.device);
			result = announce(a, backend);
		}
		if (result != WIDER)
			break;
		if (!may_ask_wider(a))
			return pdn_growth_shrinks(&a->growth, false) ? retry_narrower(a)
								     : wait_before_asking(a);
	}
	if (result == AGAIN)
		return wait_for_company(a);
	/* Compared with the id from before the description: the memory may have changed since. */
	if (result == PINDOWN_OK && a->region && !is_same_buffer(a)) {
		pindown_put(a->region);
		a->region = NULL;
		return pin_retry(a);
	}
	if (result != PINDOWN_OK || a->region) {
		pdn_flight_end_unlocked(&a->flight);
		return result != PINDOWN_OK || is_good(a) ? result : AGAIN;
	}
	if (!backend) {
		pdn_flight_end_unlocked(&a->flight);
		return PINDOWN_ERR_NO_BACKEND;
	}
	if (a->frees_before) {
		result = look_for_frees(a);
		if (result != PINDOWN_OK)
			return result;
	}
	result = pin_and_commit(a, backend);
	if (result != AGAIN && pdn_tracing(PDN_EV_PIN))
		trace_pin(a, result);
	return result;
}

/*
 * The process can have no more memory for a record or for the index. An idle region uses both, so a
 * few are evicted. No more: the index may need a part that none of them has.
 */
static int PDN_RARE free_memory(struct attempt *a)
{
	struct pdn_pressure pressure = {.place = -1, .nowait = a->flight.nowait};

	if (a->memories++ < 4 && pdn_evict_for(&pressure))
		return AGAIN;
	return pressure.would_wait ? PINDOWN_ERR_WOULD_WAIT : PINDOWN_ERR_NO_MEMORY;
}

int pdn_pin(uint64_t addr, uint64_t length, unsigned flags, uint64_t index_seq,
	    struct pindown_region **region)
{
	struct attempt a;
	int result = AGAIN;

	a.addr = addr;
	a.length = length;
	a.growth = (struct pdn_growth){.addr = addr, .length = length};
	a.deadline = 0;
	a.flight.nowait = flags & PINDOWN_GET_NOWAIT;
	a.losses = a.refusals = a.memories = 0;
	a.was_refused = false;
	a.waits = 0;
	a.driver_error = 0;
	a.begin = pdn_tracing(PDN_EV_PIN) ? pdn_ticks() : 0;
	a.index_seq = index_seq;
	if (!pdn_barrier_is_registered())
		pdn_barrier_register(); /* takes milliseconds */
	for (;;) {
		a.flags = 0;
		a.region = NULL;
		a.has_evicted = a.narrows = false;
		pdn_growth_begin(&a.growth);
		pin_begin(&a);
		result = pin_attempt(&a);
		if (result == PINDOWN_ERR_NO_MEMORY)
			result = free_memory(&a);
		if (result != AGAIN || pdn_deadline(0) >= deadline_of(&a))
			break;
	}
	if (result == AGAIN)
		result = PINDOWN_ERR_TIMED_OUT;
	if (result == PINDOWN_OK)
		*region = a.region;
	else
		pdn_set_driver_error(a.driver_error);
	return result;
}
