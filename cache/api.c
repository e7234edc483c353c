/* SPDX-License-Identifier: MIT */
/* The rest of pindown.h: texts for results, and the version. */
#define _GNU_SOURCE
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/pindown.h"

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

PDN_EXPORT const char *pindown_version(void)
{
	return STRING(PINDOWN_VERSION_MAJOR) "." STRING(PINDOWN_VERSION_MINOR);
}

PDN_EXPORT int pindown_driver_error(void)
{
	const struct pdn_thread *self = pdn_self();

	return self ? self->driver_error : 0;
}

PDN_EXPORT const char *pindown_strerror(int result)
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
		return "no pin space is left, or none within the budget, and unpinning what is "
		       "idle is not enough";
	case PINDOWN_ERR_BUSY:
		return "this thread is freeing the memory, or making or destroying the object, or "
		       "the memory was freed and allocated again a hundred times meanwhile";
	case PINDOWN_ERR_NO_BACKEND:
		return "there is no way to pin memory of this device";
	case PINDOWN_ERR_DRIVER:
		return "the CUDA driver refused to pin; pindown_driver_error() has its code";
	case PINDOWN_ERR_NO_MEMORY:
		return "no host memory for the cache's own records";
	case PINDOWN_ERR_NO_DMABUF:
		return "the backend in use has no dma-buf descriptors";
	case PINDOWN_ERR_DEADLOCK:
		return "waiting would never end: another thread may be waiting for this one";
	case PINDOWN_ERR_WOULD_WAIT:
		return "another thread is freeing or pinning the memory, and the call must not "
		       "wait";
	case PINDOWN_ERR_TIMED_OUT:
		return "another thread has been at work on the memory for too long";
	}
	if (PINDOWN_CREATE_ERROR(result))
		return "the consumer could not make its object; its error number is in the result";
	return result > 0 ? "success" : "unknown result";
}
