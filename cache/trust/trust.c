/* SPDX-License-Identifier: MIT */
/*
 * Whether a hit goes by what the cache knows or is checked by buffer id. It is checked where frees
 * are not watched at all, where they can't all be seen (volatile.c), and everywhere once something
 * has shown that one may be missed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "cache/show/account.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/thread/thread.h"
#include "cache/driver/driver.h"
#include "cache/room/queues.h"
#include "cache/end/work.h"
#include "cache/hook_events.h"
#include "cache/end/invalidate.h"
#include "cache/trust/past.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/writer/writer.h"
#include "cache/trust/trust.h"

enum trust {
	NOT_WATCHED, /* hook/ has not said that frees are watched */
	WATCHED,
	DISTRUSTED, /* for good */
};

/* Changed under the lock; pdn_is_distrusted() reads it without. */
static PDN_AT_LOAD uint32_t trust;

bool pdn_is_distrusted(void)
{
	return __atomic_load_n(&trust, __ATOMIC_RELAXED) == DISTRUSTED;
}

bool pdn_is_intercepting(void)
{
	return trust == WATCHED;
}

enum pdn_state pdn_state_for(unsigned checked)
{
	switch (pdn_config()->verify) {
	case PDN_VERIFY_ALWAYS:
		return PDN_CHECKED;
	case PDN_VERIFY_NEVER:
		return PDN_LIVE;
	case PDN_VERIFY_AUTO:
		break;
	}
	return checked || trust != WATCHED ? PDN_CHECKED : PDN_LIVE;
}

/*
 * The thread that marks regions without the lock raises the count first, and then looks for live
 * ones: either it finds this one, or the count is seen here.
 */
void pdn_region_goes_live(uint32_t number, unsigned checked)
{
	uint8_t *state = &pdn_briefs[number].state;

	__atomic_store_n(state, pdn_state_for(checked), __ATOMIC_SEQ_CST);
	pdn_full_fence();
	if (pdn_past_any())
		__atomic_store_n(state, PDN_PAST, __ATOMIC_SEQ_CST);
}

void pdn_region_set_checked(uint32_t number, unsigned flags)
{
	pdn_region_set_flags(&pdn_regions[number], flags);
	pdn_region_goes_live(number, flags & PDN_REGION_CHECKED);
}

/*
 * Lock held, which pins and evictions hold too when they ask pdn_state_for() and set a state. A hit
 * pairs with this in hold_if(): a hit that still loads LIVE began before this is over.
 */
static void check_what_is_live(void)
{
	for (uint32_t n = pdn_queues_first(); n; n = pdn_queues_next(n))
		if (pdn_state_of(n) == PDN_LIVE)
			pdn_region_goes_live(n, pdn_regions[n].flags & PDN_REGION_VOLATILE);
}

/* Lock held. */
static void change_trust(enum trust to)
{
	__atomic_store_n(&trust, to, __ATOMIC_RELAXED);
	check_what_is_live();
	pdn_account_process();
}

PDN_STARTS void pdn_set_intercepting(bool yes)
{
	PDN_UNCANCELLED;
	uint32_t before = NOT_WATCHED;

	/*
	 * At load nothing is cached or published yet, as a rule, and no lock is taken. If another
	 * thread pins just now, that region is checked at each hit.
	 */
	if (yes && !pdn_process_has_begun()) {
		__atomic_compare_exchange_n(&trust, &before, WATCHED, false, __ATOMIC_RELAXED,
					    __ATOMIC_RELAXED);
		return;
	}
	pdn_lock();
	if (trust != DISTRUSTED)
		change_trust(yes ? WATCHED : NOT_WATCHED);
	pdn_unlock();
}

/* A flight of this thread names the memory, or its free waits in another way. */
enum pdn_truth pdn_compare_in_flight(struct pindown_region *region)
{
	if (!pdn_region_stands(region))
		return PDN_FALSE;
	return pdn_driver_compare(region->base, region->end, region->buffer_id,
				  pdn_region_mappings_hash(region));
}

/* It waits for each comparison that it does not meet here: see end_wide() in hook_events.c. */
static bool another_ends_a_context(void)
{
	const struct pdn_memory none = {.context = PDN_ANY_CONTEXT};

	return __atomic_load_n(&pdn_any_wide_end_ever, __ATOMIC_SEQ_CST) &&
	       pdn_guard_on(&none) & PDN_GUARDED;
}

/*
 * The free of a live region's memory finds the region, and so need not be told of a question by a
 * flight, which costs each thread a barrier: it waits for who compares the region, which is in use
 * (pdn_let_go()).
 */
enum pdn_truth pdn_compare(struct pindown_region *region)
{
	const struct pdn_memory memory = pdn_memory_of(region);
	struct pdn_thread *self = pdn_self_tls;
	enum pdn_truth truth = PDN_UNKNOWN;

