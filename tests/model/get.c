/* SPDX-License-Identifier: MIT */
/* A get, on the cache and on the model: the allowed results. */
#define _GNU_SOURCE
#include <inttypes.h>

#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "model.h"

static uint64_t page_floor(uint64_t addr)
{
	return addr & -(uint64_t)PINDOWN_PAGE_SIZE;
}

static uint64_t page_ceil(uint64_t addr)
{
	return page_floor(addr + PINDOWN_PAGE_SIZE - 1);
}

/* The end of the extent for a get of [addr, end); 0: the memory ends before. */
static uint64_t extent_end(const struct memory *first, uint64_t end)
{
	uint64_t reached = first->end;

	while (reached < end) {
		const struct memory *next = memory_at(reached);

		if (first->kind != MAPPED || !next || next->kind != MAPPED)
			return 0;
		reached = next->end;
	}
	return reached;
}

/* Does mapped memory fill the range? */
static bool is_filled(uint64_t begin, uint64_t end)
{
	const struct memory *m = memory_at(begin);

	return m && m->kind == MAPPED && m->base == begin && extent_end(m, end) == end;
}

/* Was the region pinned for other memory? The base alone may show it, or all ids. */
static bool looks_stale(const struct region *r, uint64_t begin, uint64_t end)
{
	return r->base == begin &&
	       (r->ids[0] != memory_at(begin)->id || (r->end == end && !is_true(r)));
}

/*
 * The cache may pin mapped memory together with the live regions that it touches, which are then
 * replaced. A region of memory that is gone can't be taken in.
 */
static void find_union(bool is_mapped)
{
	uint64_t begin = attempt.begin, end = attempt.end;

	for (unsigned i = 0; is_mapped && i < region_count; i++) {
		const struct region *r = regions[i];

		if (!r->live || !overlaps(r, attempt.begin, attempt.end) ||
		    looks_stale(r, attempt.begin, attempt.end))
			continue;
		begin = r->base < begin ? r->base : begin;
		end = r->end > end ? r->end : end;
	}
	attempt.least_begin = attempt.begin;
	attempt.least_end = attempt.end;
	if (!is_mapped || !is_filled(begin, end)) {
		begin = attempt.begin;
		end = attempt.end;
	}
	attempt.union_begin = begin;
	attempt.union_end = end;
}

static uint64_t union_bytes(void)
{
	return attempt.union_end - attempt.union_begin;
}

static bool union_is_wide(void)
{
	return union_bytes() > attempt.least_end - attempt.least_begin;
}

/* Under the budgets. */
bool attempt_has_room_for_union(void)
{
	return !(max_bytes && union_bytes() > max_bytes) && fits_without_idle(union_bytes());
}

static bool is_union(uint64_t begin, uint64_t end)
{
	return begin == attempt.union_begin && end == attempt.union_end;
}

/*
 * More than the union: whole mappings, and whole regions, and about twice the bytes of these at
 * most.
 */
static void check_twofold(uint64_t begin, uint64_t end)
{
	uint64_t replaced = 0;

	AGREE(begin <= attempt.union_begin && end >= attempt.union_end && is_filled(begin, end),
	      "0x%" PRIx64 " + 0x%" PRIx64 " is pinned; the union: 0x%" PRIx64 " + 0x%" PRIx64,
	      begin, end - begin, attempt.union_begin, union_bytes());
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && overlaps(regions[i], begin, end)) {
			AGREE((regions[i]->base >= begin && regions[i]->end <= end) ||
				      !is_true(regions[i]),
			      "a pin takes in a part of a region");
			replaced += regions[i]->end - regions[i]->base;
		}
	AGREE(end - begin < 2 * replaced + MIB(2), "a pin grows to more than twice");
}

/* ---- windows: a part of the memory, where there is no space for all of it ---- */

static uint64_t request_begin(void)
{
	uint64_t begin = page_floor(attempt.addr);

	return begin > attempt.least_begin ? begin : attempt.least_begin;
}

