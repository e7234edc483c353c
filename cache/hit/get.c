/* SPDX-License-Identifier: MIT */
/* Hits, puts, and what can be asked of a region. */
#define _GNU_SOURCE
#include "cache/base/thread/barrier.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/test_point.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/driver/driver.h"
#include "cache/hit/get.h"
#include "cache/hit/index.h"
#include "cache/end/invalidate.h"
#include "cache/end/kept.h"
#include "cache/hit/misuse.h"
#include "cache/trust/past.h"
#include "cache/pin/pin.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/show/page.h"
#include "cache/trust/trust.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Does the brief say that the region has all pages of [addr, addr + length), and that it can't be
 * revoked? For most hits this is enough.
 */
static inline bool has_pages(const struct pdn_brief *brief, uint64_t addr, uint64_t length)
{
	uint32_t first_page = __atomic_load_n(&brief->first_page, __ATOMIC_RELAXED);
	uint32_t first = (uint32_t)(addr >> PDN_PAGE_SHIFT) - first_page;
	uint64_t more = ((addr & (PINDOWN_PAGE_SIZE - 1)) + length - 1) >> PDN_PAGE_SHIFT;

	/* An address before the first page wraps around, far behind the last page here. */
	return first + more < __atomic_load_n(&brief->pages, __ATOMIC_RELAXED);
}

/*
 * The index gives a hint. Announce the region before looking at its state: a thread that takes the
 * region out stores its state first and then waits until nobody announces it (announced.h). So
 * either we see that it is on its way out, or our hold is counted before it is found idle.
 *
 * quick: the thread has hold counts of its own, and the brief says everything about the region that
 * this hit needs.
 */
static inline __attribute__((always_inline)) bool
hold_if(struct pdn_thread *self, bool quick, uint32_t number, const struct pdn_brief *brief,
	uint64_t addr, size_t length, uint32_t *state)
{
	bool ok;

	PDN_POINT(HIT_FOUND, addr);
	pdn_publish32(&self->announced, number);
	PDN_POINT(HIT_ANNOUNCED, addr);
	/*
	 * Acquire: pairs with the release in commit.c. The pages, base and end of a live region are
	 * its own.
	 */
	*state = __atomic_load_n(&brief->state, __ATOMIC_SEQ_CST);
	if (quick)
		ok = likely(*state == PDN_LIVE) && likely(has_pages(brief, addr, length));
	else
		ok = pdn_state_is_live(*state) &&
		     pdn_region_holds(&pdn_regions[number], addr, length) &&
		     pdn_region_word_stands(&pdn_regions[number]);
	if (likely(ok)) {
		PDN_POINT(HIT_LIVE, addr);
		if (quick)
			pdn_hold_own(self->holds, number, 1);
		else
			pdn_hold(self, number);
		PDN_POINT(HIT_HELD, addr);
	}
	/* Release: a thread that sees the announcement end sees the hold. */
	__atomic_store_n(&self->announced, 0, __ATOMIC_RELEASE);
	return ok;
}

void pdn_drop_stale(struct pindown_region *region)
{
	struct pdn_ending ending = {.missed = pdn_region_stands(region)
						      ? "a hit found it gone"
						      : "a hit found it revoked by the kernel"};
	uint32_t number = pdn_region_number(region);
	uint64_t id = region->buffer_id;

	pindown_put(region);
	pdn_lock();
	if (pdn_state_is_live(pdn_state_of(pdn_region_number(region))) && region->buffer_id == id)
		pdn_ending_add(&ending, number, PINDOWN_REASON_STALE);
	pdn_ending_split_idle_and_held(&ending);
	pdn_unlock();
	pdn_ending_dispatch(&ending);
}

/*
 * Compare a held region with the driver, because it has to be checked, or by chance. false: the
 * hold is gone when this returns. Where the driver gives no answer, the region is not returned from
 * here; a region that is trusted is then found once more.
 */
static bool passes_check(struct pdn_thread *self, struct pindown_region *region)
{
	PDN_UNCANCELLED;
	enum pdn_truth truth = pdn_compare(region);

	PDN_POINT(HIT_COMPARED, region->base);
	pdn_count(&self->counters->tag_checks);
	/*
	 * The region may have ended during the comparison: then do not return it. Pairs with
	 * pdn_region_set_state().
	 */
	if (truth == PDN_TRUE &&
	    pdn_state_is_live(__atomic_load_n(&pdn_brief_of(region)->state, __ATOMIC_SEQ_CST)))
		return true;
	if (truth == PDN_FALSE)
		pdn_drop_stale(region);
	else
		pindown_put(region);
	return false;
}

/*
 * The same for a region that was found under the lock, in this state, and whose word was not looked
 * at. It may have ended in another thread by now, because it was stale when this get began: a
 * region that is not trusted is compared all the same.
 */
