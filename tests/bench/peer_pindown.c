// SPDX-License-Identifier: MIT
/*
 * pindown's cache through pindown.h. Run with the preload, PINDOWN_BACKEND=none and the
 * libcuda.so.1 that does nothing, for which each 64 KiB is an allocation: a free goes through its
 * wrapper.
 */
#include "calls.h"
#include "peer.h"
#include "cache/pindown.h"

const char peer_name[] = "pindown";
const bool peer_has_frees = true;

static pindown_region **held;
static uint32_t held_count;

static struct pindown_stats stats(void)
{
	struct pindown_stats now;

	if (pindown_stats(&now, sizeof(now), -1) != PINDOWN_OK)
		stop("pindown_stats", 0);
	return now;
}

const char *peer_version(void)
{
	return pindown_version();
}

void peer_open(size_t regions, size_t limit)
{
	struct pindown_stats now;

	(void)regions;
	open_driver();
	must(cuMemFree_v2(PEER_BYTES), "cuMemFree");
	now = stats();
	if (!now.intercepting)
		stop("frees are not watched: is libpindown.so preloaded?", 0);
	if (limit && now.max_regions != limit)
		stop("PINDOWN_MAX_REGIONS is not the limit", (int)now.max_regions);
}

void peer_thread(void)
{
	use_context();
}

static inline pindown_region *get(uint64_t addr)
{
	pindown_region *region;
	int result = pindown_get(addr, 4096, 0, &region);

	if (__builtin_expect(result != PINDOWN_OK, 0))
		stop(pindown_strerror(result), result);
	return region;
}

void peer_gets(const struct regions *regions, const uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++)
		pindown_put(get(region_at(regions, order[i])));
}

void peer_gets_and_frees(const struct regions *regions, const uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t addr = region_at(regions, order[i] & ~PEER_FREED);

		if (order[i] & PEER_FREED)
			cuMemFree_v2(addr);
		pindown_put(get(addr));
	}
}

void peer_frees(const struct regions *regions, const uint32_t *order, size_t count)
{
	for (size_t i = 0; i < count; i++)
		cuMemFree_v2(region_at(regions, order[i]));
}

void peer_free_range(uint64_t begin, uint64_t length)
{
	if (pindown_invalidate(begin, length) < 0)
		stop("pindown_invalidate", 0);
}

void peer_hold(const struct regions *regions, uint32_t first, uint32_t count)
{
	held = calloc(count, sizeof(*held));
	if (!held)
		stop("no memory", 0);
	for (held_count = 0; held_count < count; held_count++)
		held[held_count] = get(region_at(regions, first + held_count));
}

void peer_let_go(void)
{
	while (held_count)
		pindown_put(held[--held_count]);
	free(held);
}

void peer_flush(const struct regions *regions, const uint32_t *order, size_t count)
{
	(void)regions, (void)order;
	if ((size_t)pindown_flush() != count)
		stop("pindown_flush has not unpinned all", 0);
}

bool peer_count(void)
{
	stats();
	return true;
}

uint64_t peer_pins(void)
{
	return stats().pins;
}