static uint64_t request_end(void)
{
	uint64_t end = page_ceil(attempt.addr + attempt.length);

	return end < attempt.least_end ? end : attempt.least_end;
}

uint64_t attempt_page_bytes(void)
{
	return page_ceil(request_end()) - page_floor(request_begin());
}

static uint64_t least_bytes(void)
{
	return page_ceil(attempt.least_end) - page_floor(attempt.least_begin);
}

/* Mappings that have windows may be taken in. */
static bool has_windows(bool is_mapped)
{
	for (unsigned i = 0; i < region_count; i++)
		if (regions[i]->live && regions[i]->is_window &&
		    (is_mapped ? regions[i]->mapped
			       : overlaps(regions[i], attempt.least_begin, attempt.least_end)))
			return true;
	return false;
}

/* With all that it may take in, a window is no larger than the adjacent mappings. */
uint64_t attempt_most_bytes(void)
{
	const struct memory *first = memory_at(attempt.addr), *next;
	uint64_t end;

	if (!first || first->kind != MAPPED)
		return least_bytes();
	for (end = first->end; (next = memory_at(end)) && next->kind == MAPPED; end = next->end)
		;
	while ((next = memory_at(first->base - 1)) && next->kind == MAPPED)
		first = next;
	return end - first->base;
}

bool attempt_may_be_window(void)
{
	const struct memory *m = memory_at(attempt.addr);

	return attempt.described == PINDOWN_OK && m && (m->kind == LINEAR || m->kind == MAPPED) &&
	       (request_begin() > attempt.least_begin || request_end() < attempt.least_end ||
		attempt.had_windows) &&
	       (attempt.was_full || attempt.had_windows ||
		(max_bytes && !fits_without_idle(least_bytes())));
}

/* Other windows are taken in, unless there is no space for that. */
static void check_window(uint64_t begin, uint64_t end)
{
	const struct memory *m = memory_at(begin);
	bool is_smallest = begin == request_begin() && end == request_end();

	AGREE(attempt_may_be_window(), "a window, although nothing was refused");
	attempt.had_windows = true;
	AGREE(begin <= request_begin() && end >= request_end(), "a window without the request");
	AGREE(m && m->kind == memory_at(attempt.addr)->kind && extent_end(m, end) >= end,
	      "a window over other memory");
	AGREE((begin == m->base || begin == page_floor(begin)) &&
		      (end == extent_end(m, end) || end == page_floor(end)),
	      "a window of parts of pages");
	for (unsigned i = 0; i < region_count && !is_smallest; i++)
		if (regions[i]->live && overlaps(regions[i], begin, end))
			AGREE((regions[i]->base >= begin && regions[i]->end <= end) ||
				      !is_true(regions[i]),
			      "a window takes in a part of a region");
}

/* The cache tries to pin this, for the request. */
void attempt_reaches(uint64_t begin, uint64_t end)
{
	bool is_least = begin == attempt.least_begin && end == attempt.least_end;

	if (!is_least && (attempt_may_be_window() || memory_at(attempt.addr)->kind == LINEAR) &&
	    !(is_union(begin, end) && union_is_wide()))
		check_window(begin, end);
	else if (is_least)
		AGREE(!union_is_wide() || attempt.failed_wide || !attempt_has_room_for_union(),
		      "a pin leaves a part of a region that it overlaps");
	else if (!is_union(begin, end))
		check_twofold(begin, end);
	attempt.failed_wide |= !is_least; /* another pin means that this one has failed */
	if (begin != attempt.begin || end != attempt.end) {
		attempt.evicted = 0;
		attempt.gone = 0;
		attempt.gave = false;
	}
	attempt.begin = begin;
	attempt.end = end;
	attempt.pin_begin = page_floor(begin);
	attempt.bytes = page_ceil(end) - page_floor(begin);
}

