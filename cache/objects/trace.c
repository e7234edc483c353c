/* SPDX-License-Identifier: MIT */
/* Trace events about consumer objects. */
#define _GNU_SOURCE
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/trace/writer.h"

static struct pdn_trace_note note_about(const struct pindown_region *region, const char *consumer)
{
	return (struct pdn_trace_note){
		.addr = region->base,
		.size = region->end - region->base,
		.pin_size = pdn_region_pin_length(region),
		.buffer_id = region->buffer_id,
		.region = pdn_region_number(region),
		.device = region->device,
		.name = consumer,
	};
}

void pdn_trace_object(enum pdn_event event, const char *consumer,
		      const struct pdn_object_event *what)
{
	struct pdn_trace_note note;
	uint64_t end;

	/* A callback may have forked, and this be the child. */
	if (!pdn_tracing(event) || pdn_process_is_off())
		return;
	note = note_about(&pdn_regions[what->region], consumer);
	note.extra = what->key->owner;
	note.key = what->key->word[0];
	note.number = what->number;
	note.result = what->result;
	note.reason = what->reason;
	note.flags = what->flags;
	end = pdn_ticks();
	pdn_trace_note(event, &note, what->begin ? what->begin : end, end);
}

void pdn_trace_held(const struct pindown_region *region, const char *consumer, uint32_t count)
{
	struct pdn_trace_note note;
	uint64_t now;

	if (!pdn_tracing(PDN_EV_HELD))
		return;
	note = note_about(region, consumer);
	note.extra = count;
	note.reason = region->reason;
	note.flags = PDN_TRACE_IN_USE;
	now = pdn_ticks();
	pdn_trace_note(PDN_EV_HELD, &note, now, now);
}

void pdn_trace_holder(const struct pindown_region *region, const char *consumer,
		      const struct pdn_holder_event *what)
{
	struct pdn_trace_note note = note_about(region, consumer);
	uint64_t now = pdn_ticks();

	note.addr = what->addr;
	note.size = what->size;
	note.extra = what->key->owner;
	note.key = what->key->word[0];
	note.number = what->object;
	note.origin = what->origin;
	note.stack = what->stack;
	note.reason = what->reason;
	note.flags = what->flags;
	pdn_trace_note(PDN_EV_HOLDER, &note, now, now);
}
