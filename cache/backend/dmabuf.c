/* SPDX-License-Identifier: MIT */
/*
 * Pinning without a kernel module: the driver exports the memory as a dma-buf, and the memory stays
 * as long as the descriptor is open. There is no callback and no revocation, so the range has to be
 * ended before the driver's free.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/backend/backend.h"
#include "cache/base/descriptor.h"
#include "cache/base/fork_gate.h"
#include "cache/driver/cuda_abi.h"
#include "cache/driver/driver.h"
#include "cache/pindown.h"

bool pd_pin_has_dmabuf(const struct pd_pin *pin)
{
	return pd_descriptor_is(pin->fd, pin->fd_identity);
}

void pd_pin_take_dmabuf(struct pd_pin *pin, int fd)
{
	int saved = errno;

	fd = pd_descriptor_move_up(fd);
	pin->fd_identity = pd_descriptor_identity(fd);
	/* Release: a child forked at this moment closes it if it sees which file it is. */
	__atomic_store_n(&pin->fd, fd, __ATOMIC_RELEASE);
	pd_dmabuf_opened();
	errno = saved;
}

void pd_pin_close_dmabuf(struct pd_pin *pin)
{
	int saved = errno;

	if (pin->fd < 0)
		return;
	pd_descriptor_begin();
	if (pd_pin_has_dmabuf(pin)) {
		pd_descriptor_note(pin->fd, pin->fd_identity);
		pd_descriptor_close(pin->fd);
	}
	pd_dmabuf_closed();
	pin->fd = -1;
	pd_descriptor_end();
	errno = saved;
}

static bool dmabuf_works_on(int device)
{
	return pd_driver_device_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == 1;
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
		return errno == EMFILE || errno == ENFILE || pd_descriptors_exhausted()
			       ? PINDOWN_ERR_NO_SPACE
			       : PINDOWN_ERR_DRIVER;
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
		return PINDOWN_ERR_NO_CUDA;
	default:
		return PINDOWN_ERR_DRIVER;
	}
}

static int dmabuf_pin(struct pd_pin *pin, void *context, int *driver_error)
{
	int saved = errno, fd = -1, result;

	errno = 0;
	*driver_error = pd_driver_export(pin->base, pin->length, context, pin->device, &fd);
	result = result_of(*driver_error);
	if (result == PINDOWN_OK)
		pd_pin_take_dmabuf(pin, fd);
	errno = saved;
	return result;
}

const struct pd_backend pd_backend_dmabuf = {
	.name = "dmabuf",
	.pin_takes_descriptor = true,
	.works_on = dmabuf_works_on,
	.pin = dmabuf_pin,
	.unpin = pd_pin_close_dmabuf,
	.abandon = pd_pin_close_dmabuf,
	.close_dmabuf = pd_pin_close_dmabuf,
	.open_dmabuf = dmabuf_pin,
	.has_dmabuf = pd_pin_has_dmabuf,
};
