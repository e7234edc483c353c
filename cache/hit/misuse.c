/* SPDX-License-Identifier: MIT */
/* Reports of wrong API calls, with PINDOWN_DEBUG. */
#define _GNU_SOURCE
#include "cache/hit/misuse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/thread/thread.h"
#include "cache/end/kept.h"
#include "cache/objects/end.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/trace/stack/modules.h"
#include "cache/trace/stack/stack.h"

/* ---- stacks --------------------------------------------------------------------------------- */

#define DEEPEST 12

struct stack {
	uint64_t pc[DEEPEST];
	unsigned count;
};

static void take_stack(struct stack *stack)
{
	stack->count = pdn_stack_callers(stack->pc, DEEPEST);
}

static void print_stack(const struct stack *stack)
{
	char name[64];
	uint64_t offset;

	for (unsigned i = 0; i < stack->count; i++) {
		if (pdn_module_name(stack->pc[i], name, sizeof(name), &offset))
			pdn_log(PDN_LOG_ERROR, "    %s+0x%llx", name, (unsigned long long)offset);
		else
			pdn_log(PDN_LOG_ERROR, "    0x%llx", (unsigned long long)stack->pc[i]);
	}
}

/* ---- what is given back --------------------------------------------------------------------- */

/* Under the lock. The latest ones, in a ring. */
struct past {
	const void *what;
	uint32_t tid;
	struct stack stack;
};
static struct past past[256];
static uint32_t past_count;

static void remember(const void *what, const struct stack *stack)
{
	past[past_count++ % 256] = (struct past){what, pdn_my_tid(), *stack};
}

/* Lock held. The latest one of this region or object, if it is among them. */
static bool recall(const void *what, struct past *last)
{
	for (uint32_t i = 0; i < 256; i++) {
		*last = past[(past_count - 1 - i) % 256];
		if (last->what == what)
			return true;
	}
	return false;
}

/* ---- the report ----------------------------------------------------------------------------- */

#define MAX_REPORTS 20

static bool is_to_be_said(void)
{
	static uint32_t reports;
	uint32_t before = __atomic_fetch_add(&reports, 1, __ATOMIC_RELAXED);

	if (before == MAX_REPORTS)
		pdn_log(PDN_LOG_ERROR, "no further mistakes are reported");
	return before < MAX_REPORTS;
}

static __attribute__((format(printf, 3, 4))) void
report(const struct stack *stack, const struct past *last, const char *format, ...)
{
	char line[300];
	va_list arguments;

	if (!is_to_be_said())
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	pdn_log(PDN_LOG_ERROR, "%s; called at", line);
	print_stack(stack);
	if (!last)
		return;
	pdn_log(PDN_LOG_ERROR, "it was last given back by thread %u, at", last->tid);
	print_stack(&last->stack);
}

/* ---- regions -------------------------------------------------------------------------------- */

/* 0: the pointer is not one of these records. */
static uint32_t number_of(const void *pointer, const void *records, size_t size, uint32_t used)
{
	uint64_t distance = (uintptr_t)pointer - (uintptr_t)records;

	return distance % size == 0 && distance / size <= used ? (uint32_t)(distance / size) : 0;
}

static uint32_t region_number(const struct pindown_region *region)
{
	return number_of(region, pdn_regions, sizeof(*region), pdn_region_high_water());
}

static bool is_in_callback(void)
{
	return pdn_runs_callback();
}

/*
 * Lock held. By a hold of its own. In a child all regions of its parent count as held: their counts
 * mean nothing there.
 */
static bool is_held(uint32_t number)
{
	return pdn_region_in_use(number) || pdn_process_is_off();
}

/* Lock held. A callback need not hold the region that it is notified of. */
static bool may_be_used(uint32_t number)
{
	return is_held(number) || is_in_callback() || pdn_objects_hold(number);
}

/* Under the lock, which every other put in this process takes, too. */
static void put(struct pdn_ending *last, uint32_t number)
{
	pdn_unhold(pdn_self_or_anonymous(), number);
	pdn_region_take_kept(last, number);
}

void pdn_misuse_put(struct pindown_region *region)
{
	PDN_UNCANCELLED;
	uint32_t number = region_number(region);
	bool held = false, known;
	struct pdn_ending last = {0};
	struct stack stack;
	struct past before;

	if (!region)
		return;
	take_stack(&stack);
	if (!number) {
		report(&stack, NULL, "pindown_put: %p is not a region; ignored", (void *)region);
		return;
	}
	pdn_lock();
	held = is_held(number);
	known = !held && recall(region, &before);
	if (held) {
		put(&last, number);
		remember(region, &stack);
	}
	pdn_unlock();
	pdn_unpin_kept(&last);
	if (!held)
		report(&stack, known ? &before : NULL,
		       "pindown_put: nobody holds the region of %llu bytes at 0x%llx, one put was "
		       "too "
		       "many: ignored",
		       (unsigned long long)(region->end - region->base),
		       (unsigned long long)region->base);
}

void pdn_misuse_look(const struct pindown_region *region, const char *by)
{
	PDN_UNCANCELLED;
	uint32_t number = region_number(region);
	bool good = false, known = false;
	struct stack stack;
	struct past before;

	pdn_lock();
	good = number && may_be_used(number);
	known = !good && recall(region, &before);
	pdn_unlock();
	if (good)
		return;
	take_stack(&stack);
	if (number)
		report(&stack, known ? &before : NULL,
		       "%s: nobody holds the region of %llu bytes at 0x%llx any more", by,
		       (unsigned long long)(region->end - region->base),
		       (unsigned long long)region->base);
	else
		report(&stack, NULL, "%s: %p is not a region", by, (const void *)region);
}

/* ---- objects -------------------------------------------------------------------------------- */

static uint32_t object_number(const struct pindown_object *object)
{
	return number_of(object, pdn_objects, sizeof(*object), pdn_object_high_water());
}

/* Lock held. */
static bool is_object_held(uint32_t number)
{
	return pdn_object_is_held(number) || pdn_process_is_off();
}

void pdn_misuse_detach(struct pindown_object *object)
{
	PDN_UNCANCELLED;
	uint32_t number = object_number(object);
	bool held = false, ended = false, known = false;
	struct stack stack;
	struct past before;

	take_stack(&stack);
	pdn_lock();
	held = number && is_object_held(number);
	known = number && !held && recall(object, &before);
	if (held) {
		pdn_object_hold(pdn_self_or_anonymous(), number, -1u);
		ended = object->state != PDN_OBJECT_LIVE;
		remember(object, &stack);
	}
	pdn_unlock();
	if (ended)
		pdn_object_let_go(number);
	if (!held)
		report(&stack, known ? &before : NULL,
		       number ? "pindown_detach: nobody holds the object %p, one detach was too "
				"many: ignored"
			      : "pindown_detach: %p is not an object; ignored",
		       (void *)object);
}

void pdn_misuse_look_at_object(const struct pindown_object *object, const char *by)
{
	PDN_UNCANCELLED;
	uint32_t number = object_number(object);
	bool good, known;
	struct stack stack;
	struct past before;

	pdn_lock();
	good = number && (is_object_held(number) || is_in_callback());
	known = number && !good && recall(object, &before);
	pdn_unlock();
	if (good)
		return;
	take_stack(&stack);
	report(&stack, known ? &before : NULL,
	       number ? "%s: nobody holds the object %p any more" : "%s: %p is not an object", by,
	       (const void *)object);
}