	if (!self || self->comparing)
		return pdn_region_stands(region)
			       ? pdn_compare_memory(memory.base, memory.end, region->buffer_id,
						    pdn_region_mappings_hash(region))
			       : PDN_FALSE;
	pdn_publish32(&self->comparing, pdn_region_number(region));
	PDN_POINT(HIT_COMPARES, region->base);
	/* Pairs with pdn_region_set_state(), and with the guard of an end. */
	if (pdn_state_is_live(__atomic_load_n(&pdn_brief_of(region)->state, __ATOMIC_SEQ_CST)) &&
	    !another_ends_a_context())
		truth = pdn_compare_in_flight(region);
	/* Release: a free that sees this goes to the driver after the answer. */
	__atomic_store_n(&self->comparing, 0, __ATOMIC_RELEASE);
	return truth;
}

/* ---- losing it ---------------------------------------------------------------------------- */

/* The reason, kept for the trace of a process that is forked later. The first one stays. */
static char reason[384];
static bool has_reason;

static const char *what_follows(void)
{
	return pdn_config()->verify == PDN_VERIFY_NEVER
		       ? "hits are still not checked, because PINDOWN_VERIFY is never"
		       : "from now on every hit is checked by buffer id";
}

/* Lock not held. */
static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say_why(const char *format, va_list arguments)
{
	int saved = errno;

	/* Relaxed: it only decides which thread is the first. */
	if (__atomic_exchange_n(&has_reason, true, __ATOMIC_RELAXED))
		return;
	vsnprintf(reason, sizeof(reason), format, arguments);
	pdn_log(PDN_LOG_WARN, "%s; %s", reason, what_follows());
	pdn_trace_distrust(reason);
	errno = saved;
}

static void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say_why(format, arguments);
	va_end(arguments);
}

void pdn_distrust(const char *format, ...)
{
	PDN_UNCANCELLED;
	va_list arguments;

	if (pdn_is_distrusted() || !pdn_config()->enabled)
		return;
	pdn_lock();
	change_trust(DISTRUSTED);
	pdn_unlock();
	va_start(arguments, format);
	say_why(format, arguments);
	va_end(arguments);
}

void pdn_trust_ends(void)
{
	/* Where frees are not watched each hit is checked anyway; that is how frees are found. */
	if (trust == WATCHED)
		change_trust(DISTRUSTED);
}

/* From what the driver described at the pin. */
static const char *kind_of(const struct pindown_region *region)
{
	if (pdn_region_context(region))
		return "a context, as cuMemAlloc makes it";
	if (!pdn_region_pool(region))
		return "no context and no pool, as cuMemMap makes it";
	return "a pool, as cuMemAllocAsync makes it";
}

/* The caller of that free can't be known: the call was not seen. */
void pdn_tell_of_miss(const struct pindown_region *region, const char *how)
{
	if (!pdn_is_distrusted())
		return;
	say("a free went unseen, of %llu bytes at 0x%llx (memory of %s; buffer id %llu): %s",
	    (unsigned long long)(region->end - region->base), (unsigned long long)region->base,
	    kind_of(region), (unsigned long long)region->buffer_id, how);
}

/* ---- looking all the same ----------------------------------------------------------------- */

uint32_t pdn_hits_for_a_look = 4096;

/*
 * By chance, so that a program that uses its buffers in turn does not have the same one compared
 * each time: after 50 % to 150 % of that many hits.
 */
static int32_t hits_until_next(uint64_t hits)
{
	uint32_t some = pdn_hits_for_a_look;

	return (int32_t)(some / 2 + (uint32_t)(hits * 0x9e3779b97f4a7c15u >> 33) % some);
}

/* While hits are traced all of them come here. */
static bool is_due(const struct pdn_thread *self, uint64_t hits)
{
	if (pdn_tracing(PDN_EV_HIT))
		return (hits + 1) % pdn_hits_for_a_look == 0;
	return self->is_looking;
}

/*
 * A region over n mappings takes n times as long to compare. After such a comparison the next one
 * comes later, so that a hit's share of the time stays below that of a region over 64.
 */
static int32_t hits_after(const struct pindown_region *region, uint64_t hits)
{
	uint64_t mappings =
		pdn_region_mappings_hash(region) ? (region->end - region->base) >> 21 : 0;
	uint64_t until = (uint64_t)hits_until_next(hits) * (1 + mappings / 64);

	return until < INT32_MAX ? (int32_t)until : INT32_MAX;
}

/* `region` is held: it is the one that is looked at now. */
bool pdn_look_now(struct pdn_thread *self, const struct pindown_region *region)
{
	uint64_t hits = self->counters->hits;
	bool due;

	/* Relaxed: as pdn_thread_counts_down(). */
	if (__atomic_load_n(&self->until_look, __ATOMIC_RELAXED) >= 0)
		return false;
	due = is_due(self, hits);
	self->is_looking = true;
	__atomic_store_n(&self->until_look, pdn_tracing(PDN_EV_HIT) ? 0 : hits_after(region, hits),
			 __ATOMIC_RELAXED);
	return due && pdn_config()->verify == PDN_VERIFY_AUTO;
}