static bool is_good(struct pdn_thread *self, struct pindown_region *region, uint32_t state)
{
	if (!pdn_region_stands(region)) {
		pdn_drop_stale(region);
		return false;
	}
	return state != PDN_CHECKED || passes_check(self, region);
}

static int bad_arguments(uint64_t addr, size_t length, unsigned flags,
			 struct pindown_region **region)
{
	return !region || length == 0 || addr + length < addr || flags & ~PDN_GET_FLAGS;
}

/* The region under the lock, with its state, or NULL and what pdn_pin() is to be told. */
static struct pindown_region *__attribute__((noinline, cold))
hold_in_order(uint64_t addr, size_t length, uint32_t *state, uint64_t *index_seq)
{
	struct pindown_region *region;

	pdn_lock();
	*index_seq = pdn_index_read_begin();
	region = pdn_hold_locked(addr, length);
	if (region) {
		*index_seq = 1;
		*state = pdn_state_of(pdn_region_number(region));
	}
	pdn_unlock();
	return region;
}

static int __attribute__((noinline))
get_slow(uint64_t addr, size_t length, unsigned flags, struct pindown_region **out)
{
	PDN_UNCANCELLED;
	struct pdn_thread *self = pdn_self_or_anonymous();
	struct pindown_region *region;
	uint64_t index_seq;
	uint32_t state;

	if (bad_arguments(addr, length, flags, out))
		return PINDOWN_ERR_INVALID;
	if (!pdn_config()->enabled)
		return PINDOWN_ERR_DISABLED;
	if (!pdn_process_is_on())
		return PINDOWN_ERR_NO_CUDA;
	pdn_top_open();
	if (flags & PINDOWN_GET_NOWAIT && pdn_past_would_wait())
		return PINDOWN_ERR_WOULD_WAIT;
	pdn_past_look();
	index_seq = pdn_index_read_begin();
	if (pdn_index_find(addr) || !pdn_index_unchanged(index_seq)) {
		/* The index may have been changing when the fast path looked. */
		region = hold_in_order(addr, length, &state, &index_seq);
		if (region && is_good(self, region, state)) {
			pdn_count_hit(self, region, addr, length);
			*out = region;
			return PINDOWN_OK;
		}
	}
	pdn_count(&self->counters->misses);
	if (flags & PINDOWN_GET_CACHED)
		return PINDOWN_ERR_NOT_DEVICE;
	return pdn_pin(addr, length, flags, index_seq, out);
}

/*
 * A hit that has to be checked or traced, or whose turn it is to be compared with the driver by
 * chance. The region is held; `state` is the one that it had then.
 */
static int __attribute__((noinline))
get_held(struct pindown_region *region, uint32_t state, uint64_t addr, size_t length,
	 unsigned flags, struct pindown_region **out)
{
	struct pdn_thread *self = pdn_self_or_anonymous();

	if ((pdn_look_now(self, region) || state == PDN_CHECKED) && !passes_check(self, region))
		return get_slow(addr, length, flags, out);
	pdn_count_hit(self, region, addr, length);
	*out = region;
	return PINDOWN_OK;
}

/*
 * The index has this number: a region whose brief is not enough (each hit is checked, or it can be
 * revoked, or it has not all of its pages), or several regions that share a page.
 */
static int __attribute__((noinline)) get_number(uint64_t addr, size_t length, unsigned flags,
						struct pindown_region **out, uint32_t found)
{
	uint32_t number = pdn_index_choose(found, addr), state;

	if (!number ||
	    !hold_if(pdn_self_tls, false, number, &pdn_briefs[number], addr, length, &state))
		return get_slow(addr, length, flags, out);
	pdn_thread_counts_down(pdn_self_tls);
	return get_held(&pdn_regions[number], state, addr, length, flags, out);
}

static int __attribute__((noinline))
get_found(uint64_t addr, size_t length, unsigned flags, struct pindown_region **out, uint32_t found)
{
	return found ? get_number(addr, length, flags, out, found)
		     : get_slow(addr, length, flags, out);
}

/*
 * For a thread that has no hold counts of its own (this is its first get, or there are too many
 * threads), and for bad arguments.
 */
static int __attribute__((noinline))
get_otherwise(uint64_t addr, size_t length, unsigned flags, struct pindown_region **out)
{
	if (!pdn_self_tls || bad_arguments(addr, length, flags, out))
		return get_slow(addr, length, flags, out);
	return get_found(addr, length, flags, out, pdn_index_peek(addr));
}

/* All calls are tail calls, so that the compiler has no registers to save for them. */
PDN_EXPORT int pindown_get(uint64_t addr, size_t length, unsigned flags,
			   struct pindown_region **out)
{
	struct pdn_thread *self = pdn_self_tls;
	struct pdn_brief *brief;
	uint32_t number, state;

