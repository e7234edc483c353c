/* SPDX-License-Identifier: MIT */
/*
 * How far a pin reaches, and the regions that it replaces. Regions never overlap. So a get that is
 * not within one region, but touches some, pins their union, and the new region replaces them.
 * Ranges over adjacent mappings (cuMemMap) would otherwise replace each other for ever.
 *
 * An allocation, or a mapping, that can't be pinned as a whole for lack of space is pinned by
 * windows: aligned parts of it, which are regions and replace each other in the same way.
 */
#ifndef PDN_GROWTH_H
#define PDN_GROWTH_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/driver/driver.h"
#include "cache/hit/region.h"

/*
 * A pin reaches as far as it can, and less far where that fails: in the order of these names. What
 * a wider pin can't have must never keep a get from its own memory.
 */
enum pdn_reach {
	PDN_REACH_TWOFOLD, /* twice the bytes of the replaced regions: then these are few */
	PDN_REACH_UNION,   /* the mappings of the request and the regions that overlap them */
	PDN_REACH_REQUEST, /* the mappings of the request; what overlaps them is evicted */
	PDN_REACH_WINDOW,  /* a part: the request in whole granules, and what overlaps that */
	PDN_REACH_PAGES,   /* the pages of the request; what overlaps them is evicted */
};

struct pdn_growth {
	uint64_t addr, length; /* the request */
	enum pdn_reach reach;
	unsigned looks;	    /* how often pdn_growth_wants_more() has wanted more in this attempt */
	uint64_t base, end; /* ask the driver about this range */
	uint64_t size;	    /* and about mappings beside it, up to this many bytes; 0: none */
	uint64_t granule;   /* where windows begin and end: at multiples of this power of two */
};

/* For another attempt, which begins with the request, and reaches as far as `reach` says. */
void pdn_growth_begin(struct pdn_growth *growth);

/* Does the attempt reach beyond what the request alone would pin? */
static inline bool pdn_growth_is_wide(const struct pdn_growth *growth)
{
	return growth->looks != 0;
}

/*
 * A wide attempt, or one of a window for which there was no space, has failed: the next one reaches
 * less far. false: that is not possible.
 */
bool pdn_growth_shrinks(struct pdn_growth *growth, bool for_space);

/*
 * There is no space for this memory as a whole. true: the next attempt is to pin a window, of a
 * size that suits a device with this much space.
 */
bool pdn_growth_to_windows(struct pdn_growth *growth, const struct pdn_allocation *what,
			   uint64_t space);

/* Can this memory be pinned by windows, and does the request leave something out? */
bool pdn_growth_may_have_windows(const struct pdn_growth *growth,
				 const struct pdn_allocation *what);

/* Asks the driver. If it does not describe a wide range, the attempt shrinks to the request. */
int pdn_growth_describe(struct pdn_growth *growth, struct pdn_allocation *what, int *error);

/*
 * Lock held. The driver has described this memory. true: regions are there that the pin has to
 * take in; ask the driver about more.
 */
bool pdn_growth_wants_more(struct pdn_growth *growth, const struct pdn_allocation *what);

/*
 * Lock held. Was this region pinned for other memory than the driver has just described there?
 * Then its free was not seen. Adjacent mappings may have been pinned in other groups than this
 * pin's: that does not make them stale.
 */
bool pdn_growth_finds_stale(const struct pdn_allocation *what, struct pindown_region *region);

#endif