static int driver_answer(const struct memory *m)
{
	if (!m)
		return PINDOWN_ERR_NOT_DEVICE;
	if (m->kind == MANAGED)
		return PINDOWN_ERR_MANAGED;
	if (m->kind == HOST)
		return PINDOWN_ERR_HOST;
	attempt.begin = m->base;
	attempt.end = extent_end(m, attempt.addr + attempt.length);
	if (!attempt.end)
		return PINDOWN_ERR_RANGE;
	find_union(m->kind == MAPPED);
	attempt.had_windows |= has_windows(m->kind == MAPPED);
	attempt.pin_begin = m->kind == POOL ? m->base & -MIB(2) : page_floor(m->base);
	attempt.bytes = page_ceil(attempt.end) - attempt.pin_begin;
	return PINDOWN_OK;
}

void attempt_describe(void)
{
	attempt.bytes = 0;
	attempt.described = driver_answer(memory_at(attempt.addr));
	used_gpu |= attempt.on && attempt.described == PINDOWN_OK;
}

static void check_no_lost_pin(void)
{
	AGREE(!attempt.lost_pin, "an invalidated pin is still open: a lost unpin");
}

/* After the attempt: checks the result against all that was seen. */
void get_judge(int result)
{
	bool windows = attempt_may_be_window();
	uint64_t bytes = windows ? attempt_page_bytes() : attempt.bytes;
	bool too_large = max_bytes && bytes > max_bytes;

	check_no_lost_pin();
	if (attempt.would_wait) {
		AGREE(result == PINDOWN_ERR_WOULD_WAIT, "get: %s; the model: a pin was lost",
		      pindown_strerror(result));
		counts.would_wait++;
		return;
	}
	if (attempt.described != PINDOWN_OK) {
		AGREE(result == attempt.described, "get: %s; the model: %s",
		      pindown_strerror(result), pindown_strerror(attempt.described));
		AGREE(!attempt.tried, "a pin of memory that can't be pinned");
		return;
	}
	if (attempt.pinned)
		AGREE(result == PINDOWN_OK, "get: %s; the model: it was pinned",
		      pindown_strerror(result));
	else if (attempt.refused == PINDOWN_ERR_DRIVER)
		AGREE(result == PINDOWN_ERR_DRIVER, "get: %s; the driver had refused",
		      pindown_strerror(result));
	else if (attempt.tried && (!windows || fits_without_idle(bytes)))
		AGREE(result == PINDOWN_ERR_NO_SPACE &&
			      (!windows || attempt.bytes == bytes ||
			       !free_space(attempt.permit_device)) &&
			      (!any_idle(attempt.permit_device) || attempt.may_be_hopeless ||
			       may_give_up()),
		      "get: %s; the model: %s", pindown_strerror(result),
		      any_idle(attempt.permit_device) ? "something could be evicted" : "no space");
	else
		AGREE(result == PINDOWN_ERR_NO_SPACE && (too_large || !fits_without_idle(bytes)),
		      "get: %s; the model: no space by budget: %d, space: %d, without idle "
		      "regions: %d",
		      pindown_strerror(result), too_large, fits(bytes), fits_without_idle(bytes));
	counts.pin_failures += attempt.tried && !attempt.pinned;
}

/* Pinned by this get. */
static struct region *enter(pindown_region *real)
{
	const struct memory *m = memory_at(attempt.begin);
	struct region *r;

