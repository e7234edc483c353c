/* SPDX-License-Identifier: MIT */
/*
 * The budgets of bytes, regions and descriptors: whether a pin has room, and making it (§2.1 of the
 * guide).
 */
#include "cache/show/account.h"
#include "cache/backend/backend.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/room/budget.h"
#include "cache/room/evict.h"
#include "cache/end/invalidate.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/dmabuf/region_dmabuf.h"

uint64_t pdn_max_regions(void)
{
	uint64_t asked = pdn_config()->max_regions;
	uint64_t capacity = pdn_region_capacity();

	return asked && asked < capacity ? asked : capacity;
}

/* The excess over the budgets with another region of this many bytes. */
struct shortage {
	uint64_t bytes, regions;
};

static uint64_t above(uint64_t value, uint64_t limit)
{
	return value > limit ? value - limit : 0;
}

/* Lock held. */
static struct shortage shortage_for(uint64_t bytes)
{
	uint64_t most = pdn_config()->max_bytes;
	uint32_t count;
	uint64_t reserved = pdn_flights_reserved(&count);

	return (struct shortage){
		.bytes = most ? above(pdn_pinned_bytes() + reserved + bytes, most) : 0,
		.regions = above(pdn_pinned_regions() + count + 1, pdn_max_regions()),
	};
}

static bool is_none(const struct shortage *shortage)
{
	return !shortage->bytes && !shortage->regions;
}

static void reserve(struct pdn_flight *flight, uint64_t bytes)
{
	if (pdn_dmabufs_open() < flight->max_dmabufs)
		flight->reserved = bytes;
}

void pdn_reserve_budget(struct pdn_flight *flight, uint64_t bytes)
{
	struct shortage shortage = shortage_for(bytes);

	if (is_none(&shortage))
		reserve(flight, bytes);
}

/*
 * Lock held. Something may become free without an eviction: another thread is unpinning, or has
 * reserved room for a pin that may yet fail. A flight without a reservation waits itself, and is
 * not waited for.
 */
static bool others_may_give_way(void)
{
	return pdn_endings_of_others() || pdn_flights_of_others_reserve();
}

/* Making room for a pin. */
struct want {
	struct pdn_flight *flight;
	uint64_t deadline;
	bool idle_is_enough; /* found once; it is not asked again at each eviction */
	bool short_of_descriptors;
	bool would_wait;
	struct pdn_ending ending;
};

/*
 * Lock held. If all idle regions together are not enough, none goes. Where there is one region too
 * many, any idle one is enough.
 */
static bool evict_for_budget(struct want *want, struct shortage shortage)
{
	bool one_will_do = !shortage.bytes && shortage.regions == 1;

	pdn_evict_look(-1);
	if (!one_will_do && !want->idle_is_enough)
		want->idle_is_enough = pdn_idle_is_enough(shortage.bytes, shortage.regions);
	return (one_will_do || want->idle_is_enough) && pdn_evict_looked(&want->ending, -1);
}

/*
 * Lock held, and let go of while waiting. Nothing was reserved for this shortage. false: there is
 * nothing to be done.
 */
static bool make_some_room(struct want *want, struct shortage shortage)
{
	want->short_of_descriptors = is_none(&shortage); /* as the budgets have room */
	if (want->short_of_descriptors ? pdn_evict_one(&want->ending, PDN_WITH_DMABUF)
				       : evict_for_budget(want, shortage))
		return true;
	want->idle_is_enough = false;
	if (!want->deadline)
		want->deadline = pdn_race_deadline();
	if (!others_may_give_way() || want->flight->lost)
		return false;
	want->would_wait = want->flight->nowait;
	return !want->would_wait && pdn_wait_for_work(want->deadline);
}

int pdn_evict_and_reserve_budget(struct pdn_flight *flight, uint64_t bytes)
{
	struct want want = {.flight = flight};
	uint64_t most = pdn_config()->max_bytes;
	bool again = !most || bytes <= most;

	if (pdn_dmabufs_open() >= flight->max_dmabufs)
		pdn_dmabuf_close_kept();
	while (again) {
		struct shortage shortage;

		pdn_lock();
		shortage = shortage_for(bytes);
		if (is_none(&shortage))
			reserve(flight, bytes);
		again = !flight->reserved && make_some_room(&want, shortage);
		pdn_unlock();
		pdn_ending_dispatch(&want.ending);
		if (want.short_of_descriptors)
			pdn_dmabuf_tell_limit();
	}
	if (flight->reserved)
		return PINDOWN_OK;
	if (want.would_wait)
		return PINDOWN_ERR_WOULD_WAIT;
	if (want.short_of_descriptors)
		pdn_dmabuf_tell_none_left();
	return PINDOWN_ERR_NO_SPACE;
}

bool pdn_idle_is_enough_for(uint64_t bytes)
{
	struct shortage shortage;
	bool enough;

	pdn_lock();
	shortage = shortage_for(bytes);
	pdn_evict_look(-1);
	enough = pdn_idle_is_enough(shortage.bytes, shortage.regions);
	pdn_unlock();
	return enough;
}
