/* SPDX-License-Identifier: MIT */
/* Counting the descriptors of dma-bufs, and how many there may be. */
#define _GNU_SOURCE
#include "cache/base/process/process.h"
#include "cache/backend/backend.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/environment/log.h"

static PDN_NOT_INHERITED uint32_t open_ones;

/* Relaxed: it is a budget, and callers that find it exhausted check again. */
void pdn_dmabuf_opened(void)
{
	__atomic_fetch_add(&open_ones, 1, __ATOMIC_RELAXED);
}

void pdn_dmabuf_closed(void)
{
	__atomic_fetch_sub(&open_ones, 1, __ATOMIC_RELAXED);
}

uint32_t pdn_dmabufs_open(void)
{
	int32_t open = (int32_t)__atomic_load_n(&open_ones, __ATOMIC_RELAXED);

	/*
	 * A child begins at zero. If a signal handler forked it while its thread was opening or
	 * closing a descriptor, the thread counts that afterwards, and the number is one too high
	 * or negative. A child that is off has no descriptors at all.
	 */
	return open > 0 && !pdn_process_is_off() ? (uint32_t)open : 0;
}

uint64_t pdn_dmabufs_max(void)
{
	uint64_t half = pdn_descriptor_limit() / 2;

	return half ? half : 1;
}

static unsigned long long text(uint64_t number)
{
	return (unsigned long long)number;
}

void pdn_dmabuf_tell_limit(void)
{
	static bool told;

	pdn_log_once(&told, PDN_LOG_WARN,
		     "regions that are pinned by dma-buf have a file descriptor each: no more than "
		     "%llu are pinned at once, half of what ulimit -n allows, and idle ones make "
		     "room for others",
		     text(pdn_dmabufs_max()));
}

void pdn_dmabuf_tell_none_left(void)
{
	static bool told;

	pdn_log_once(
		&told, PDN_LOG_WARN,
		"no file descriptor is left for a dma-buf; the cache uses at most %llu: this GPU "
		"memory is not registered; raise ulimit -n",
		text(pdn_dmabufs_max()));
}
