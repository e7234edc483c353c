/* SPDX-License-Identifier: MIT */
/* The model's list of regions, and the checks of the cache's actions on them. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <string.h>

#include "cache/base/environment/config.h"
#include "cache/hook_events.h"
#include "model.h"

struct region *regions[MAX_REGIONS];
unsigned region_count;
static struct region records[MAX_REGIONS]; /* regions[] is a permutation of them */

struct counts counts;
uint64_t max_regions, max_bytes;
bool checks_all, may_miss, distrusted;
struct attempt attempt;

static struct range {
	uint64_t begin, end;
} volatile_ranges[256];
static unsigned volatile_count;

void lists_reset(void)
{
	for (unsigned i = 0; i < MAX_REGIONS; i++)
		regions[i] = &records[i];
	region_count = volatile_count = 0;
	distrusted = false;
	memset(&counts, 0, sizeof(counts));
	memset(&attempt, 0, sizeof(attempt));
}

/* ---- looking things up ---- */

bool overlaps(const struct region *r, uint64_t begin, uint64_t end)
{
	return r->base < end && begin < r->end;
}

struct region *region_with(uint64_t addr, uint64_t length)
{
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && regions[i]->base <= addr && addr < regions[i]->end &&
		    length <= regions[i]->end - addr)
			return regions[i];
	return NULL;
}

struct region *region_of(const pindown_region *real)
{
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->real == real && !regions[i]->unpinned && !regions[i]->abandoned)
			return regions[i];
	return NULL;
}

struct region *nth_held(uint32_t n)
{
	unsigned held = 0;

	for (unsigned i = 0; i < region_count; i++)
		held += regions[i]->holds > 0;
	if (!held)
		return NULL;
	n %= held;
	for (unsigned i = 0;; i++)
		if (regions[i]->holds && n-- == 0)
			return regions[i];
}

void ids_between(uint64_t base, uint64_t end, uint64_t ids[MAX_IDS])
{
	memset(ids, 0, MAX_IDS * sizeof(ids[0]));
	for (unsigned n = 0; base < end && n < MAX_IDS; n++) {
		const struct memory *m = memory_at(base);

		ids[n] = m ? m->id : 0;
		base = m ? m->end : end;
	}
}

bool is_true(const struct region *r)
{
	uint64_t now[MAX_IDS];

	ids_between(r->base, r->end, now);
	return memcmp(now, r->ids, sizeof(now)) == 0;
}

struct region *new_region(void)
{
	AGREE(region_count < MAX_REGIONS, "more than %d regions in the model", MAX_REGIONS);
	return regions[region_count++];
}

static void forget_region(unsigned at)
{
	struct region *r = regions[at];

	regions[at] = regions[--region_count];
	regions[region_count] = r;
}

/* ---- volatile memory ---- */

void volatile_add(uint64_t begin, uint64_t end)
{
	volatile_cut(begin, end);
	AGREE(volatile_count < 256, "too many volatile ranges in the model");
	volatile_ranges[volatile_count++] = (struct range){begin, end};
}

void volatile_cut(uint64_t begin, uint64_t end)
{
	for (unsigned i = volatile_count; i-- > 0;) {
		struct range old = volatile_ranges[i];

		if (old.begin >= end || begin >= old.end)
			continue;
		volatile_ranges[i] = volatile_ranges[--volatile_count];
		if (old.begin < begin)
			volatile_ranges[volatile_count++] = (struct range){old.begin, begin};
		if (end < old.end)
			volatile_ranges[volatile_count++] = (struct range){end, old.end};
	}
}

bool volatile_any(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < volatile_count; i++)
		if (volatile_ranges[i].begin < end && begin < volatile_ranges[i].end)
			return true;
	return false;
}

/* ---- expected actions ----------------------------------------------------------------------- */

void expect_end(struct region *r, unsigned reasons)
{
	r->live = false;
	r->must_be_told = true;
	r->reasons = (uint8_t)reasons;
}

