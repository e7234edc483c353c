/* SPDX-License-Identifier: MIT */
/*
 * What the made-up kernel modules of the tests share: the file behind their /dev/pindown, with the
 * state area that callers map, and a word in it for each region. kmod/pindown_ioctl.h may be that
 * of another release (module.c).
 */
#ifndef MODULE_AREA_H
#define MODULE_AREA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kmod/pindown_ioctl.h"

enum { AREA_REGIONS = 1024 }; /* region 0 is none */
#define AREA_USED   (sizeof(struct pindown_state) + AREA_REGIONS * sizeof(uint32_t))
#define AREA_LENGTH ((AREA_USED + 4095) & ~4095u)

static struct pindown_state *area;	    /* NULL: the device was not opened */
static uint64_t area_lengths[AREA_REGIONS]; /* 0: the number is free */
static uint32_t area_values;

static inline uint32_t *area_word(unsigned region)
{
	return (uint32_t *)(void *)(area + 1) + region;
}

/* A descriptor of the device, or -1. */
static inline int area_open(void)
{
	int fd = memfd_create("pindown", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, AREA_LENGTH) != 0)
		return -1;
	area = mmap(NULL, AREA_LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (area == MAP_FAILED)
		abort();
	area->abi = PINDOWN_ABI;
	return fd;
}

/* Makes a region of what the call asks for, and answers it; 0: all numbers are taken. */
static inline unsigned area_pin(struct pindown_pin *call)
{
	unsigned region = 1;

	while (region < AREA_REGIONS && area_lengths[region])
		region++;
	if (region == AREA_REGIONS)
		return 0;
	area_lengths[region] = call->length;
	call->region = region;
	call->state_value = ++area_values;
	call->state_offset = sizeof(*area) + region * sizeof(uint32_t);
	__atomic_store_n(area_word(region), area_values, __ATOMIC_SEQ_CST);
	return region;
}

static inline bool area_unpin(unsigned region)
{
	if (region >= AREA_REGIONS || !area_lengths[region])
		return false;
	area_lengths[region] = 0;
	__atomic_store_n(area_word(region), 0, __ATOMIC_SEQ_CST);
	return true;
}

#endif
