/* SPDX-License-Identifier: MIT */
/*
 * With PINDOWN_DEBUG=1: calls of the API that are mistakes of the program's are named, with a line
 * and the stack that led there, and what would harm others is ignored. Nothing of this is on the
 * way of a program without it: the limits that pointers are compared with are then 0, so that each
 * of them looks wrong at first (get.c, objects/object.c).
 *
 * What is told is what the counts of holds tell: that more is given back than was taken, at the
 * call that would make the count negative, or that something is used which nobody holds. Whose hold
 * it is that another call has given back cannot be told, since all holders of a region have the
 * same pointer; so the last ones are named, too.
 */
#ifndef PD_MISUSE_H
#define PD_MISUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/region.h"

void pd_misuse_put(struct pindown_region *region);
void pd_misuse_detach(struct pindown_object *object);

/* `by`: the function that was called. */
void pd_misuse_look(const struct pindown_region *region, const char *by);
void pd_misuse_look_at_object(const struct pindown_object *object, const char *by);

static inline void pd_region_is_used(const struct pindown_region *region, const char *by)
{
	if (__builtin_expect(pd_debugging, 0))
		pd_misuse_look(region, by);
}

static inline void pd_object_is_used(const struct pindown_object *object, const char *by)
{
	if (__builtin_expect(pd_debugging, 0))
		pd_misuse_look_at_object(object, by);
}

#endif