	/* length 0 becomes the largest number, which fits in no region */
	if (unlikely(!self || !self->holds || !out || flags & ~PDN_GET_FLAGS ||
		     length - 1 >= ~0ull / 2))
		return get_otherwise(addr, length, flags, out);
	number = pdn_index_peek(addr);
	if (unlikely((int32_t)number <= 0)) /* none, or PDN_SHARED_TAG */
		return get_found(addr, length, flags, out, number);
	brief = &pdn_briefs[number]; /* not earlier: the table exists once the index has a number */
	/* Recompute the number: saves a register on the fast path. */
	if (unlikely(!hold_if(self, true, number, brief, addr, length, &state)))
		return get_found(addr, length, flags, out, (uint32_t)(brief - pdn_briefs));
	if (pdn_thread_counts_down(self))
		return get_held(&pdn_regions[number], state, addr, length, flags, out);
	pdn_touch(brief);
	pdn_count(&self->counters->hits);
	*out = &pdn_regions[number];
	return PINDOWN_OK;
}

/*
 * The region was no longer live when its hold was dropped. If that was the last hold, unpinning is
 * left to us; the lock tells apart two threads that both think so. Another region may have the
 * record by now: then this looks at that one, and if its last hold has just gone, its own put finds
 * that we were faster.
 */
static void __attribute__((noinline)) put_slow(uint32_t number)
{
	PDN_UNCANCELLED;
	struct pdn_ending last = {0};

	PDN_POINT(PUT_SLOW, pdn_region_base_now(number));
	pdn_lock();
	pdn_region_take_kept(&last, number);
	pdn_unlock();
	if (last.first)
		PDN_POINT(PUT_LAST, pdn_region_base_now(number));
	pdn_unpin_kept(&last);
}

/* The same order as in pindown_put(), with read-modify-write operations. */
static void __attribute__((noinline)) put_shared(uint32_t number)
{
	pdn_unhold(pdn_self_or_anonymous(), number);
	pdn_fence_if_hits_have();
	PDN_POINT(PUT_DROPPED, pdn_region_base_now(number));
	if (!pdn_state_is_live(__atomic_load_n(&pdn_briefs[number].state, __ATOMIC_SEQ_CST)))
		put_slow(number);
}

/* A pointer that is not a region; with PINDOWN_DEBUG, any pointer. */
static void __attribute__((noinline, cold)) put_what(struct pindown_region *region)
{
	static bool said;

	if (pdn_config()->debug)
		pdn_misuse_put(region);
	else if (region)
		pdn_log_once(&said, PDN_LOG_ERROR, "pindown_put: %p is not a region; ignored",
			     (const void *)region);
}

static inline __attribute__((always_inline)) void put_quickly(struct pindown_region *region)
{
	const struct pdn_thread *self = pdn_self_tls;
	/* Not yet cut to 32 bits: NULL is far outside. */
	uint64_t place = (uint64_t)((uintptr_t)region - (uintptr_t)pdn_regions) / sizeof(*region);
	uint32_t number = (uint32_t)place;

	if (unlikely(place - 1 >= pdn_put_limit)) {
		put_what(region);
		return;
	}
	if (unlikely(!self || !self->holds)) {
		put_shared(number);
		return;
	}
	/*
	 * The hold goes down before the state is read: see pdn_ending_split_idle_and_held() for
	 * the other side.
	 */
	pdn_hold_own(self->holds, number, -1u);
	pdn_fence_if_hits_have();
	PDN_POINT(PUT_DROPPED, pdn_region_base_now(number));
	/* Putting a free record is a caller's bug; it is not detected. */
	if (unlikely(__atomic_load_n(&pdn_briefs[number].state, __ATOMIC_SEQ_CST) > PDN_CHECKED))
		put_slow(number);
}

PDN_EXPORT void pindown_put(struct pindown_region *region)
{
	put_quickly(region);
}

/* ---- vectors ------------------------------------------------------------------------------ */

/* By these names, calls from here are direct: programs may replace the exported ones. */
extern __typeof__(pindown_get) get_one __attribute__((alias("pindown_get"), visibility("hidden")));
extern __typeof__(pindown_put) put_one __attribute__((alias("pindown_put"), visibility("hidden")));

/* The region that a vector has got last by a plain hit; 0: none. */
struct last_hit {
	uint32_t number;
	bool repeats; /* the hit before was one of the same region */
};

/*
 * Hold that region once more. It needs no announcement: the first hold keeps the region from being
 * unpinned. A state that is live still pairs with pdn_region_set_state(): the free has not passed
 * its barrier yet, and so not reached the driver. The index is not asked, so the caller has seen
 * that the address is none that it refuses: has_pages() does not look at higher bits.
 */
