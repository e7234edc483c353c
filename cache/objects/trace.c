/* SPDX-License-Identifier: MIT */
/* Trace events about consumer objects. */
#define _GNU_SOURCE
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/region.h"
#include "cache/trace/writer.h"

static struct pd_trace_note note_about(const struct pindown_region *region, const char *consumer)
{
	return (struct pd_trace_note){
		.addr = region->base,
		.size = region->end - region->base,
		.pin_size = pd_details_of(region)->pin.length,
		.buffer_id = pd_details_of(region)->buffer_id,
		.region = pd_region_number(region),
		.device = pd_details_of(region)->pin.device,
		.name = consumer,
	};
}

void pd_trace_object(enum pd_event event, const char *consumer, const struct pd_object_event *what)
{
	struct pd_trace_note note;
	uint64_t end;

	/*
	 * Abandoned: a callback has forked, and this is the child. Relaxed: its only thread has
	 * stored the state itself.
	 */
	if (!pd_tracing(event) ||
	    __atomic_load_n(&pd_briefs[what->region].state, __ATOMIC_RELAXED) == PD_ABANDONED)
		return;
	note = note_about(&pd_regions[what->region], consumer);
	note.extra = what->key->owner;
	note.key = what->key->word[0];
	note.number = what->number;
	note.result = what->result;
	note.reason = what->reason;
	note.flags = what->flags;
	end = pd_ticks();
	pd_trace_note(event, &note, what->begin ? what->begin : end, end);
}

void pd_trace_held(const struct pindown_region *region, const char *consumer, uint32_t count)
{
	struct pd_trace_note note;
	uint64_t now;

	if (!pd_tracing(PD_EV_HELD))
		return;
	note = note_about(region, consumer);
	note.extra = count;
	note.reason = pd_details_of(region)->reason;
	note.flags = PD_TRACE_IN_USE;
	now = pd_ticks();
	pd_trace_note(PD_EV_HELD, &note, now, now);
}
