/* SPDX-License-Identifier: MIT */
/*
 * pindown.ko of some release, for a program that it is preloaded into: /dev/pindown as that
 * release's kmod/pindown_ioctl.h describes it, which this file is compiled with. It takes a
 * caller's structures as the module does (pdn_ioctl() in kmod/ioctl.c), and pins whatever it is
 * asked to. At the end of a program that has opened it, MODULE_LOG has a line: "pins N unpins N
 * refused N".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kmod/pindown_ioctl.h"
#include "module_area.h" /* beside this file, not in the tree of the release */

enum { GRANULARITY = 65536, MAX_ARGUMENT = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned pins, unpins, refused;

static int call_version(struct pindown_version *arg)
{
	if (arg->flags)
		return EINVAL;
	arg->abi = PINDOWN_ABI;
	arg->granularity = GRANULARITY;
	arg->capabilities = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_STATE;
	arg->max_regions = AREA_REGIONS - 1;
	arg->state_length = AREA_LENGTH;
	return 0;
}

static int call_pin(struct pindown_pin *arg)
{
	const uint32_t known =
		PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_FORCE_BAR1 | PINDOWN_PIN_NO_RECLAIM;

	if (arg->flags & ~known || arg->reserved || !arg->length ||
	    (arg->address | arg->length) % GRANULARITY)
		return EINVAL;
	if (!area_pin(arg))
		return EMFILE;
	pins++;
	arg->page_size = GRANULARITY;
	arg->page_count = (uint32_t)(arg->length / GRANULARITY);
	return 0;
}

static int call_unpin(struct pindown_unpin *arg)
{
	if (arg->flags)
		return EINVAL;
	if (!area_unpin(arg->region))
		return ENOENT;
	unpins++;
	arg->state = PINDOWN_REGION_LIVE;
	arg->importers = 0;
	return 0;
}

/* A caller may pass a larger structure: the bytes behind ours must be zero. */
static bool is_understood(const uint32_t *from, size_t own)
{
	for (size_t i = own; i < *from; i++)
		if (((const char *)from)[i])
			return false;
	return true;
}

static int answer(unsigned long request, uint32_t *user)
{
	union {
		uint32_t size;
		struct pindown_version version;
		struct pindown_pin pin;
		struct pindown_unpin unpin;
	} arg;
	size_t own;
	int error;

	switch (_IOC_NR(request)) {
	case _IOC_NR(PINDOWN_IOC_VERSION):
		own = sizeof(arg.version);
		break;
	case _IOC_NR(PINDOWN_IOC_PIN):
		own = sizeof(arg.pin);
		break;
	case _IOC_NR(PINDOWN_IOC_UNPIN):
		own = sizeof(arg.unpin);
		break;
	default:
		return ENOTTY;
	}
	if (*user < own)
		return EINVAL;
	if (*user > MAX_ARGUMENT || !is_understood(user, own))
		return E2BIG;
	memcpy(&arg, user, own);
	if (_IOC_NR(request) == _IOC_NR(PINDOWN_IOC_VERSION))
		error = call_version(&arg.version);
	else if (_IOC_NR(request) == _IOC_NR(PINDOWN_IOC_PIN))
		error = call_pin(&arg.pin);
	else
		error = call_unpin(&arg.unpin);
	if (!error)
		memcpy(user, &arg, own);
	return error;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *user;
	int error;

	va_start(arguments, request);
	user = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(request) != PINDOWN_IOC_TYPE)
		return (int)syscall(SYS_ioctl, fd, request, user);
	pthread_mutex_lock(&lock);
	error = answer(request, user);
	refused += error != 0;
	pthread_mutex_unlock(&lock);
	if (error)
		errno = error;
	return error ? -1 : 0;
}

int open(const char *path, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (strcmp(path, PINDOWN_DEVICE) != 0)
		return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	return area_open();
}

__attribute__((destructor)) static void say(void)
{
	const char *path = getenv("MODULE_LOG");
	FILE *log = area && path ? fopen(path, "w") : NULL;

	if (log) {
		fprintf(log, "pins %u unpins %u refused %u\n", pins, unpins, refused);
		fclose(log);
	}
}
