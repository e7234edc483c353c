/* SPDX-License-Identifier: MIT */
/*
 * Newcomers that had to go: a ring, whose oldest are forgotten when together they are as large as
 * the cache. They are known by buffer id, which no other allocation ever gets, so that a free of
 * memory need not forget any; and by their place, as an allocation may have several windows.
 */
#define _GNU_SOURCE

#include "cache/show/account.h"
#include "cache/room/ghosts.h"

#define GHOSTS 4096u
static struct {
	uint64_t id, bytes; /* 0: it has come back */
} ghosts[GHOSTS];
static uint32_t ghost_places
	[GHOSTS]; /* by id: the place in the ring; on a hash collision the newer id wins */
static uint32_t ghosts_begin, ghosts_end;
static uint64_t ghost_bytes;

static uint64_t ghost_id(const struct pindown_region *region)
{
	return region->buffer_id + pdn_region_pin_base(region);
}

static uint32_t *ghost_place(uint64_t id)
{
	return &ghost_places[(id * 0x9e3779b97f4a7c15ull >> 40) % GHOSTS];
}

static void forget(uint32_t place)
{
	ghost_bytes -= ghosts[place].bytes;
	ghosts[place].id = ghosts[place].bytes = 0;
}

void pdn_ghost_remember(const struct pindown_region *region)
{
	uint32_t place = ghosts_end++ % GHOSTS;

	if (ghosts_end - ghosts_begin > GHOSTS)
		forget(ghosts_begin++ % GHOSTS);
	ghosts[place].id = ghost_id(region);
	ghosts[place].bytes = pdn_region_pin_length(region);
	*ghost_place(ghost_id(region)) = place;
	ghost_bytes += pdn_region_pin_length(region);
	while (ghost_bytes > pdn_pinned_bytes())
		forget(ghosts_begin++ % GHOSTS);
}

bool pdn_ghost_comes_back(const struct pindown_region *region)
{
	uint64_t id = ghost_id(region);
	uint32_t place;

	if (__builtin_expect(!ghost_bytes, 1)) /* nothing was ever evicted, or all is forgotten */
		return false;
	place = *ghost_place(id);
	if (!ghosts[place].bytes || ghosts[place].id != id)
		return false;
	forget(place);
	return true;
}