bool is_ended(const struct region *r, const struct ending *ending)
{
	if (ending->of_device)
		return r->context && r->device == ending->device;
	if (ending->context)
		return r->context == ending->context;
	return r->whole_base < ending->end && ending->begin < r->whole_end;
}

unsigned expect_end_of_changed(uint64_t begin, uint64_t end)
{
	unsigned n = 0;

	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && overlaps(regions[i], begin, end) && !is_true(regions[i])) {
			expect_end(regions[i], 1u << PINDOWN_REASON_STALE);
			n++;
		}
	return n;
}

static bool fit(uint64_t bytes, bool idle_too)
{
	uint64_t count = 0, sum = 0;

	for (unsigned i = 0; i < region_count; i++)
		if (!regions[i]->unpinned && !regions[i]->abandoned &&
		    (idle_too || !regions[i]->live || is_used(regions[i]))) {
			count++;
			sum += regions[i]->pin_end - regions[i]->pin_base;
		}
	return count + 1 <= max_regions && (!max_bytes || sum + bytes <= max_bytes);
}

/* Kept regions use space, too. */
bool fits(uint64_t bytes)
{
	return fit(bytes, true);
}

bool fits_without_idle(uint64_t bytes)
{
	return fit(bytes, false);
}

uint64_t idle_bytes(int device)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && !is_used(regions[i]) && regions[i]->device == device)
			bytes += regions[i]->pin_end - regions[i]->pin_base;
	return bytes;
}

/* Twice the requested bytes of a device, and sixteen regions in any case. */
bool may_give_up(void)
{
	return attempt.evicted >= 16 &&
	       (attempt.permit_device < 0 || attempt.gone >= 2 * attempt.bytes);
}

bool any_idle(int device)
{
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && !is_used(regions[i]) &&
		    (device < 0 || regions[i]->device == device))
			return true;
	return false;
}

/* ---- actions of the cache ------------------------------------------------------------------- */

/*
 * Is the region in the way of the union? A union of windows is rounded to their size, and may reach
 * further regions by that: then it is what was tried.
 */
static bool would_be_replaced(const struct region *r)
{
	return overlaps(r, attempt.union_begin, attempt.union_end) ||
	       (attempt.tried && attempt_may_be_window() &&
		overlaps(r, attempt.begin, attempt.end));
}

/* A union is short of space: the idle regions that it would replace go first, all together. */
static bool gives_way(const struct region *r)
{
	bool short_of_space = attempt.gives_way ? true
			      : attempt.tried	? attempt.refused == PINDOWN_ERR_NO_SPACE
						: !fits(attempt.union_end - attempt.union_begin);

	return attempt.gives_way =
		       short_of_space && !attempt.giving && !attempt.pinned && !is_used(r) &&
		       would_be_replaced(r) &&
		       (attempt_may_be_window() || attempt.union_end - attempt.union_begin >
							   attempt.least_end - attempt.least_begin);
}

/*
 * The budgets may not have room for a window with all that it would take in. Regions that it takes
 * in go all together.
 */
static bool makes_room_for_window(const struct region *r)
{
	if (attempt.giving || attempt.pinned || is_used(r) || !attempt_may_be_window() ||
	    !fits_without_idle(attempt_page_bytes()))
		return false;
	return attempt.window_gives_way |= !fits(attempt_most_bytes());
}

