/* SPDX-License-Identifier: MIT */
/* Pins reach over the regions that they overlap, and replace them; or over a part of the memory. */
#define _GNU_SOURCE
#include "cache/pin/growth.h"

#include "cache/hit/index.h"
#include "cache/pindown.h"

/* With mappings and regions side by side, each look may find one more to be taken in. */
#define TWOFOLD_LOOKS 4
#define UNION_LOOKS   64

void pdn_growth_begin(struct pdn_growth *growth)
{
	growth->looks = 0;
	growth->base = growth->addr;
	growth->end = growth->addr + growth->length;
	growth->size = 0;
}

/* ---- windows ------------------------------------------------------------------------------- */

/*
 * With windows of an eighth of the space, a few places of an allocation are pinned at once, and
 * each is large enough to be worth a pin.
 */
#define WINDOWS_AT_ONCE 8

/* By device. Relaxed: any of the values that were right at some time will do. */
static uint64_t granules[PDN_MAX_DEVICES + 1];

static uint64_t *granule_of(int device)
{
	return &granules[device >= 0 && device < PDN_MAX_DEVICES ? device : PDN_MAX_DEVICES];
}

static uint64_t round_up(uint64_t addr, uint64_t granule)
{
	return (addr + granule - 1) & -granule;
}

/*
 * A pool's memory, and a graph's, can only be pinned from the beginning of its piece. Where nothing
 * but rounding out to pages is cut off, a window is no smaller.
 */
bool pdn_growth_may_have_windows(const struct pdn_growth *growth, const struct pdn_allocation *what)
{
	const uint64_t page = PINDOWN_PAGE_SIZE;
	const struct pdn_memory *memory = &what->memory;

	return (what->mapped || memory->context) && what->pin_base == (memory->base & -page) &&
	       (round_up(growth->addr + growth->length, page) < memory->end ||
		(growth->addr & -page) > memory->base);
}

bool pdn_growth_to_windows(struct pdn_growth *growth, const struct pdn_allocation *what,
			   uint64_t space)
{
	uint64_t granule = PINDOWN_PAGE_SIZE;

	if (!pdn_growth_may_have_windows(growth, what))
		return false;
	while (2 * granule <= space / WINDOWS_AT_ONCE)
		granule *= 2;
	__atomic_store_n(granule_of(what->memory.device), granule, __ATOMIC_RELAXED);
	growth->granule = granule;
	growth->reach = PDN_REACH_WINDOW;
	return true;
}

/* `what` is all that the request touches, so a window begins in its first mapping, too. */
static void cut_window(const struct pdn_growth *growth, struct pdn_allocation *what)
{
	struct pdn_memory *memory = &what->memory;
	uint64_t base = growth->base & -growth->granule;
	uint64_t end = round_up(growth->end, growth->granule);

	what->is_window = base > memory->base || end < memory->end;
	if (base > memory->base) {
		memory->base = base;
		what->pin_base = base;
	}
	if (end < memory->end)
		memory->end = end;
	if (!memory->context) {
		what->whole_base = memory->base;
		what->whole_end = memory->end;
	}
}

/* Lock held. Is any of the memory pinned by windows? */
static bool has_windows(const struct pdn_allocation *what)
{
	uint64_t at = what->memory.base;
	uint32_t number;

	while ((number = pdn_index_next(&at, what->memory.end)) != 0) {
		struct pindown_region *region = &pdn_regions[number];

		if (pdn_region_flags(region) & PDN_REGION_WINDOW &&
		    !pdn_growth_finds_stale(what, region))
			return true;
		at = region->end;
	}
	return false;
}

/* ---- how far ------------------------------------------------------------------------------- */

/* A smaller granule makes little difference to a large request: then the last one comes next. */
static bool has_smaller_granule(struct pdn_growth *growth)
{
	if (growth->granule <= PINDOWN_PAGE_SIZE)
		return false;
	growth->granule =
		growth->length > 4 * growth->granule ? PINDOWN_PAGE_SIZE : growth->granule / 2;
	return true;
}

