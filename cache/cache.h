/* SPDX-License-Identifier: MIT */
/* What the cache's own files share. Nothing outside cache/ includes this. */
#ifndef PD_CACHE_H
#define PD_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/driver/driver.h"
#include "cache/race.h"
#include "cache/base/fork_gate.h"
#include "cache/base/lock.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/account.h"
#include "cache/region_trace.h"
#include "cache/index.h"
#include "cache/backend/backend.h"
#include "cache/trace/writer.h"

#define PD_MAX_DEVICES 64

/* ---- invalidate.c: taking regions out -------------------------------------------------------- */

/* Regions on their way out, linked through ->victim. */
struct pd_victims {
	uint32_t first;
	/*
	 * How it is known that their frees were learned of too late, as the end of a sentence;
	 * NULL: they were not. Volatile ones are not counted so.
	 */
	const char *missed;
};

/*
 * Lock held. Unlink a live region: no lookup finds it from here on. Whether it is idle is found out
 * by pd_victims_sort().
 */
void pd_victims_add(struct pd_victims *victims, uint32_t number, enum pindown_reason reason);

/* Lock held. One heavy barrier for all of them; then idle ones are this thread's to unpin. */
void pd_victims_sort_some(const struct pd_victims *victims);
static inline void pd_victims_sort(const struct pd_victims *victims)
{
	if (victims->first)
		pd_victims_sort_some(victims);
}

/* Lock held. Add those of a list of live regions (linked through ->victim) that nobody holds. */
void pd_victims_add_idle(struct pd_victims *victims, uint32_t candidates,
			 enum pindown_reason reason);

/* Lock not held. Tell the subscribers, unpin the idle, let go of the others. Returns how many. */
int pd_victims_dispatch_some(struct pd_victims *victims);
static inline int pd_victims_dispatch(struct pd_victims *victims)
{
	return victims->first ? pd_victims_dispatch_some(victims) : 0;
}

/* End all regions that the scope covers, and wait for others that are at it. Returns how many. */
int pd_end_scope(const struct pd_scope *scope, enum pindown_reason reason);

/*
 * Lock held. If a region that was kept is used by nobody any more, neither held itself nor by its
 * objects, it becomes DYING and is the caller's to unpin. A free of its memory waits for that.
 */
bool pd_region_take_kept(uint32_t number);

/* Unpin a region that was taken so. Lock not held. */
void pd_unpin_kept(uint32_t number);

/*
 * Kept regions whose memory was freed in stream order and on which objects are held that are to be
 * revoked: they wait until the driver hands the memory out again. Lock held, but for the question
 * whether there are any.
 */
bool pd_awaits_reuse(void);
uint32_t pd_first_awaiting(void);
void pd_stop_awaiting(uint32_t number);

/*
 * Lock held, behind a heavy barrier. Until that thread no longer announces this region. Acquire:
 * pairs with the release that ends the announcement (get.c, objects/attach.c).
 */
void pd_wait_for_reader(const struct pd_thread *thread, uint32_t number);

/* Lock held. Is another thread unpinning something that the scope covers? */
bool pd_dying_under(const struct pd_scope *scope);
bool pd_dying_any(void);

/* Lock held. This thread is about to end, and does not unpin what it was to. */
void pd_dying_forsake(void);

/* What a scope is compared with, of a region: it stands until the record is free. */
struct pd_memory pd_memory_of(const struct pindown_region *region);
void pd_end_fork_child(void);

/*
 * Lock not held. A callback of the program's has ended this thread, which is forbidden: nothing of
 * it that others may look at stays on the stack, and nobody waits for it.
 */
void pd_thread_quits(void);

/* ---- evict.c: queues of regions ------------------------------------------------------------ */

struct pd_queue {
	uint32_t oldest, newest, count;
};

/* Lock held for all of these. */
void pd_queue_append(struct pd_queue *queue, uint32_t number);
void pd_queue_remove(struct pd_queue *queue, uint32_t number);

/* A region is live from here on, or no longer; buffer id and pin are set. */
void pd_queues_add(uint32_t number);
void pd_queues_remove(uint32_t number);
void pd_queues_fork_child(void);

/* All live regions, in no order of use: 0 at the end. */
uint32_t pd_queues_first(void);
uint32_t pd_queues_next(uint32_t number);

/*
 * Lock held. Pick the idle region that is to make room (of this device, unless negative) and unlink it
 * into victims; false when there is none.
 */
bool pd_evict_one(struct pd_victims *victims, int device);

/* In place of a device: of any, but one that has a descriptor, or consumer objects. */
#define PD_WITH_DMABUF	(-2)
#define PD_WITH_OBJECTS (-3)

/* Lock held. If there is room for so many bytes under the budgets, reserve them for the flight. */
void pd_take_room(struct pd_flight *flight, uint64_t bytes);

