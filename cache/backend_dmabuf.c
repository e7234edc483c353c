/* SPDX-License-Identifier: MIT */
/*
 * Pinning without a kernel module: the driver exports the memory as a dma-buf, and as long as the
 * descriptor is open the memory stays. It gets no callback and no revocation, which is why the
 * range has to be ended before the driver's free (§2.3).
 *
 * The descriptor lives among the program's own. So it is moved up, away from the low numbers that
 * programs count on; it is close-on-exec; and before it is closed it is compared with what it was:
 * a program that closes all descriptors may have somebody else's under our number by then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend.h"
#include "cuda_abi.h"
#include "driver.h"
#include "pindown.h"

/* Not close(): that is a cancellation point, and this runs inside the program's cuMemFree(). */
static void close_fd(int fd)
{
	syscall(SYS_close, fd);
}

/* One number for the file behind a descriptor, never 0; 0 when there is none. */
static uint64_t identity_of(int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		return 0;
	return (st.st_ino ^ (uint64_t)st.st_dev << 40) | 1ull << 63;
}

static bool is_still_ours(const struct pd_pin *pin)
{
	return pin->fd >= 0 && identity_of(pin->fd) == pin->fd_identity;
}

/* Half-way up what the process may have. */
static int lowest_number_for_us(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > 1u << 20)
		return 1 << 19;
	return (int)(files.rlim_cur / 2);
}

static int move_up(int fd)
{
	int moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest_number_for_us());

	if (moved < 0) {
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		return fd;
	}
	close_fd(fd);
	return moved;
}

static bool dmabuf_works_on(int device)
{
	return pd_driver_device_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == 1;
}

/* Out of BAR space or memory; or, as the driver's wrapper of the ioctl puts it, out of descriptors.
 */
static int result_of(int error)
{
	switch (error) {
	case CUDA_SUCCESS:
		return PINDOWN_OK;
	case CUDA_ERROR_OUT_OF_MEMORY:
	case CUDA_ERROR_OPERATING_SYSTEM:
		return PINDOWN_ERR_NO_SPACE;
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED:
		return PINDOWN_ERR_NO_CUDA;
	default:
		return PINDOWN_ERR_DRIVER;
	}
}

static int dmabuf_pin(struct pd_pin *pin, int *driver_error)
{
	int saved = errno;
	int fd = -1;

	*driver_error = pd_driver_export(pin->base, pin->length, pin->context, pin->device, &fd);
	if (*driver_error == CUDA_SUCCESS) {
		pin->fd = move_up(fd);
		pin->fd_identity = identity_of(pin->fd);
	}
	errno = saved;
	return result_of(*driver_error);
}

static void dmabuf_close(struct pd_pin *pin)
{
	int saved = errno;

	if (is_still_ours(pin))
		close_fd(pin->fd);
	pin->fd = -1;
	errno = saved;
}

const struct pd_backend pd_backend_dmabuf = {
	.name = "dmabuf",
	.works_on = dmabuf_works_on,
	.pin = dmabuf_pin,
	.unpin = dmabuf_close,
	.abandon = dmabuf_close,
	.close_dmabuf = dmabuf_close,
	.open_dmabuf = dmabuf_pin,
	.has_dmabuf = is_still_ours,
};