static void judge_eviction(const struct region *r)
{
	if (makes_room_for_window(r) || gives_way(r)) {
		attempt.gave |= attempt.tried;
		return;
	}
	if (attempt.giving) {
		AGREE(attempt.given < attempt.bytes, "more is evicted than requested");
		attempt.given += r->pin_end - r->pin_base;
	} else if (attempt.pinned) { /* another group of the same mappings */
		AGREE(overlaps(r, attempt.begin, attempt.end),
		      "evicted for a pin that has been made");
		AGREE(is_true(r), "0x%" PRIx64 " is replaced, and that it was stale is not noticed",
		      r->base);
		return;
	} else if (attempt.tried) {
		AGREE(attempt.permits > 0, "evicted without need");
		attempt.permits--;
		AGREE(!attempt.is_hopeless,
		      "evicted for nothing: evicting all would not be enough");
		AGREE(!may_give_up(), "more is evicted without success than makes sense");
		attempt.evicted++;
		attempt.gone += r->pin_end - r->pin_base;
		AGREE(attempt.permit_device < 0 || r->device == attempt.permit_device,
		      "another device's region is evicted");
	} else {
		bool for_union = !fits(attempt.union_end - attempt.union_begin) &&
				 attempt_has_room_for_union();

		AGREE(for_union || !fits(attempt.bytes), "evicted although there was room");
		AGREE(for_union || fits_without_idle(attempt.bytes),
		      "evicted though it would not be enough");
	}
	AGREE(!is_used(r), "a region in use is evicted");
}

static void judge(struct region *r, int reason)
{
	if (r->must_be_told) {
		AGREE(r->reasons & 1u << reason, "reason %d; the model: one of 0x%x", reason,
		      r->reasons);
		r->must_be_told = false;
		return;
	}
	AGREE(r->live, "the end of 0x%" PRIx64 " is reported again", r->base);
	AGREE(attempt.on, "the end of 0x%" PRIx64 " is reported, and nothing has ended it",
	      r->base);
	if (reason == PINDOWN_REASON_EVICTED)
		judge_eviction(r);
	else
		AGREE(reason == PINDOWN_REASON_STALE && attempt.pinned &&
			      overlaps(r, attempt.begin, attempt.end) && !is_true(r),
		      "0x%" PRIx64 " has ended for reason %d", r->base, reason);
	r->live = false;
}

static void count_end(const struct region *r, int reason)
{
	/* For a pin that has been made, it is replaced. */
	counts.evictions += reason == PINDOWN_REASON_EVICTED && !(attempt.on && attempt.pinned);
	counts.invalidations +=
		reason != PINDOWN_REASON_EVICTED && reason != PINDOWN_REASON_FLUSHED;
	if (reason == PINDOWN_REASON_STALE && !r->is_volatile) {
		counts.missed++;
		distrusted = true;
	}
}

void saw_end(const struct pindown_invalidation *what, void *arg)
{
	struct region *r = region_of(what->region);
	bool in_use;

	(void)arg;
	AGREE(r, "the end of an unknown region is reported");
	AGREE(what->base == r->base && what->length == r->end - r->base &&
		      what->buffer_id == r->ids[0],
	      "the end of 0x%" PRIx64 " is reported with other data", r->base);
	judge(r, what->reason);
	count_end(r, what->reason);
	r->reason = (uint8_t)what->reason;
	r->awaits =
		(what->reason == PINDOWN_REASON_ORDERED && pdn_config()->held == PDN_HELD_REVOKE) ||
		(what->reason == PINDOWN_REASON_EVICTED && pdn_config()->held != PDN_HELD_KEEP);
	expect_objects_end(r);
	in_use = r->holds || r->making || (r->held_objects && !revokes(what->reason));
	AGREE(what->in_use == in_use, "reported: %sin use; the model: %u holds, %u held objects",
	      what->in_use ? "" : "not ", r->holds, r->held_objects);
	/* An attach holds its region all the time. */
	if (put_when_told && r->holds > r->vector && r != making.region) {
		r->holds--;
		pindown_put(r->real);
	}
	if (detach_when_told)
		detach_one_of(r);
}