/*
 * Make room under the budgets for so many bytes and reserve them for the flight. Lock not held.
 * PINDOWN_ERR_NO_SPACE when too much else is in use; then nothing was evicted.
 */
int pd_make_room(struct pd_flight *flight, uint64_t bytes);

/* A pin, or an export, that was refused for want of space, and what was evicted for it so far. */
struct pd_pressure {
	int place;	  /* what has to go: as in pd_evict_one() */
	uint64_t wanted;  /* bytes of that device; 0: the shortage is not one of bytes */
	bool is_hopeless; /* it would be refused if all that is idle went: then nothing goes */
	uint32_t regions;
	uint64_t bytes;
};

/*
 * Lock not held. Evict one idle region, or wait for another thread that is unpinning some; false
 * when nothing is left to be done.
 */
bool pd_evict_for(struct pd_pressure *pressure);

/* Lock not held. What idle regions of a device have pinned; it counts up to `enough`. */
uint64_t pd_idle_bytes(int device, uint64_t enough);

/* Another process wants pin space: evict idle regions of so many bytes, if there are as many. */
void pd_give_back(uint64_t bytes);

/* The count budget in force. */
uint64_t pd_max_regions(void);

/* ---- pin.c -------------------------------------------------------------------------------- */

/*
 * Lock held, and let go. A miss: find the allocation, pin it, insert it, hold it. In the state index_seq the index
 * had nothing here; odd: that is not known.
 */
int pd_pin(uint64_t addr, uint64_t length, uint64_t index_seq, struct pindown_region **region);

/* What pindown_driver_error() tells this thread. */
void pd_set_driver_error(int error);

/* ---- get.c -------------------------------------------------------------------------------- */

/* Is a held region still what the driver has at its address? Lock not held. */
enum pd_truth pd_compare(struct pindown_region *region);

/*
 * It is not: somebody freed the memory without our knowing. Takes over the caller's hold, which has
 * to go first, as it would make the region look in use.
 */
void pd_drop_stale(struct pindown_region *region);

/*
 * A few uses are as good as many. Written no more after these, so that a region that many threads
 * hit stays in all their caches; two that count at once may count one. Relaxed: pairs with
 * uses_of() in evict.c, for which any number of late will do.
 */
#define PD_MOST_USES 3u

static inline void pd_touch(struct pd_brief *brief)
{
	uint8_t used = __atomic_load_n(&brief->used, __ATOMIC_RELAXED);

	if (__builtin_expect(used < PD_MOST_USES, 0))
		__atomic_store_n(&brief->used, (uint8_t)(used + 1), __ATOMIC_RELAXED);
}

static inline void pd_count_hit(struct pd_thread *self, struct pindown_region *region,
				uint64_t addr, uint64_t length)
{
	pd_touch(pd_brief_of(region));
	pd_count(&self->counters->hits);
	if (pd_tracing(PD_EV_HIT))
		pd_trace_hit(region, addr, length);
}

/* Lock held. The live region that holds [addr, addr + length), held; or NULL. */
struct pindown_region *pd_hold_locked(uint64_t addr, uint64_t length);

/* ---- volatile.c --------------------------------------------------------------------------- */

/* Lock held. Is any of [begin, end) volatile? */
bool pd_is_volatile(uint64_t begin, uint64_t end);
/* Lock held. Memory here is volatile no more; false: none was. Regions that are here already still are. */
bool pd_volatile_forget(uint64_t begin, uint64_t end);
/* Lock held. Those regions have been compared, and need it no more. */
void pd_volatile_trust(uint64_t begin, uint64_t end);
void pd_volatile_fork_child(void);

/* ---- trust.c ------------------------------------------------------------------------------ */

/* Lock held. The state of a live region of this memory. */
enum pd_state pd_state_for(bool is_volatile);

/* Lock held. Are frees watched, and has nothing shown that one was missed? */
bool pd_is_intercepting(void);

/* Has something shown that not every free is seen? */
bool pd_is_distrusted(void);

/* Lock held. A free was missed, of what was not volatile: as pd_distrust(), but for the line. */
void pd_trust_ends(void);

/* Lock not held. That line, about the region whose free it was, which is still the caller's. */
void pd_tell_of_miss(const struct pindown_region *region, const char *how);

/*
 * Some hits are compared with the driver in any case: one of so many, by chance, in each thread. A
 * thread's counter (base/thread.h) says how many there are until the next.
 */
extern uint32_t pd_hits_for_a_look; /* tests have others */
bool pd_look_now(struct pd_thread *self);

/* ---- subscribe.c -------------------------------------------------------------------------- */

bool pd_has_subscribers(void);
bool pd_subscriber_runs_here(void); /* this thread is in a callback */
void pd_tell_subscribers(const struct pindown_region *region, bool in_use);
void pd_subscribe_fork_child(void);

#endif
