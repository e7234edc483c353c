/* SPDX-License-Identifier: MIT */
/* Pinning memory: room under the budgets, then the backend; and what is done without space. */
#include "cache/show/account.h"
#include "cache/base/environment/config.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/room/budget.h"
#include "cache/driver/cuda_abi.h"
#include "cache/room/evict.h"
#include "cache/pin/pin_memory.h"
#include "cache/hit/region.h"

/*
 * How many bytes of it the driver would pin now, without an eviction. The driver has no call for
 * that, so smaller pins are tried and given back at once.
 */
static uint64_t bytes_that_fit(const struct pdn_attempt *a, const struct pdn_backend *backend)
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
static bool is_hopeless(const struct pdn_attempt *a, const struct pdn_backend *backend)
{
	uint64_t idle = pdn_idle_bytes(a->pin.device, a->pin.length);

	return idle < a->pin.length &&
	       (idle == 0 || idle + bytes_that_fit(a, backend) < a->pin.length);
}

/* BAR space is the device's own; other shortages are the process's. */
static void set_place(const struct pdn_attempt *a, const struct pdn_backend *backend,
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
static bool is_more_than_needed(const struct pdn_attempt *a)
{
	return pdn_growth_is_wide(&a->growth) && a->growth.reach == PDN_REACH_TWOFOLD;
}

/* By one of the backend's two ways. */
static int pin_by(int (*pin)(struct pdn_pin *, void *, int *), const struct pdn_backend *backend,
		  struct pdn_attempt *a)
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
static int evict_and_pin(struct pdn_attempt *a, const struct pdn_backend *backend)
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

static int pin_or_evict(struct pdn_attempt *a, const struct pdn_backend *backend)
{
	int result = pin_by(backend->pin, backend, a);

	return result == PINDOWN_ERR_NO_SPACE ? evict_and_pin(a, backend) : result;
}

static void tell_of_refusal(const struct pdn_attempt *a, int error)
{
	static bool said;

	pdn_log_once(&said, PDN_LOG_WARN,
		     "pindown.ko can't pin %llu bytes at 0x%llx (CUDA error %d): the driver's "
		     "dma-buf pins this memory instead, and any other that the module refuses",
		     (unsigned long long)a->pin.length, (unsigned long long)a->pin.base, error);
}

/* Pin with the other backend what the first one refused. Not used for lack of space. */
static int pin_instead(struct pdn_attempt *a, const struct pdn_backend *other)
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
static int make_room(struct pdn_attempt *a)
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
static bool begins_windows(struct pdn_attempt *a, bool was_tried)
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
static bool can_reach_less_far(struct pdn_attempt *a, int result, bool was_tried)
{
	bool for_space = result == PINDOWN_ERR_NO_SPACE && !pdn_flight_lost(&a->flight) &&
			 (!was_tried || a->driver_error == CUDA_ERROR_OUT_OF_MEMORY);

	if (a->growth.reach < PDN_REACH_WINDOW && !pdn_growth_is_wide(&a->growth))
		return for_space && begins_windows(a, was_tried);
	if (for_space && a->has_evicted && a->growth.reach == PDN_REACH_WINDOW)
		for_space = bytes_that_fit(a, pdn_backend_of(&a->pin)) != 0;
	return pdn_growth_shrinks(&a->growth, for_space);
}

static int pin_in_room(struct pdn_attempt *a, const struct pdn_backend *backend)
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
	if (result == PINDOWN_ERR_DRIVER && other && pdn_is_same_buffer(a))
		result = pin_instead(a, other);
	return result;
}

int pdn_pin_memory(struct pdn_attempt *a, const struct pdn_backend *backend)
{
	int result = a->flight.reserved ? PINDOWN_OK : make_room(a);
	bool was_tried = result == PINDOWN_OK;

	if (was_tried)
		result = pin_in_room(a, backend);
	if (result == PINDOWN_OK)
		return result;
	a->was_refused |= was_tried;
	a->narrows = can_reach_less_far(a, result, was_tried);
	return result;
}
