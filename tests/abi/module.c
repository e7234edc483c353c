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
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kmod/pindown_ioctl.h"

enum { MAX_REGIONS = 1024, GRANULARITY = 65536, MAX_ARGUMENT = 4096 };
#define AREA (sizeof(struct pindown_state) + MAX_REGIONS * sizeof(uint32_t))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pindown_state *area; /* not NULL: the device was opened */
static uint64_t lengths[MAX_REGIONS];
static uint32_t values;
static unsigned pins, unpins, refused;

static uint32_t *word_of(unsigned region)
{
	return (uint32_t *)(void *)(area + 1) + region;
}

static int call_version(struct pindown_version *arg)
{
	if (arg->flags)
		return EINVAL;
	arg->abi = PINDOWN_ABI;
	arg->granularity = GRANULARITY;
	arg->capabilities = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_STATE;
	arg->max_regions = MAX_REGIONS - 1;
	arg->state_length = (AREA + 4095) & ~4095u;
	return 0;
}

static int call_pin(struct pindown_pin *arg)
{
	const uint32_t known =
		PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_FORCE_BAR1 | PINDOWN_PIN_NO_RECLAIM;
	unsigned region = 1;

	if (arg->flags & ~known || arg->reserved || !arg->length ||
	    (arg->address | arg->length) % GRANULARITY)
		return EINVAL;
	while (region < MAX_REGIONS && lengths[region])
		region++;
	if (region == MAX_REGIONS)
		return EMFILE;
	pins++;
	lengths[region] = arg->length;
	arg->region = region;
	arg->state_value = ++values;
	arg->state_offset = sizeof(*area) + region * sizeof(uint32_t);
	arg->page_size = GRANULARITY;
	arg->page_count = (uint32_t)(arg->length / GRANULARITY);
	__atomic_store_n(word_of(region), values, __ATOMIC_SEQ_CST);
	return 0;
}

static int call_unpin(struct pindown_unpin *arg)
{
	if (arg->flags)
		return EINVAL;
	if (arg->region >= MAX_REGIONS || !lengths[arg->region])
		return ENOENT;
	unpins++;
	lengths[arg->region] = 0;
	arg->state = PINDOWN_REGION_LIVE;
	arg->importers = 0;
	__atomic_store_n(word_of(arg->region), 0, __ATOMIC_SEQ_CST);
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
	int fd;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	if (strcmp(path, PINDOWN_DEVICE) != 0)
		return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	fd = memfd_create("pindown", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (AREA + 4095) & ~4095u) != 0)
		return -1;
	area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (area == MAP_FAILED)
		abort();
	area->abi = PINDOWN_ABI;
	return fd;
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