	for (unsigned i = 0; i < region_count; i++)
		AGREE(!regions[i]->live || regions[i]->base >= attempt.end ||
			      regions[i]->end <= attempt.begin,
		      "0x%" PRIx64 " lives on under a new region", regions[i]->base);
	r = new_region();
	*r = (struct region){
		.real = real,
		.base = attempt.begin,
		.end = attempt.end,
		.pin_base = attempt.pin_begin,
		.pin_end = attempt.pin_begin + attempt.bytes,
		.pin = pdn_region_pin(real).handle,
		.context = m->kind == LINEAR ? context_handle(m->owner) : NULL,
		.pool = m->kind == POOL ? pool_handle(m->owner) : NULL,
		.device = memory_device(memory_at(attempt.addr)),
		.whole_base = m->kind == LINEAR ? m->base : attempt.begin,
		.whole_end = m->kind == LINEAR ? m->end : attempt.end,
		.is_window = m->kind == LINEAR
				     ? attempt.begin > m->base || attempt.end < m->end
				     : m->kind == MAPPED && !is_filled(attempt.begin, attempt.end),
		.live = true,
		.mapped = m->kind == MAPPED,
		.is_volatile = volatile_any(attempt.begin, attempt.end),
	};
	ids_between(r->base, r->end, r->ids);
	counts.pins++;
	counts.grown += attempt.begin < attempt.least_begin || attempt.end > attempt.least_end;
	counts.windows += r->is_window;
	return r;
}

static void compare_region(const struct region *r)
{
	const pindown_region *real = r->real;

	AGREE(pindown_region_base(real) == r->base &&
		      pindown_region_length(real) == r->end - r->base,
	      "region 0x%" PRIx64 " + 0x%zx; the model: 0x%" PRIx64 " + 0x%" PRIx64,
	      pindown_region_base(real), pindown_region_length(real), r->base, r->end - r->base);
	AGREE(pindown_region_pin_base(real) == r->pin_base &&
		      pindown_region_pin_length(real) == r->pin_end - r->pin_base,
	      "another extent is pinned");
	AGREE(pindown_region_buffer_id(real) == r->ids[0],
	      "stale: buffer id %" PRIu64 "; the model: %" PRIu64, pindown_region_buffer_id(real),
	      r->ids[0]);
	AGREE(pindown_region_context(real) == r->context, "another context");
	AGREE(pindown_region_device(real) == r->device, "another device");
	AGREE(pindown_region_is_volatile(real) == r->is_volatile, "volatile or not");
	AGREE(pindown_region_is_live(real), "a get has returned a region that is not live");
}

bool get_is_bad(uint64_t length, unsigned flags)
{
	return !length || flags & ~(PINDOWN_GET_CACHED | PINDOWN_GET_NOWAIT);
}

/*
 * The region that the model has for it, if it is valid; it is not, when it has to be checked and
 * the check fails.
 */
static struct region *find(uint64_t addr, uint64_t length)
{
	struct region *r = region_with(addr, length);

	if (!r || !(checks_all || distrusted || r->is_volatile))
		return r;
	counts.tag_checks++;
	if (is_true(r))
		return r;
	expect_end(r, 1u << PINDOWN_REASON_STALE);
	return NULL;
}

struct region *get_begins(uint64_t addr, uint64_t length, unsigned flags)
{
	struct region *r = find(addr, length);

	attempt = (struct attempt){.on = !r && !(flags & PINDOWN_GET_CACHED),
				   .nowait = flags & PINDOWN_GET_NOWAIT,
				   .addr = addr,
				   .length = length};
	attempt_describe();
	counts.hits += r != NULL;
	counts.misses += r == NULL;
	return r;
}

struct region *get_has(struct region *found, pindown_region *real)
{
	struct region *r = found;

	check_no_lost_pin();
	if (!r) {
		AGREE(attempt.pinned, "a get has returned a region that was not pinned");
		r = enter(real);
	}
	AGREE(r->real == real, "a get has returned another region");
	compare_region(r);
	return r;
}

