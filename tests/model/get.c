/* SPDX-License-Identifier: MIT */
/* A get, on the cache and on the model: the allowed results. */
#define _GNU_SOURCE
#include <inttypes.h>

#include "cache/pindown.h"
#include "cache/region.h"
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
	attempt.pin_begin = m->kind == POOL ? m->base & -MIB(2) : page_floor(m->base);
	attempt.bytes = page_ceil(attempt.end) - attempt.pin_begin;
	return PINDOWN_OK;
}

void attempt_describe(void)
{
	attempt.bytes = 0;
	attempt.described = driver_answer(memory_at(attempt.addr));
}

static void check_no_lost_pin(void)
{
	AGREE(!attempt.lost_pin, "an invalidated pin is still open: a lost unpin");
}

/* After the attempt: checks the result against all that was seen. */
void get_judge(int result)
{
	bool too_large = max_bytes && attempt.bytes > max_bytes;

	check_no_lost_pin();
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
	else if (attempt.tried)
		AGREE(result == PINDOWN_ERR_NO_SPACE && (!any_idle(attempt.permit_device) ||
							 attempt.is_hopeless || may_give_up()),
		      "get: %s; the model: %s", pindown_strerror(result),
		      any_idle(attempt.permit_device) ? "something could be evicted" : "no space");
	else
		AGREE(result == PINDOWN_ERR_NO_SPACE &&
			      (too_large || !fits_without_idle(attempt.bytes)),
		      "get: %s; the model: no space by budget: %d, space: %d, without idle "
		      "regions: %d",
		      pindown_strerror(result), too_large, fits(attempt.bytes),
		      fits_without_idle(attempt.bytes));
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
		.pin = pdn_details_of(real)->pin.handle,
		.context = m->kind == LINEAR ? context_handle(m->owner) : NULL,
		.pool = m->kind == POOL ? pool_handle(m->owner) : NULL,
		.device = memory_device(memory_at(attempt.addr)),
		.live = true,
		.mapped = m->kind == MAPPED,
		.is_volatile = volatile_any(attempt.begin, attempt.end),
	};
	ids_between(r->base, r->end, r->ids);
	counts.pins++;
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
	return !length || flags & ~PINDOWN_GET_CACHED;
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

	attempt = (struct attempt){.on = !r && !flags, .addr = addr, .length = length};
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
	r = get_begins(addr, length, flags);
	result = pindown_get(addr, length, flags, &real);
	if (r)
		AGREE(result == PINDOWN_OK && real == r->real,
		      "get: %s, %s region; the model: a hit", pindown_strerror(result),
		      real == r->real ? "the same" : "another");
	else if (flags)
		AGREE(result == PINDOWN_ERR_NOT_DEVICE, "get: %s; the model: not cached",
		      pindown_strerror(result));
	else
		get_judge(result);
	AGREE(result == PINDOWN_OK || real == untouched, "a failed get has written a region");
	if (result == PINDOWN_OK)
		get_has(r, real)->holds++;
	attempt.on = false;
}
