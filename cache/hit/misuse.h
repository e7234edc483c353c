/* SPDX-License-Identifier: MIT */
/*
 * With PINDOWN_DEBUG=1, wrong calls of the API are reported, with a line and the call stack, and
 * calls that would harm others are ignored. A program without it pays nothing: with it, the limits
 * that pointers are compared with are 0, so that each pointer looks wrong at first (get.c,
 * objects/object.c).
 *
 * The counts of holds show that more is given back than was taken, at the call that would make the
 * count negative, or that something is used which nobody holds. They do not show whose hold another
 * call has given back, since all holders of a region have the same pointer; so the latest calls
 * that gave it back are reported, too.
 */
#ifndef PDN_MISUSE_H
#define PDN_MISUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/hit/region.h"

void pdn_misuse_put(struct pindown_region *region);
void pdn_misuse_detach(struct pindown_object *object);

/* `by`: the function that was called. */
void pdn_misuse_look(const struct pindown_region *region, const char *by);
void pdn_misuse_look_at_object(const struct pindown_object *object, const char *by);

static inline void pdn_region_is_used(const struct pindown_region *region, const char *by)
{
	if (__builtin_expect(pdn_debugging, 0))
		pdn_misuse_look(region, by);
}

static inline void pdn_object_is_used(const struct pindown_object *object, const char *by)
{
	if (__builtin_expect(pdn_debugging, 0))
		pdn_misuse_look_at_object(object, by);
}

#endif
