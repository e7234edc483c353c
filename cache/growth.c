/* SPDX-License-Identifier: MIT */
/* Pins of mapped memory reach over the regions that they overlap, and replace them. */
#define _GNU_SOURCE
#include "cache/growth.h"

#include "cache/index.h"
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

bool pdn_growth_shrinks(struct pdn_growth *growth)
{
	if (!pdn_growth_is_wide(growth))
		return false;
	growth->reach++;
	return true;
}

static int describe(const struct pdn_growth *growth, struct pdn_allocation *what, int *error)
{
	return pdn_driver_describe_run(growth->base, growth->end - growth->base, growth->size, what,
				       error);
}

int pdn_growth_describe(struct pdn_growth *growth, struct pdn_allocation *what, int *error)
{
	int result = describe(growth, what, error);

	if (result == PINDOWN_OK || !pdn_growth_shrinks(growth))
		return result;
	pdn_growth_begin(growth);
	return describe(growth, what, error);
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
	if ((what->mapped || (pdn_region_others(region) && memory->end <= region->end)) &&
	    region->base != memory->base)
		return false;
	return pdn_details_of(region)->buffer_id != what->buffer_id ||
	       (region->end == memory->end && pdn_region_others(region) != what->others);
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

	if (growth->reach == PDN_REACH_REQUEST || !what->mapped)
		return false;
	r = reached_by(what);
	if (growth->reach == PDN_REACH_TWOFOLD && growth->looks < TWOFOLD_LOOKS)
		size = 2 * r.replaced;
	if (r.end - r.base == has && (size <= has || size <= growth->size))
		return false;
	if (++growth->looks > UNION_LOOKS) {
		growth->reach = PDN_REACH_REQUEST;
		pdn_growth_begin(growth);
		return true;
	}
	growth->base = r.base;
	growth->end = r.end;
	growth->size = size;
	return true;
}