bool pdn_growth_shrinks(struct pdn_growth *growth, bool for_space)
{
	if (growth->reach == PDN_REACH_WINDOW && for_space && has_smaller_granule(growth))
		return true;
	if (!pdn_growth_is_wide(growth))
		return false;
	if (growth->reach++ == PDN_REACH_WINDOW)
		growth->granule = PINDOWN_PAGE_SIZE;
	return true;
}

static inline int describe(const struct pdn_growth *growth, struct pdn_allocation *what, int *error)
{
	int result = pdn_driver_describe_run(growth->base, growth->end - growth->base, growth->size,
					     what, error);

	if (result == PINDOWN_OK && growth->reach >= PDN_REACH_WINDOW &&
	    pdn_growth_may_have_windows(growth, what))
		cut_window(growth, what);
	return result;
}

static int describe_less(struct pdn_growth *growth, struct pdn_allocation *what, int *error,
			 int result)
{
	if (!pdn_growth_shrinks(growth, false))
		return result;
	pdn_growth_begin(growth);
	return describe(growth, what, error);
}

int pdn_growth_describe(struct pdn_growth *growth, struct pdn_allocation *what, int *error)
{
	int result = describe(growth, what, error);

	return result == PINDOWN_OK ? result : describe_less(growth, what, error, result);
}

bool pdn_growth_finds_stale(const struct pdn_allocation *what, struct pindown_region *region)
{
	const struct pdn_memory *memory = &what->memory;

	if (!pdn_region_stands(region))
		return true;
	/*
	 * That the memory is mapped may have become known only after the driver has described it.
	 * Then it is one of the mappings that the region spans.
	 */
	if ((what->mapped || (pdn_region_mappings_hash(region) && memory->end <= region->end)) &&
	    region->base != memory->base)
		return false;
	return region->buffer_id != what->buffer_id ||
	       (region->end == memory->end &&
		pdn_region_mappings_hash(region) != what->mappings_hash);
}

/* The memory with the regions that overlap it, and the bytes of these. */
struct reached {
	uint64_t base, end, replaced;
};

static struct reached reached_by(const struct pdn_allocation *what)
{
	struct reached r = {.base = what->memory.base, .end = what->memory.end};
	uint64_t at = r.base;
	uint32_t number;

	while ((number = pdn_index_next(&at, what->memory.end)) != 0) {
		struct pindown_region *region = &pdn_regions[number];

		at = region->end;
		if (pdn_growth_finds_stale(what, region))
			continue;
		if (region->base < r.base)
			r.base = region->base;
		if (region->end > r.end)
			r.end = region->end;
		r.replaced += region->end - region->base;
	}
	return r;
}

/*
 * The driver need not have mappings of the wanted size: it is asked for the same size once. Other
 * threads may change what is there, so the looks are limited.
 */
bool pdn_growth_wants_more(struct pdn_growth *growth, const struct pdn_allocation *what)
{
	uint64_t has = what->memory.end - what->memory.base, size = 0;
	struct reached r;

	if (growth->reach < PDN_REACH_WINDOW && has_windows(what)) {
		growth->granule =
			__atomic_load_n(granule_of(what->memory.device), __ATOMIC_RELAXED);
		growth->reach = PDN_REACH_WINDOW;
		pdn_growth_begin(growth);
		return true;
	}
	if (growth->reach == PDN_REACH_PAGES || growth->reach == PDN_REACH_REQUEST ||
	    (growth->reach < PDN_REACH_REQUEST && !what->mapped))
		return false;
	r = reached_by(what);
	if (growth->reach == PDN_REACH_TWOFOLD && growth->looks < TWOFOLD_LOOKS)
		size = 2 * r.replaced;
	if (r.end - r.base == has && (size <= has || size <= growth->size))
		return false;
	if (++growth->looks > UNION_LOOKS) {
		growth->reach =
			growth->reach == PDN_REACH_WINDOW ? PDN_REACH_PAGES : PDN_REACH_REQUEST;
		growth->granule = PINDOWN_PAGE_SIZE;
		pdn_growth_begin(growth);
		return true;
	}
	growth->base = r.base;
	growth->end = r.end;
	growth->size = size;
	return true;
}
