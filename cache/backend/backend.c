/* SPDX-License-Identifier: MIT */
/* Choosing the backend that pins memory of a device; and the backend that pins nothing. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/backend/backend.h"
#include "cache/base/config.h"
#include "cache/base/log.h"
#include "cache/pindown.h"

/* In the order in which `auto` tries them. "none" pins nothing and is used only by request. */
static const struct pd_backend *const automatic[] = {&pd_backend_kmod, &pd_backend_dmabuf};

static const struct pd_backend *chosen[PD_MAX_DEVICES + 1]; /* NULL: not chosen yet */
static const struct pd_backend nothing = {.name = "unavailable"};

static const struct pd_backend *first_that_works(int device)
{
	for (unsigned i = 0; i < sizeof(automatic) / sizeof(automatic[0]); i++)
		if (automatic[i]->works_on(device))
			return automatic[i];
	return NULL;
}

static const char *why_not(void)
{
	switch (pd_config()->backend) {
	case PD_BACKEND_KMOD:
	case PD_BACKEND_KMOD_PERSISTENT:
		return "/dev/pindown is missing, not open to this user, or can't pin this way";
	case PD_BACKEND_DMABUF:
		return "its driver exports no dma-buf (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0)";
	default:
		return "there is no /dev/pindown, and its driver exports no dma-buf";
	}
}

static const struct pd_backend *choose(int device)
{
	static bool said;
	const struct pd_backend *found = NULL;

	switch (pd_config()->backend) {
	case PD_BACKEND_NONE:
		return &pd_backend_none;
	case PD_BACKEND_KMOD:
	case PD_BACKEND_KMOD_PERSISTENT:
		found = pd_backend_kmod.works_on(device) ? &pd_backend_kmod : NULL;
		break;
	case PD_BACKEND_DMABUF:
		found = pd_backend_dmabuf.works_on(device) ? &pd_backend_dmabuf : NULL;
		break;
	case PD_BACKEND_AUTO:
		found = first_that_works(device);
		break;
	}
	if (!found)
		pd_log_once(&said, PD_LOG_WARN,
			    "memory of device %d can't be pinned with PINDOWN_BACKEND=%s: %s; the "
			    "program continues unpinned",
			    device, pd_backend_name(), why_not());
	return found;
}

static unsigned place_of(int device)
{
	return device >= 0 && device < PD_MAX_DEVICES ? (unsigned)device : PD_MAX_DEVICES;
}

const struct pd_backend *pd_backend_chosen(int device)
{
	const struct pd_backend *found =
		__atomic_load_n(&chosen[place_of(device)], __ATOMIC_ACQUIRE);

	return found == &nothing ? NULL : found;
}

/* The answer never changes, so two threads may ask at once. */
const struct pd_backend *pd_backend_for(int device)
{
	unsigned place = place_of(device);
	/* Acquire: pairs with the store below, so that what works_on() has set up is visible. */
	const struct pd_backend *found = __atomic_load_n(&chosen[place], __ATOMIC_ACQUIRE);

	if (!found) {
		found = choose(device);
		__atomic_store_n(&chosen[place], found ? found : &nothing, __ATOMIC_RELEASE);
	}
	return found == &nothing ? NULL : found;
}

const struct pd_backend *pd_backend_of(const struct pd_pin *pin)
{
	return pin->fell_back ? &pd_backend_dmabuf : pd_backend_for(pin->device);
}

const struct pd_backend *pd_backend_instead_of(const struct pd_backend *backend)
{
	return backend == &pd_backend_kmod && pd_config()->backend == PD_BACKEND_AUTO
		       ? &pd_backend_dmabuf
		       : NULL;
}

const char *pd_backend_name(void)
{
	for (unsigned i = 0; i <= PD_MAX_DEVICES; i++) {
		/* Acquire: as in pd_backend_for(). */
		const struct pd_backend *found = __atomic_load_n(&chosen[i], __ATOMIC_ACQUIRE);

		if (found)
			return found->name;
	}
	switch (pd_config()->backend) {
	case PD_BACKEND_NONE:
		return pd_backend_none.name;
	case PD_BACKEND_KMOD:
	case PD_BACKEND_KMOD_PERSISTENT:
		return pd_backend_kmod.name;
	case PD_BACKEND_DMABUF:
		return pd_backend_dmabuf.name;
	case PD_BACKEND_AUTO:
		break;
	}
	return "auto";
}

bool pd_backend_pins_take_descriptors(void)
{
	for (unsigned i = 0; i <= PD_MAX_DEVICES; i++) {
		/* Acquire: as in pd_backend_for(). */
		const struct pd_backend *found = __atomic_load_n(&chosen[i], __ATOMIC_ACQUIRE);

		if (found && found->pin_takes_descriptor)
			return true;
	}
	return pd_config()->backend == PD_BACKEND_DMABUF;
}

/* ---- none --------------------------------------------------------------------------------- */

static bool none_works(int device)
{
	(void)device;
	return true;
}

static int none_pin(struct pd_pin *pin, void *context, int *driver_error)
{
	(void)pin;
	(void)context;
	*driver_error = 0;
	return PINDOWN_OK;
}

static void none_unpin(struct pd_pin *pin)
{
	(void)pin;
}

const struct pd_backend pd_backend_none = {
	.name = "none",
	.works_on = none_works,
	.pin = none_pin,
	.unpin = none_unpin,
	.abandon = none_unpin,
};
