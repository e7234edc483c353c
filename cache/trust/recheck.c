/* SPDX-License-Identifier: MIT */
/* Comparing live regions with the driver, and ending those whose memory was freed unseen. */
#define _GNU_SOURCE
#include "cache/trust/recheck.h"

#include <errno.h>

#include "cache/base/thread/lock.h"
#include "cache/driver/driver.h"
#include "cache/hit/index.h"
#include "cache/end/invalidate.h"
#include "cache/pindown.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "cache/trust/trust.h"

#define BATCH 64

/*
 * What a region was at the first look. It is not held for the comparison: a free of its memory in
 * another thread would take that for a use, and return with the memory still pinned.
 */
struct suspect {
	uint64_t base, end, buffer_id, mappings_hash;
	uint32_t number;
	uint8_t answer; /* enum pdn_truth; unknown: not asked yet, too */
};

/* Lock held. */
static struct suspect suspect_of(uint32_t number)
{
	const struct pindown_region *region = &pdn_regions[number];

	return (struct suspect){.number = number,
				.base = region->base,
				.end = region->end,
				.buffer_id = region->buffer_id,
				.mappings_hash = pdn_region_mappings_hash(region),
				.answer = PDN_UNKNOWN};
}

/* false: there are no more. */
static bool take_suspects(struct suspect *suspects, unsigned *count, uint32_t *from,
			  const void *pool)
{
	uint32_t until = *from + pdn_looks_per_lock;
	unsigned n = 0;
	bool more;

	pdn_lock();
	for (; *from <= pdn_region_high_water() && *from < until && n < BATCH; ++*from) {
		const struct pindown_region *region = &pdn_regions[*from];

		if (pdn_state_is_live(pdn_state_of(pdn_region_number(region))) &&
		    (!pool || pdn_region_pool(region) == pool))
			suspects[n++] = suspect_of(*from);
	}
	more = *from <= pdn_region_high_water();
	pdn_unlock();
	*count = n;
	return more;
}

static bool is_still_there(const struct suspect *suspect)
{
	const struct pindown_region *region = &pdn_regions[suspect->number];

	return pdn_state_is_live(pdn_state_of(pdn_region_number(region))) &&
	       region->base == suspect->base && region->end == suspect->end &&
	       region->buffer_id == suspect->buffer_id &&
	       pdn_region_mappings_hash(region) == suspect->mappings_hash;
}

/*
 * The program may free this memory in other threads as it likes. Such a free waits for the answers;
 * and what another one is just freeing is left out.
 */
static void ask_about(struct suspect *suspects, unsigned n)
{
	uint64_t begin = UINT64_MAX, end = 0;
	struct pdn_flight flight;

	for (unsigned i = 0; i < n; i++) {
		if (suspects[i].base < begin)
			begin = suspects[i].base;
		if (suspects[i].end > end)
			end = suspects[i].end;
	}
	pdn_flight_begin(&flight, begin, end);
	for (unsigned i = 0; i < n; i++) {
		struct suspect *s = &suspects[i];
		const struct pdn_memory memory = {
			.base = s->base, .end = s->end, .context = PDN_ANY_CONTEXT};

		if (!(pdn_guard_on(&memory) & PDN_GUARDED))
			s->answer = (uint8_t)pdn_driver_compare(s->base, s->end, s->buffer_id,
								s->mappings_hash);
	}
	pdn_flight_end_unlocked(&flight);
}

/*
 * It is gone, or nobody knows. A free of the region's own memory has ended the region before it is
 * in the driver. One that does not say what it is of (guard.h) need not be; or the driver has
 * answered with an error that says nothing of the memory. Then the region's hits have to ask, each
 * for itself, for as long as it lives. That is as with a volatile region, but what they find was
 * missed, unless the region is volatile, too.
 */
static void end_or_check(const struct suspect *suspect, const char *how)
{
	struct pdn_ending ending = {.missed = how};
	uint32_t number = suspect->number;

	pdn_lock();
	if (!is_still_there(suspect))
		;
	else if (suspect->answer == PDN_FALSE)
		pdn_ending_add(&ending, number, PINDOWN_REASON_STALE);
	else
		pdn_region_set_checked(number, pdn_regions[number].flags | PDN_REGION_UNASKED);
	pdn_ending_split_idle_and_held(&ending);
	pdn_unlock();
	pdn_ending_dispatch(&ending);
}

static void drop_changed(struct suspect *suspects, unsigned n, const char *how)
{
	ask_about(suspects, n);
	for (unsigned i = 0; i < n; i++)
		if (suspects[i].answer != PDN_TRUE)
			end_or_check(&suspects[i], how);
}

void pdn_recheck_some(void *pool)
{
	const struct pdn_scope all = {.kind = PDN_GUARD_ALL};
	struct suspect suspects[BATCH];
	uint32_t from = 1;
	unsigned n;
	bool more;

	pdn_lock();
	pdn_flights_mark_lost(&all); /* the driver's answer to them may no longer be true */
	pdn_unlock();
	do {
		more = take_suspects(suspects, &n, &from, pool);
		if (n)
			drop_changed(suspects, n, "gone after a call that may free memory");
	} while (more);
}

/* A look without the lock, then the lock for what it has found. */
static bool take_overlapping(struct suspect *suspect, uint64_t *at, uint64_t end)
{
	uint32_t number;

	if (!pdn_index_next(at, end))
		return false;
	pdn_lock();
	number = pdn_index_next(at, end);
	if (number) {
		*suspect = suspect_of(number);
		*at = suspect->end;
	}
	pdn_unlock();
	return number != 0;
}

void pdn_drop_changed(uint64_t begin, uint64_t end, const char *how)
{
	struct suspect suspect;

	for (uint64_t at = begin; at < end && take_overlapping(&suspect, &at, end);)
		drop_changed(&suspect, 1, how);
}
