/* SPDX-License-Identifier: MIT */
/*
 * Pinning without a kernel module: the driver exports the memory as a dma-buf, and the memory stays
 * as long as the descriptor is open. There is no callback and no revocation, so the range has to be
 * ended before the driver's free.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/backend/backend.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/process/fork_gate.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/pindown.h"

bool pdn_pin_has_dmabuf(const struct pdn_pin *pin)
{
	return pdn_descriptor_is(pin->fd, pin->fd_identity);
}

void pdn_pin_take_dmabuf(struct pdn_pin *pin, int fd)
{
	fd = pdn_descriptor_move_up(fd);
	pin->fd_identity = pdn_descriptor_identity(fd);
	/* Release: a child forked at this moment closes it if it sees which file it is. */
	__atomic_store_n(&pin->fd, fd, __ATOMIC_RELEASE);
	pdn_dmabuf_opened();
}

void pdn_pin_close_dmabuf(struct pdn_pin *pin)
{
	if (pin->fd < 0)
		return;
	pdn_descriptor_begin();
	if (pdn_pin_has_dmabuf(pin)) {
		pdn_descriptor_note(pin->fd, pin->fd_identity);
		pdn_descriptor_close(pin->fd);
	}
	pdn_dmabuf_closed();
	pin->fd = -1;
	pdn_descriptor_end();
}

static bool dmabuf_works_on(int device)
{
	return pdn_driver_device_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == 1;
}

/*
 * The driver returns CUDA_ERROR_OPERATING_SYSTEM for any system call that fails. It means a lack of
 * space only if a descriptor was missing. The driver may have needed several, been refused the
 * last, and closed the others again: then errno often still says so.
 */
static int result_of(int error)
{
	switch (error) {
	case CUDA_SUCCESS:
		return PINDOWN_OK;
	case CUDA_ERROR_OUT_OF_MEMORY: /* also out of BAR space */
		return PINDOWN_ERR_NO_SPACE;
	case CUDA_ERROR_OPERATING_SYSTEM:
		return errno == EMFILE || errno == ENFILE || pdn_descriptors_exhausted()
			       ? PINDOWN_ERR_NO_SPACE
			       : PINDOWN_ERR_DRIVER;
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
		return PINDOWN_ERR_NO_CUDA;
	default:
		return PINDOWN_ERR_DRIVER;
	}
}

static int dmabuf_open(struct pdn_pin *pin, void *context, int *driver_error)
{
	int saved = errno, fd = -1, result;

	errno = 0;
	*driver_error = pdn_mapping_export(pin, context, &fd);
	result = result_of(*driver_error);
	if (result == PINDOWN_OK)
		pdn_pin_take_dmabuf(pin, fd);
	errno = saved;
	return result;
}

static int dmabuf_pin(struct pdn_pin *pin, void *context, int *driver_error)
{
	pin->pcie = pdn_mapping_first(pin->device);
	return dmabuf_open(pin, context, driver_error);
}

const struct pdn_backend pdn_backend_dmabuf = {
	.name = "dmabuf",
	.pin_takes_descriptor = true,
	.works_on = dmabuf_works_on,
	.pin = dmabuf_pin,
	.unpin = pdn_pin_close_dmabuf,
	.abandon = pdn_pin_close_dmabuf,
	.close_dmabuf = pdn_pin_close_dmabuf,
	.open_dmabuf = dmabuf_open,
	.has_dmabuf = pdn_pin_has_dmabuf,
};
