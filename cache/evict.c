/* SPDX-License-Identifier: MIT */
/*
 * Which region makes room for another: the least recently used idle one (§2.1, §2.5).
 *
 * A hit must not touch a list that others share. It only stores the cache's tick in the region, and
 * the tick goes on with each pin, so uses are told apart as finely as evictions, which happen in
 * pins only, can tell. The queue is put in order when somebody evicts: a region that was used since
 * it got its place is moved to where its stamp belongs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/resource.h>

#include "cache.h"
#include "config.h"
#include "index.h"
#include "log.h"
#include "object.h"
#include "point.h"

struct pd_queue pd_queue;

/* Behind `after`, or in front when that is 0. */
static void link_behind(struct pd_queue *queue, uint32_t after, uint32_t number)
{
	uint32_t before = after ? pd_regions[after].newer : queue->oldest;

	pd_regions[number].older = after;
	pd_regions[number].newer = before;
	if (after)
		pd_regions[after].newer = number;
	else
		queue->oldest = number;
	if (before)
		pd_regions[before].older = number;
	else
		queue->newest = number;
}

void pd_queue_append(struct pd_queue *queue, uint32_t number)
{
	link_behind(queue, queue->newest, number);
}

void pd_queue_remove(struct pd_queue *queue, uint32_t number)
{
	struct pindown_region *region = &pd_regions[number];

	if (region->older)
		pd_regions[region->older].newer = region->newer;
	else
		queue->oldest = region->newer;
	if (region->newer)
		pd_regions[region->newer].older = region->older;
	else
		queue->newest = region->older;
	region->older = region->newer = 0;
}

/* Ticks wrap round; what counts is which is ahead. */
static bool is_later(uint32_t tick, uint32_t than)
{
	return (int32_t)(tick - than) > 0;
}

/* To where its last use puts it; not exactly so if that is far from the end. */
static void requeue(uint32_t number, uint32_t stamp)
{
	uint32_t after;

	pd_queue_remove(&pd_queue, number);
	after = pd_queue.newest;
	for (unsigned i = 0; i < 64 && after && is_later(pd_regions[after].queued, stamp); i++)
		after = pd_regions[after].older;
	pd_regions[number].queued = stamp;
	link_behind(&pd_queue, after, number);
}

static bool has_moved(uint32_t number)
{
	struct pindown_region *region = &pd_regions[number];
	uint32_t stamp = __atomic_load_n(&region->stamp, __ATOMIC_RELAXED);

	if (stamp == region->queued)
		return false;
	requeue(number, stamp);
	return true;
}

/* As far as can be told without a barrier; pd_victims_add_idle() makes sure. */
static bool can_go(uint32_t number, int device)
{
	return (device < 0 || pd_regions[number].pin.device == device) &&
	       !pd_region_in_use(number) && !pd_objects_hold(number, PINDOWN_REASON_EVICTED);
}

/* It is a live one, as all in the queue. false: somebody holds it. */
static bool evict(struct pd_victims *victims, uint32_t number)
{
	PD_POINT(EVICT_CHOSEN, pd_region_base_now(number));
	pd_regions[number].victim = 0;
	pd_victims_add_idle(victims, number, PINDOWN_REASON_EVICTED);
	return victims->first != 0;
}

bool pd_evict_one(struct pd_victims *victims, int device)
{
	bool moved = false;

	for (uint32_t number = pd_queue.oldest, next; number; number = next) {
		next = pd_regions[number].newer;
		if (has_moved(number) && pd_regions[number].newer != next)
			moved = true; /* mostly to where the walk still comes */
		else if (can_go(number, device) && evict(victims, number))
			return true;
	}
	for (uint32_t number = pd_queue.oldest; moved && number; number = pd_regions[number].newer)
		if (can_go(number, device) && evict(victims, number))
			return true;
	return false;
}

/* ---- budgets ------------------------------------------------------------------------------ */

/*
 * A region of the dma-buf backend costs a descriptor, and the program must not run out of them for
 * our sake: half of what it may have, if it doesn't say otherwise.
 */
static uint64_t default_max_regions(void)
{
	struct rlimit files;
	int saved = errno;
	uint64_t most = pd_region_capacity();

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY &&
	    files.rlim_cur / 2 < most)
		most = files.rlim_cur / 2;
	errno = saved;
	return most ? most : 1;
}

uint64_t pd_max_regions(void)
{
	uint64_t asked = pd_config()->max_regions;
	uint64_t capacity = pd_region_capacity();

	if (!asked)
		return default_max_regions();
	return asked < capacity ? asked : capacity;
}

/* Lock held. */
static bool fits(uint64_t bytes)
{
	uint64_t most = pd_config()->max_bytes;
	uint32_t count;
	uint64_t reserved = pd_flights_reserved(&count);

	if (pd_pinned_regions() + count + 1 > pd_max_regions())
		return false;
	return !most || pd_pinned_bytes() + reserved + bytes <= most;
}

int pd_make_room(struct pd_flight *flight, uint64_t bytes)
{
	uint64_t most = pd_config()->max_bytes, deadline = 0;
	int result = PINDOWN_ERR_NO_SPACE;

	if (most && bytes > most)
		return result;
	for (;;) {
		struct pd_victims victims = {0};
		bool again;

		pd_lock();
		if (fits(bytes)) {
			flight->reserved = bytes;
			result = PINDOWN_OK;
			pd_unlock();
			return result;
		}
		if (!deadline)
			deadline = pd_deadline(PD_RACE_WAIT_NS);
		/* With nothing to evict, what another thread is unpinning just now may be enough.
		 */
		again = pd_evict_one(&victims, -1) || (pd_dying_any() && pd_wait_settled(deadline));
		pd_unlock();
		pd_victims_dispatch(&victims);
		if (!again)
			return result;
	}
}

bool pd_evict_for(int device)
{
	struct pd_victims victims = {0};
	bool again;

	pd_lock();
	again = pd_evict_one(&victims, device) ||
		(pd_dying_any() && pd_wait_settled(pd_deadline(PD_RACE_WAIT_NS)));
	pd_unlock();
	pd_victims_dispatch(&victims);
	return again;
}

/*
 * Lock held. Nothing is left, and there was much: giving back what a few regions took would cost the
 * next pin its page faults again.
 */
static bool is_worth_trimming(void)
{
	return pd_region_high_water() >= 1024 && pd_pinned_regions() == 0 && !pd_flights_any() &&
	       !pd_dying_any();
}

void pd_give_back(uint64_t bytes)
{
	for (uint64_t given = 0; given < bytes;) {
		struct pd_victims victims = {0};

		pd_lock();
		if (pd_evict_one(&victims, -1))
			given += pd_regions[victims.first].pin.length;
		else
			given = bytes;
		pd_unlock();
		pd_victims_dispatch(&victims);
	}
}

PD_EXPORT int pindown_flush(void)
{
	struct pd_victims victims = {0};
	uint32_t candidates = 0;
	int count;

	pd_lock();
	for (uint32_t n = pd_queue.oldest; n; n = pd_regions[n].newer)
		if (can_go(n, -1)) {
			pd_regions[n].victim = candidates;
			candidates = n;
		}
	if (candidates)
		pd_victims_add_idle(&victims, candidates, PINDOWN_REASON_FLUSHED);
	pd_unlock();
	count = pd_victims_dispatch(&victims);
	pd_lock();
	if (is_worth_trimming()) {
		pd_index_trim();
		pd_region_trim();
	}
	pd_unlock();
	return count;
}
