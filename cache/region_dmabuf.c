/* SPDX-License-Identifier: MIT */
/* Descriptors of regions: handing them out, closing them early, and opening them again. */
#define _GNU_SOURCE
#include "cache/backend/backend.h"
#include "cache/base/cancel.h"
#include "cache/base/fork_gate.h"
#include "cache/base/lock.h"
#include "cache/base/visible.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/evict.h"
#include "cache/invalidate.h"
#include "cache/misuse.h"
#include "cache/objects/object.h"
#include "cache/pin.h"
#include "cache/pindown.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/region_trace.h"
#include "cache/trace/writer.h"
#include "cache/trust.h"
#include "cache/region_dmabuf.h"

/* In a region's dmabuf_users: lent by pindown_region_dmabuf(), for an unknown time. */
#define LENT (1u << 15)

/*
 * Lock held. A descriptor is opened or closed, and no region has it meanwhile: as with a pin, a
 * free of the memory waits for that, and so does a fork, whose child would inherit it. Without the
 * pin's barrier: a free of a live region's memory takes the lock anyway.
 */
static void begin_flight(struct pdn_flight *flight, const struct pindown_region *region,
			 struct pdn_pin *pin)
{
	pdn_flight_begin(flight);
	flight->pin = pin;
	flight->memory = pdn_memory_of(region);
	flight->known = true;
}

static void trace_map(const struct pindown_region *region, int result)
{
	uint64_t now;

	if (!pdn_tracing(PDN_EV_MAP))
		return;
	now = pdn_ticks();
	pdn_trace_about(PDN_EV_MAP, region, result, 0, now, now);
}

/* ---- opening ------------------------------------------------------------------------------ */

/*
 * The region is held, so no other thread unpins it. Several users of one region may close and ask
 * at the same time; the descriptor changes hands under the lock, and is opened and closed outside
 * it.
 */
static int current_dmabuf(struct pindown_region *region, const struct pdn_backend *backend)
{
	struct pdn_pin pin;

	pdn_lock();
	pin = pdn_details_of(region)->pin;
	pdn_unlock();
	if (pin.fd < 0 || backend->has_dmabuf(&pin))
		return pin.fd;
	/* The program has closed it, and may have something of its own under the number. */
	pdn_lock();
	if (pdn_details_of(region)->pin.fd == pin.fd &&
	    pdn_details_of(region)->pin.fd_identity == pin.fd_identity) {
		pdn_details_of(region)->pin.fd = -1;
		pdn_dmabuf_closed();
	}
	pdn_unlock();
	return -1;
}

/* Idle regions make room for it: if a descriptor is missing, those that have one. */
static int open_or_evict(struct pdn_pin *pin, const struct pdn_backend *backend, void *context,
			 int *error)
{
	struct pdn_pressure pressure = {0};
	int result;

	do {
		pdn_descriptor_begin();
		result = backend->open_dmabuf(pin, context, error);
		pdn_descriptor_end();
		pressure.place = *error == CUDA_ERROR_OUT_OF_MEMORY ? pin->device : PDN_WITH_DMABUF;
	} while (result == PINDOWN_ERR_NO_SPACE && pdn_evict_for(&pressure));
	return result;
}

/* In place of a closed one; unless another thread was faster, or the memory has ended. */
static int open_again(struct pindown_region *region, const struct pdn_backend *backend,
		      struct pdn_pin *again, int *fd)
{
	int result, error = 0;
	bool used = false;

	result = open_or_evict(again, backend, pdn_details_of(region)->context, &error);
	/*
	 * The descriptor that was opened here, or the failure, is the region's only if that still
	 * lives.
	 */
	if (pdn_compare(region) != PDN_TRUE) {
		if (result == PINDOWN_OK)
			backend->close_dmabuf(again);
		return PINDOWN_ERR_NOT_DEVICE;
	}
	if (result != PINDOWN_OK) {
		pdn_set_driver_error(error);
		return result;
	}
	pdn_lock();
	if (!pdn_state_is_live(pdn_brief_of(region)->state)) {
		result = PINDOWN_ERR_NOT_DEVICE;
	} else if (pdn_details_of(region)->pin.fd < 0) {
		/* The rest of it is read without the lock. */
		pdn_details_of(region)->pin.fd = again->fd;
		pdn_details_of(region)->pin.fd_identity = again->fd_identity;
		used = true;
	}
	*fd = pdn_details_of(region)->pin.fd;
	pdn_unlock();
	if (!used)
		backend->close_dmabuf(again);
	return result;
}

static int reopen(struct pindown_region *region, const struct pdn_backend *backend, int *fd)
{
	struct pdn_flight flight;
	struct pdn_pin again;
	int result;

	pdn_lock();
	if (!pdn_state_is_live(pdn_brief_of(region)->state)) {
		pdn_unlock();
		return PINDOWN_ERR_NOT_DEVICE;
	}
	again = pdn_details_of(region)->pin;
	again.fd = -1;
	begin_flight(&flight, region, &again);
	pdn_unlock();
	result = open_again(region, backend, &again, fd);
	pdn_flight_end_unlocked(&flight);
	return result;
}

