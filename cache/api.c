/* SPDX-License-Identifier: MIT */
/* The rest of pindown.h: words for results, the version, and descriptors. */
#define _GNU_SOURCE
#include "cache.h"
#include "driver.h"

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

PD_EXPORT const char *pindown_version(void)
{
	return STRING(PINDOWN_VERSION_MAJOR) "." STRING(PINDOWN_VERSION_MINOR);
}

PD_EXPORT int pindown_driver_error(void)
{
	const struct pd_thread *self = pd_self();

	return self ? self->driver_error : 0;
}

PD_EXPORT const char *pindown_strerror(int result)
{
	switch (result) {
	case PINDOWN_OK:
		return "success";
	case PINDOWN_ERR_INVALID:
		return "an argument is NULL, zero, wraps round or has unknown flags";
	case PINDOWN_ERR_DISABLED:
		return "pindown is switched off in this process";
	case PINDOWN_ERR_NO_CUDA:
		return "no CUDA driver is loaded and initialized in this process";
	case PINDOWN_ERR_NOT_DEVICE:
		return "the address is not GPU memory that the CUDA driver knows";
	case PINDOWN_ERR_HOST:
		return "the address is host memory; register it as host memory";
	case PINDOWN_ERR_MANAGED:
		return "the address is managed memory, which migrates and can't be pinned; use "
		       "cuMemAlloc";
	case PINDOWN_ERR_RANGE:
		return "the range runs past the end of its allocation";
	case PINDOWN_ERR_NO_SPACE:
		return "no pin space is left within the budget, and every pinned region is in use";
	case PINDOWN_ERR_BUSY:
		return "the memory is being freed by another call";
	case PINDOWN_ERR_NO_BACKEND:
		return "there is no way to pin memory of this device";
	case PINDOWN_ERR_DRIVER:
		return "the CUDA driver refused to pin; pindown_driver_error() has its code";
	case PINDOWN_ERR_NO_MEMORY:
		return "no host memory for the cache's own records";
	case PINDOWN_ERR_NO_DMABUF:
		return "the backend in use has no dma-buf descriptors";
	}
	return "unknown result";
}

/* ---- descriptors -------------------------------------------------------------------------- */

static void trace_map(const struct pindown_region *region, int result)
{
	uint64_t now;

	if (!pd_tracing(PD_EV_MAP))
		return;
	now = pd_ticks();
	pd_trace_about(PD_EV_MAP, region, result, 0, now, now);
}

/*
 * The region is held, so nobody else unpins it. Two users of one region may close and ask at the
 * same time; the descriptor changes hands under the lock, and is opened and closed outside it.
 */
static int current_dmabuf(struct pindown_region *region, const struct pd_backend *backend)
{
	struct pd_pin pin;

	pd_lock();
	pin = pd_details_of(region)->pin;
	pd_unlock();
	if (pin.fd < 0 || backend->has_dmabuf(&pin))
		return pin.fd;
	/* The program has closed it, and may have something of its own under the number. */
	pd_lock();
	if (pd_details_of(region)->pin.fd == pin.fd &&
	    pd_details_of(region)->pin.fd_identity == pin.fd_identity)
		pd_details_of(region)->pin.fd = -1;
	pd_unlock();
	return -1;
}

/* In place of one that is closed; unless another thread was faster, or the memory has ended. */
static int reopen(struct pindown_region *region, const struct pd_backend *backend, int *fd)
{
	struct pd_pin again = pd_details_of(region)->pin;
	int result = PINDOWN_ERR_NOT_DEVICE;
	int error = 0;
	bool used = false;

	if (!pindown_region_is_live(region))
		return result;
	again.fd = -1;
	result = backend->open_dmabuf(&again, pd_details_of(region)->context, &error);
	/* What we have just opened, or failed to, is the region's only if that still lives. */
	if (pd_compare(region) != PD_TRUE) {
		if (result == PINDOWN_OK)
			backend->close_dmabuf(&again);
		return PINDOWN_ERR_NOT_DEVICE;
	}
	if (result != PINDOWN_OK) {
		pd_set_driver_error(error);
		return result;
	}
	pd_lock();
	if (!pd_state_is_live(region->state)) {
		result = PINDOWN_ERR_NOT_DEVICE;
	} else if (pd_details_of(region)->pin.fd < 0) {
		pd_details_of(region)->pin = again;
		used = true;
	}
	*fd = pd_details_of(region)->pin.fd;
	pd_unlock();
	if (!used)
		backend->close_dmabuf(&again);
	return result;
}

PD_EXPORT int pindown_region_dmabuf(struct pindown_region *region, uint64_t addr, int *fd,
				    uint64_t *offset)
{
	const struct pd_backend *backend;
	int result = PINDOWN_OK;
	int found;

	if (!region || !fd || !offset || !pd_region_holds(region, addr, 1))
		return PINDOWN_ERR_INVALID;
	backend = pd_backend_for(pd_details_of(region)->pin.device);
	if (!backend || !backend->open_dmabuf)
		return PINDOWN_ERR_NO_DMABUF;
	found = current_dmabuf(region, backend);
	if (found < 0)
		result = reopen(region, backend, &found);
	trace_map(region, result);
	if (result != PINDOWN_OK)
		return result;
	*fd = found;
	*offset = addr - pd_details_of(region)->pin.base;
	return PINDOWN_OK;
}

PD_EXPORT void pindown_region_close_dmabuf(struct pindown_region *region)
{
	const struct pd_backend *backend;
	struct pd_pin closing;

	if (!region)
		return;
	backend = pd_backend_for(pd_details_of(region)->pin.device);
	if (!backend || !backend->close_dmabuf)
		return;
	pd_lock();
	closing = pd_details_of(region)->pin;
	pd_details_of(region)->pin.fd = -1;
	pd_unlock();
	if (closing.fd >= 0)
		backend->close_dmabuf(&closing);
}