void saw_unpin(uint32_t pin)
{
	for (unsigned i = 0; i < region_count; i++) {
		struct region *r = regions[i];

		if (r->pin != pin || r->unpinned || r->abandoned)
			continue;
		AGREE(!r->live, "0x%" PRIx64 " is unpinned, and nothing has ended it", r->base);
		AGREE(!r->must_be_told, "0x%" PRIx64 " is unpinned before its end is reported",
		      r->base);
		if (r->holds == r->vector) /* of a vector that fails: it has put them */
			r->holds = 0;
		AGREE(!r->holds && !r->making, "0x%" PRIx64 " is unpinned under its holders",
		      r->base);
		AGREE(!r->objects, "0x%" PRIx64 " is unpinned under an object", r->base);
		r->unpinned = true;
		counts.unpins++;
		counts.unpins_at_last_put += in_put;
		return;
	}
	AGREE(attempt.lost_pin == pin, "a pin is undone that was not invalidated");
	attempt.lost_pin = 0;
}

/* ---- after each operation ---- */

struct books {
	uint64_t regions, bytes, kept_regions, kept_bytes, object_kept_regions, object_kept_bytes;
};

static void add_up(struct books *books, int device)
{
	for (unsigned i = 0; i < region_count; i++) {
		const struct region *r = regions[i];
		uint64_t bytes = r->pin_end - r->pin_base;

		if (r->abandoned || (device >= 0 && r->device != device))
			continue;
		books->regions++;
		books->bytes += bytes;
		books->kept_regions += !r->live;
		books->kept_bytes += r->live ? 0 : bytes;
		if (!r->live && r->objects) {
			books->object_kept_regions++;
			books->object_kept_bytes += bytes;
		}
	}
}

static void compare(const char *what, uint64_t real, uint64_t model)
{
	AGREE(real == model, "%s: %" PRIu64 "; the model: %" PRIu64, what, real, model);
}

static struct pindown_stats compare_books(int device)
{
	struct pindown_stats s;
	struct books books = {0};

	AGREE(pindown_stats(&s, sizeof(s), device) == PINDOWN_OK, "no statistics");
	add_up(&books, device);
	compare("regions", s.regions, books.regions);
	compare("bytes", s.bytes, books.bytes);
	compare("regions kept", s.kept_regions, books.kept_regions);
	compare("bytes kept", s.kept_bytes, books.kept_bytes);
	compare("regions kept by objects", s.object_kept_regions, books.object_kept_regions);
	compare("bytes kept by objects", s.object_kept_bytes, books.object_kept_bytes);
	compare("pins less unpins", s.pins - s.unpins, books.regions);
	AGREE(s.peak_regions >= s.regions && s.peak_bytes >= s.bytes,
	      "a peak below the current value");
	return s;
}

static void compare_counts(const struct pindown_stats *s)
{
	compare("hits", s->hits, counts.hits);
	compare("misses", s->misses, counts.misses);
	compare("pins", s->pins, counts.pins);
	compare("unpins", s->unpins, counts.unpins);
	compare("pin failures", s->pin_failures, counts.pin_failures);
	compare("evictions", s->evictions, counts.evictions);
	compare("invalidations", s->invalidations, counts.invalidations);
	compare("lost races", s->lost_races, counts.lost_races);
	compare("missed invalidations", s->missed_invalidations, counts.missed);
	compare("tag checks", s->tag_checks, counts.tag_checks);
	compare("objects", s->objects, objects_now());
	compare("objects made", s->objects_made, counts.objects_made);
	compare("objects revoked", s->objects_revoked, counts.objects_revoked);
}

void settle_accounts(bool devices_too)
{
	unsigned pinned = 0;

	settle_objects();
	for (unsigned i = region_count; i-- > 0;) {
		struct region *r = regions[i];

		AGREE(!r->must_be_told, "the end of 0x%" PRIx64 " was not reported", r->base);
		AGREE(r->live || r->holds || r->objects || r->unpinned || r->abandoned,
		      "0x%" PRIx64 " is still pinned: a lost unpin", r->base);
		if (!r->live && !r->holds && !r->objects)
			forget_region(i);
		else
			pinned += !r->abandoned;
	}
	AGREE(pins_open == pinned, "%u pins are open; the model: %u", pins_open, pinned);
	struct pindown_stats s = compare_books(-1);
	compare_counts(&s);
	for (int device = 0; devices_too && device < DEVICES; device++)
		compare_books(device);
}
