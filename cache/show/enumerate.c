/* SPDX-License-Identifier: MIT */
/*
 * Visiting all regions or all objects, and a consumer's statistics. A visitor gets a copy made
 * under the lock and runs without it; between two visits there is only a number, so a visitor may
 * do anything, and need not return.
 */
#define _GNU_SOURCE
#include <string.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/visible.h"
#include "cache/objects/end.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"

/* Lock held. false: the record is free, or its region is being unpinned. */
static bool describe_region(uint32_t number, struct pindown_region_info *info)
{
	const struct pindown_region *region = &pdn_regions[number];
	uint32_t state = pdn_state_of(number);

	if (!pdn_state_is_linked(state) && state != PDN_KEPT)
		return false;
	*info = (struct pindown_region_info){
		.base = region->base,
		.length = region->end - region->base,
		.pin_base = pdn_region_pin_base(region),
		.pin_length = pdn_region_pin_length(region),
		.buffer_id = region->buffer_id,
		.context = pdn_region_context(region),
		.device = region->device,
		.is_volatile = pdn_region_is_volatile(region),
		.is_live = pdn_state_is_live(state),
		.in_use = pdn_region_in_use(number) || pdn_objects_hold(number),
	};
	return true;
}

/* Lock held. consumer 0: of any. The object is on a region that is not unpinned yet. */
static bool describe_object(uint32_t number, uint32_t consumer, struct pindown_object_info *info)
{
	const struct pindown_object *object = &pdn_objects[number];
	const struct pindown_region *region = &pdn_regions[object->region];

	if (pdn_process_is_off() ||
	    (object->state != PDN_OBJECT_LIVE && object->state != PDN_OBJECT_ENDING &&
	     object->state != PDN_OBJECT_KEPT) ||
	    (consumer && object->consumer != consumer))
		return false;
	*info = (struct pindown_object_info){
		.key = object->key,
		.base = region->base,
		.length = region->end - region->base,
		.consumer = (int)object->consumer,
		.is_live = object->state == PDN_OBJECT_LIVE,
		.in_use = pdn_object_is_held(number),
	};
	return true;
}

/* Where this look ends, of records up to `last`, which may be less than it was. */
static uint32_t end_of_look(uint32_t number, uint32_t last)
{
	return number + pdn_looks_per_lock < last ? number + pdn_looks_per_lock : last;
}

/*
 * Looks at the records after *number, and stops at the first that is to be visited. false: there
 * are no more.
 */
static bool look_for_region(uint32_t *number, struct pindown_region_info *info, bool *found)
{
	PDN_UNCANCELLED;
	uint32_t last, end;

	pdn_lock();
	last = pdn_region_high_water();
	end = end_of_look(*number, last);
	while (!*found && *number < end)
		*found = describe_region(++*number, info);
	pdn_unlock();
	return *number < last;
}

static bool look_for_object(uint32_t *number, uint32_t consumer, struct pindown_object_info *info,
			    bool *found)
{
	PDN_UNCANCELLED;
	uint32_t last, end;

	pdn_lock();
	last = pdn_object_high_water();
	end = end_of_look(*number, last);
	while (!*found && *number < end)
		*found = describe_object(++*number, consumer, info);
	pdn_unlock();
	return *number < last;
}

/* The next one after *number; false: there is none. */
static bool next_region(uint32_t *number, struct pindown_region_info *info)
{
	bool found = false;

	while (look_for_region(number, info, &found) && !found)
		;
	return found;
}

static bool next_object(uint32_t *number, uint32_t consumer, struct pindown_object_info *info)
{
	bool found = false;

	while (look_for_object(number, consumer, info, &found) && !found)
		;
	return found;
}

PDN_EXPORT int pindown_each_region(pindown_region_visitor visit, void *arg)
{
	struct pindown_region_info info;
	uint32_t number = 0;
	int count = 0, stop = 0;

	if (!visit)
		return PINDOWN_ERR_INVALID;
	for (; !stop && next_region(&number, &info); count++)
		stop = visit(&info, arg);
	return count;
}

PDN_EXPORT int pindown_each_object(int consumer, pindown_object_visitor visit, void *arg)
{
	struct pindown_object_info info;
	uint32_t number = 0;
	int count = 0, stop = 0;

	if (!visit || consumer < 0)
		return PINDOWN_ERR_INVALID;
	for (; !stop && next_object(&number, (uint32_t)consumer, &info); count++)
		stop = visit(&info, arg);
	return count;
}

PDN_EXPORT int pindown_consumer_stats(int id, struct pindown_consumer_stats *stats, size_t size)
{
	PDN_UNCANCELLED;
	struct pindown_consumer_stats all;
	struct pindown_object_info info;
	const struct pdn_selection its = {.consumer = (uint32_t)id};
	const struct pdn_client *consumer;

	if (!stats || size == 0 || id < 1)
		return PINDOWN_ERR_INVALID;
	pdn_lock();
	consumer = pdn_consumer((uint32_t)id);
	if (consumer)
		all = consumer->stats;
	for (uint32_t n = 0; consumer && (n = pdn_next_selected(&its, n));)
		if (describe_object(n, (uint32_t)id, &info)) {
			all.objects++;
			all.held_objects += (unsigned)info.in_use;
			all.kept_objects += !info.is_live;
		}
	pdn_unlock();
	if (!consumer)
		return PINDOWN_ERR_INVALID;
	memset(stats, 0, size);
	memcpy(stats, &all, size < sizeof(all) ? size : sizeof(all));
	return PINDOWN_OK;
}