void perform_get(uint64_t addr, uint64_t length, unsigned flags)
{
	pindown_region *untouched = (pindown_region *)&attempt, *real = untouched;
	struct region *r;
	int result;

	if (get_is_bad(length, flags)) {
		result = pindown_get(addr, length, flags, &real);
		AGREE(result == PINDOWN_ERR_INVALID && real == untouched,
		      "bad arguments are taken");
		return;
	}
	if (is_off) {
		result = pindown_get(addr, length, flags, &real);
		AGREE(result == PINDOWN_ERR_NO_CUDA && real == untouched, "get: %s; the model: off",
		      pindown_strerror(result));
		return;
	}
	r = get_begins(addr, length, flags);
	result = pindown_get(addr, length, flags, &real);
	if (r)
		AGREE(result == PINDOWN_OK && real == r->real,
		      "get: %s, %s region; the model: a hit", pindown_strerror(result),
		      real == r->real ? "the same" : "another");
	else if (flags & PINDOWN_GET_CACHED)
		AGREE(result == PINDOWN_ERR_NOT_DEVICE, "get: %s; the model: not cached",
		      pindown_strerror(result));
	else
		get_judge(result);
	AGREE(result == PINDOWN_OK || real == untouched, "a failed get has written a region");
	if (result == PINDOWN_OK)
		get_has(r, real)->holds++;
	attempt.on = false;
}

/* ---- a vector ---- */

/*
 * The ranges up to the first that is not cached: that one is tried when those before it are held,
 * and what follows could miss only because of it. Returns how many are cached.
 */
static size_t begin_vector(const struct pindown_range *ranges, size_t n, unsigned flags,
			   struct region **hits)
{
	size_t i;

	for (i = 0; i < n && !is_off && !get_is_bad(ranges[i].length, flags); i++) {
		hits[i] = get_begins(ranges[i].addr, ranges[i].length, flags);
		if (!hits[i])
			break;
		hits[i]->holds++;
		hits[i]->vector++;
	}
	return i;
}

/* The range behind those that are cached: is this the right result of it? */
static void judge_last(const struct pindown_range *last, unsigned flags, int result)
{
	if (get_is_bad(last->length, flags))
		AGREE(result == PINDOWN_ERR_INVALID, "getv: bad arguments are taken");
	else if (is_off)
		AGREE(result == PINDOWN_ERR_NO_CUDA, "getv: %s; the model: off",
		      pindown_strerror(result));
	else if (flags & PINDOWN_GET_CACHED)
		AGREE(result == PINDOWN_ERR_NOT_DEVICE, "getv: %s; the model: not cached",
		      pindown_strerror(result));
	else
		get_judge(result);
}

/* All or none: those that were held are put again, which may have unpinned some (saw_unpin()). */
static void fail_vector(struct region **hits, size_t count, pindown_region **real, size_t given)
{
	for (size_t i = 0; i < given; i++)
		AGREE(!real[i], "a vector that fails has left a region");
	for (size_t i = 0; i < count; i++)
		hits[i]->holds -= !hits[i]->unpinned;
	counts.failed_vectors++;
}

void perform_getv(const struct pindown_range *ranges, size_t n, unsigned flags)
{
	pindown_region *real[MAX_VECTOR];
	struct region *hits[MAX_VECTOR];
	size_t count = begin_vector(ranges, n, flags, hits), failed = MAX_VECTOR;
	size_t given = count < n ? count + 1 : n;
	int result = pindown_getv(ranges, given, flags, real, &failed);

	counts.vectors++;
	for (size_t i = 0; i < count; i++)
		hits[i]->vector = 0;
	if (count < given)
		judge_last(&ranges[count], flags, result);
	else
		AGREE(result == PINDOWN_OK, "getv: %s; the model: hits", pindown_strerror(result));
	AGREE(failed == (result == PINDOWN_OK ? MAX_VECTOR : count),
	      "getv: range %zu has failed; the model: %zu", failed, count);
	if (result != PINDOWN_OK)
		fail_vector(hits, count, real, given);
	for (size_t i = 0; i < count && result == PINDOWN_OK; i++)
		AGREE(real[i] == hits[i]->real && !hits[i]->unpinned,
		      "getv: another region than a get's");
	if (result == PINDOWN_OK && count < given)
		get_has(NULL, real[count])->holds++;
	attempt.on = false;
}