/* `dmabuf_users` counts the caller, so that no other thread closes it meanwhile. */
static int open_for_user(struct pindown_region *region, const struct pdn_backend *backend, int *fd)
{
	int result = PINDOWN_OK;
	int found = current_dmabuf(region, backend);

	if (found < 0)
		result = reopen(region, backend, &found);
	trace_map(region, result);
	if (result == PINDOWN_OK)
		*fd = found;
	return result;
}

/* ---- closing ------------------------------------------------------------------------------ */

/* Lock held, and let go. No user is left. */
static void close_unused(struct pindown_region *region, const struct pdn_backend *backend)
{
	struct pdn_details *details = pdn_details_of(region);
	struct pdn_pin closing = details->pin;
	struct pdn_flight flight;

	if (details->dmabuf_users || closing.fd < 0) {
		pdn_unlock();
		return;
	}
	/* In this order: a child that is forked meanwhile finds it in one of the two. */
	begin_flight(&flight, region, &closing);
	__atomic_store_n(&details->pin.fd, -1, __ATOMIC_RELEASE);
	pdn_unlock();
	backend->close_dmabuf(&closing);
	pdn_flight_end_unlocked(&flight);
}

/* ---- the ways in -------------------------------------------------------------------------- */

/* The backend that can open and close descriptors of this region, or NULL. */
static const struct pdn_backend *backend_of(const struct pindown_region *region)
{
	const struct pdn_backend *backend = pdn_backend_of(&pdn_details_of(region)->pin);

	return backend && backend->open_dmabuf ? backend : NULL;
}

/* Lent until create returns, however often it asks: pdn_dmabuf_create_ended(). */
static int borrow_in_create(struct pindown_region *region, uint64_t addr, int *fd, uint64_t *offset,
			    bool *asked)
{
	int result = pdn_dmabuf_borrow(region, fd);

	if (result != PINDOWN_OK)
		return result;
	*offset = addr - pdn_details_of(region)->pin.base;
	if (*asked)
		pdn_dmabuf_return(region);
	*asked = true;
	return PINDOWN_OK;
}

PDN_EXPORT int pindown_region_dmabuf(struct pindown_region *region, uint64_t addr, int *fd,
				     uint64_t *offset)
{
	PDN_UNCANCELLED;
	const struct pdn_backend *backend;
	uint16_t before;
	bool *asked;
	int result;

	if (!region || !fd || !offset)
		return PINDOWN_ERR_INVALID;
	pdn_region_is_used(region, __func__);
	if (!pdn_region_holds(region, addr, 1))
		return PINDOWN_ERR_INVALID;
	backend = backend_of(region);
	if (!backend)
		return PINDOWN_ERR_NO_DMABUF;
	asked = pdn_consumer_asked_dmabuf(region);
	if (asked)
		return borrow_in_create(region, addr, fd, offset, asked);
	pdn_lock();
	before = pdn_details_of(region)->dmabuf_users;
	pdn_details_of(region)->dmabuf_users |= LENT;
	pdn_unlock();
	result = open_for_user(region, backend, fd);
	if (result == PINDOWN_OK)
		*offset = addr - pdn_details_of(region)->pin.base;
	else if (!(before & LENT))
		pindown_region_close_dmabuf(region);
	return result;
}

PDN_EXPORT void pindown_region_close_dmabuf(struct pindown_region *region)
{
	PDN_UNCANCELLED;
	const struct pdn_backend *backend = region ? backend_of(region) : NULL;

	if (!backend)
		return;
	pdn_lock();
	pdn_details_of(region)->dmabuf_users &= (uint16_t)~LENT;
	close_unused(region, backend);
}

int pdn_dmabuf_borrow(struct pindown_region *region, int *fd)
{
	const struct pdn_backend *backend = backend_of(region);
	int result;

	if (!backend)
		return PINDOWN_ERR_NO_DMABUF;
	pdn_lock();
	pdn_details_of(region)->dmabuf_users++;
	pdn_unlock();
	result = open_for_user(region, backend, fd);
	if (result != PINDOWN_OK)
		pdn_dmabuf_return(region);
	return result;
}

void pdn_dmabuf_return(struct pindown_region *region)
{
	pdn_lock();
	pdn_details_of(region)->dmabuf_users--;
	close_unused(region, backend_of(region));
}

void pdn_dmabuf_create_ended(struct pindown_region *region, bool worked)
{
	const struct pdn_backend *backend = backend_of(region);

	pdn_lock();
	pdn_details_of(region)->dmabuf_users--;
	if (worked || !backend->pin_takes_descriptor)
		close_unused(region, backend);
	else
		pdn_unlock(); /* nothing was imported: the descriptor is the pin */
}
