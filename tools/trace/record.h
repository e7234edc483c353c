/* SPDX-License-Identifier: MIT */
/*
 * One record of a trace: its length is checked before it is decoded. Most records are events; some
 * are the writer's bookkeeping.
 */
#ifndef RECORD_H
#define RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/trace/format.h"

struct record {
	enum pdn_event event;
	unsigned call;
	uint16_t fields; /* PDN_HAS_... */
	uint16_t flags;	 /* PDN_TRACE_... */
	uint16_t reason;
	int16_t device;
	uint32_t region;
	int64_t result;
	uint64_t taken; /* ticks */
	uint64_t addr, size, extra, pin_addr, pin_size, buffer_id, context;
	uint32_t stack;	 /* 0: none */
	uint32_t origin; /* of a note: the stack that made the registration; 0: none */
	uint64_t key;
	uint32_t number; /* of a consumer object, or of the program's dma-buf */
	uint64_t lost;
	const char *text; /* in the record, not NUL-terminated */
	unsigned text_length;
};

static inline unsigned record_words(uint64_t first)
{
	return first & 0xff;
}

static inline unsigned record_type(uint64_t first)
{
	return first >> 8 & 0xff;
}

static inline unsigned record_what(uint64_t first)
{
	return first >> 16 & 0xffff;
}

static inline uint64_t record_when(uint64_t first)
{
	return first >> 32;
}

/* Whether it is an event to show: neither bookkeeping nor a type of a later version. */
static inline bool record_is_event(uint64_t first)
{
	unsigned type = record_type(first);

	return type == PDN_RECORD_CALL || type == PDN_RECORD_ERROR || type == PDN_RECORD_LOST ||
	       (type == PDN_RECORD_REGION && record_what(first) < PDN_EV_REGISTER) ||
	       (type == PDN_RECORD_NOTE && record_what(first) >= PDN_EV_REGISTER &&
		record_what(first) < PDN_EV_LOST);
}

/* Whether it was a note: an event with a name (PDN_RECORD_NOTE). */
static inline bool record_is_note(const struct record *record)
{
	return record->event >= PDN_EV_REGISTER && record->event < PDN_EV_LOST;
}

/* Of a retire: where the reserved addresses begin, whole blocks around what was freed. */
static inline uint64_t record_reserved(const struct record *record)
{
	return record->addr + record->size - record->pin_size;
}

/*
 * Checks the record at `words`, of which `capacity` words can be read. NULL when it is good, else
 * what was expected.
 */
const char *record_check(const uint64_t *words, uint64_t capacity);

/* The duration of a good event, in ticks. */
uint64_t record_taken(const uint64_t *words);

/* Decodes a good event. */
void record_decode(const uint64_t *words, struct record *record);

#endif