static inline bool hold_again(struct pdn_thread *self, uint32_t number, uint64_t addr,
			      uint64_t length)
{
	if (__atomic_load_n(&pdn_briefs[number].state, __ATOMIC_SEQ_CST) != PDN_LIVE ||
	    !has_pages(&pdn_briefs[number], addr, length))
		return false;
	pdn_hold_own(self->holds, number, 1);
	return true;
}

/*
 * As pindown_get() does it, where that is all. The index is not asked for a range that follows two
 * of one region: that would cost a vector of many regions more than single gets.
 */
static inline __attribute__((always_inline)) bool hold_plain(struct pdn_thread *self, uint64_t addr,
							     uint64_t length, struct last_hit *last)
{
	uint32_t number, state;

	if (last->repeats && hold_again(self, last->number, addr, length))
		return true;
	number = pdn_index_peek(addr);
	if (unlikely((int32_t)number <= 0))
		return false;
	last->repeats = number == last->number;
	last->number = number;
	return last->repeats
		       ? hold_again(self, number, addr, length)
		       : hold_if(self, true, number, &pdn_briefs[number], addr, length, &state);
}

/* Of n ranges the one at `at` has failed. In this order: what is not NULL is held at any moment. */
static int __attribute__((noinline, cold))
give_up(struct pindown_region **regions, size_t n, size_t at, size_t *failed, int result)
{
	if (failed)
		*failed = at;
	for (size_t k = 0; k < n; k++) {
		struct pindown_region *region = regions[k];

		__atomic_store_n(&regions[k], NULL, __ATOMIC_RELAXED);
		if (k < at)
			put_one(region);
	}
	return result;
}

PDN_EXPORT int pindown_getv(const struct pindown_range *ranges, size_t n, unsigned flags,
			    struct pindown_region **regions, size_t *failed)
{
	struct pdn_thread *self = pdn_self_tls;
	struct last_hit last = {0};

	if (n && (!ranges || !regions))
		return give_up(regions, 0, 0, failed, PINDOWN_ERR_INVALID);
	for (size_t i = 0; i < n; i++) {
		uint64_t addr = ranges[i].addr, length = ranges[i].length;
		int result;

		if (likely(self && self->holds && !(flags & ~PDN_GET_FLAGS)) &&
		    likely((addr | (length - 1)) < PDN_ADDRESS_LIMIT) &&
		    likely(!pdn_thread_counts_down(self)) &&
		    likely(hold_plain(self, addr, length, &last))) {
			pdn_touch(&pdn_briefs[last.number]);
			pdn_count(&self->counters->hits);
			regions[i] = &pdn_regions[last.number];
			continue;
		}
		result = get_one(addr, length, flags, &regions[i]);
		if (result != PINDOWN_OK)
			return give_up(regions, n, i, failed, result);
		last = (struct last_hit){0};
		self = pdn_self_tls;
	}
	return PINDOWN_OK;
}

PDN_EXPORT void pindown_putv(struct pindown_region *const *regions, size_t n)
{
	for (size_t i = 0; i < n; i++)
		put_quickly(regions[i]);
}

/* ---- accessors ---------------------------------------------------------------------------- */

PDN_EXPORT uint64_t pindown_region_base(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return region->base;
}

PDN_EXPORT size_t pindown_region_length(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return region->end - region->base;
}

PDN_EXPORT uint64_t pindown_region_pin_base(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return pdn_region_pin_base(region);
}

PDN_EXPORT size_t pindown_region_pin_length(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return pdn_region_pin_length(region);
}

PDN_EXPORT uint64_t pindown_region_buffer_id(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return region->buffer_id;
}

PDN_EXPORT void *pindown_region_context(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return pdn_region_context(region);
}

PDN_EXPORT int pindown_region_device(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return region->device;
}

PDN_EXPORT int pindown_region_is_volatile(const struct pindown_region *region)
{
	pdn_region_is_used(region, __func__);
	return pdn_region_is_volatile(region);
}

/* Takes the lock if need be: an eviction may just be finding out whether the region is idle. */
PDN_EXPORT int pindown_region_is_live(const struct pindown_region *region)
{
	PDN_UNCANCELLED;
	bool live;

	pdn_region_is_used(region, __func__);
	/*
	 * Acquire: a caller that finds it ended sees what its end did before
	 * (pdn_region_set_state()).
	 */
	live = pdn_state_is_live(__atomic_load_n(&pdn_brief_of(region)->state, __ATOMIC_ACQUIRE));

	if (!live) {
		pdn_lock();
		live = pdn_state_is_live(pdn_state_of(pdn_region_number(region)));
		pdn_unlock();
	}
	return live;
}
