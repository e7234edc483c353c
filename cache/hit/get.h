/* SPDX-License-Identifier: MIT */
/* Functions of the hit path that other files of the cache use, too. */
#ifndef PDN_GET_H
#define PDN_GET_H

#include <stdint.h>

#include "cache/base/thread/thread.h"
#include "cache/hit/region.h"
#include "cache/pin/region_trace.h"
#include "cache/trace/writer/events.h"

#define PDN_GET_FLAGS (PINDOWN_GET_CACHED | PINDOWN_GET_NOWAIT)

/*
 * A held region is no longer what the driver has at its address: the memory was freed without our
 * noticing. Takes over the caller's hold, which has to go first, or the region would look in use.
 * Lock not held.
 */
void pdn_drop_stale(struct pindown_region *region);

/*
 * Uses are counted up to this many, which are as good as more: so a region that many threads hit is
 * written no more and stays in all their processors' caches. Two threads that count at once may
 * count one. Relaxed: pairs with uses_of() in evict.c, which needs no exact number.
 */
#define PDN_MAX_USES 3u

static inline void pdn_touch(struct pdn_brief *brief)
{
	uint8_t used = __atomic_load_n(&brief->used, __ATOMIC_RELAXED);

	if (__builtin_expect(used < PDN_MAX_USES, 0))
		__atomic_store_n(&brief->used, (uint8_t)(used + 1), __ATOMIC_RELAXED);
}

static inline void pdn_count_hit(struct pdn_thread *self, struct pindown_region *region,
				 uint64_t addr, uint64_t length)
{
	pdn_touch(pdn_brief_of(region));
	pdn_count(&self->counters->hits);
	if (pdn_tracing(PDN_EV_HIT))
		pdn_trace_hit(region, addr, length);
}

#endif
