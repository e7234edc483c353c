/* SPDX-License-Identifier: MIT */
/* Choosing the backend that pins memory of a device; and the backend that pins nothing. */
#define _GNU_SOURCE
#include <stddef.h>

#include "cache/backend/backend.h"
#include "cache/base/environment/config.h"
#include "cache/base/environment/log.h"
#include "cache/pindown.h"

/* In the order in which `auto` tries them. "none" pins nothing and is used only by request. */
static const struct pdn_backend *const automatic[] = {&pdn_backend_kmod, &pdn_backend_dmabuf};

static const struct pdn_backend *chosen[PDN_MAX_DEVICES + 1]; /* NULL: not chosen yet */
static const struct pdn_backend nothing = {.name = "unavailable"};

static const struct pdn_backend *first_that_works(int device)
{
	for (unsigned i = 0; i < sizeof(automatic) / sizeof(automatic[0]); i++)
		if (automatic[i]->works_on(device))
			return automatic[i];
	return NULL;
}

static const char *why_not(void)
{
	switch (pdn_config()->backend) {
	case PDN_BACKEND_KMOD:
	case PDN_BACKEND_KMOD_PERSISTENT:
		return "/dev/pindown is missing, not open to this user, or can't pin this way";
	case PDN_BACKEND_DMABUF:
		return "its driver exports no dma-buf (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0)";
	default:
		return "there is no /dev/pindown, and its driver exports no dma-buf";
	}
}

static const struct pdn_backend *choose(int device)
{
	static bool said;
	const struct pdn_backend *found = NULL;

	switch (pdn_config()->backend) {
	case PDN_BACKEND_NONE:
		return &pdn_backend_none;
	case PDN_BACKEND_KMOD:
	case PDN_BACKEND_KMOD_PERSISTENT:
		found = pdn_backend_kmod.works_on(device) ? &pdn_backend_kmod : NULL;
		break;
	case PDN_BACKEND_DMABUF:
		found = pdn_backend_dmabuf.works_on(device) ? &pdn_backend_dmabuf : NULL;
		break;
	case PDN_BACKEND_AUTO:
		found = first_that_works(device);
		break;
	}
	if (!found)
		pdn_log_once(&said, PDN_LOG_WARN,
			     "memory of device %d can't be pinned with PINDOWN_BACKEND=%s: %s; the "
			     "program continues unpinned",
			     device, pdn_backend_name(), why_not());
	return found;
}

static unsigned place_of(int device)
{
	return device >= 0 && device < PDN_MAX_DEVICES ? (unsigned)device : PDN_MAX_DEVICES;
}

const struct pdn_backend *pdn_backend_chosen(int device)
{
	const struct pdn_backend *found =
		__atomic_load_n(&chosen[place_of(device)], __ATOMIC_ACQUIRE);

	return found == &nothing ? NULL : found;
}

/* The answer never changes, so two threads may ask at once. */
const struct pdn_backend *pdn_backend_for(int device)
{
	unsigned place = place_of(device);
	/* Acquire: pairs with the store below, so that what works_on() has set up is visible. */
	const struct pdn_backend *found = __atomic_load_n(&chosen[place], __ATOMIC_ACQUIRE);

	if (!found) {
		found = choose(device);
		__atomic_store_n(&chosen[place], found ? found : &nothing, __ATOMIC_RELEASE);
	}
	return found == &nothing ? NULL : found;
}

const struct pdn_backend *pdn_backend_of(const struct pdn_pin *pin)
{
	return pin->fell_back ? &pdn_backend_dmabuf : pdn_backend_for(pin->device);
}

const struct pdn_backend *pdn_backend_instead_of(const struct pdn_backend *backend)
{
	return backend == &pdn_backend_kmod && pdn_config()->backend == PDN_BACKEND_AUTO
		       ? &pdn_backend_dmabuf
		       : NULL;
}

const char *pdn_backend_name(void)
{
	for (unsigned i = 0; i <= PDN_MAX_DEVICES; i++) {
		/* Acquire: as in pdn_backend_for(). */
		const struct pdn_backend *found = __atomic_load_n(&chosen[i], __ATOMIC_ACQUIRE);

		if (found)
			return found->name;
	}
	switch (pdn_config()->backend) {
	case PDN_BACKEND_NONE:
		return pdn_backend_none.name;
	case PDN_BACKEND_KMOD:
	case PDN_BACKEND_KMOD_PERSISTENT:
		return pdn_backend_kmod.name;
	case PDN_BACKEND_DMABUF:
		return pdn_backend_dmabuf.name;
	case PDN_BACKEND_AUTO:
		break;
	}
	return "auto";
}

bool pdn_backend_pins_take_descriptors(void)
{
	for (unsigned i = 0; i <= PDN_MAX_DEVICES; i++) {
		/* Acquire: as in pdn_backend_for(). */
		const struct pdn_backend *found = __atomic_load_n(&chosen[i], __ATOMIC_ACQUIRE);

		if (found && found->pin_takes_descriptor)
			return true;
	}
	return pdn_config()->backend == PDN_BACKEND_DMABUF;
}

/* ---- none --------------------------------------------------------------------------------- */

static bool none_works(int device)
{
	(void)device;
	return true;
}

static int none_pin(struct pdn_pin *pin, void *context, int *driver_error)
{
	(void)pin;
	(void)context;
	*driver_error = 0;
	return PINDOWN_OK;
}

static void none_unpin(struct pdn_pin *pin)
{
	(void)pin;
}

const struct pdn_backend pdn_backend_none = {
	.name = "none",
	.works_on = none_works,
	.pin = none_pin,
	.unpin = none_unpin,
	.abandon = none_unpin,
};
