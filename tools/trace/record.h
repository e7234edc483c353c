/* SPDX-License-Identifier: MIT */
/* One record of a trace, taken apart with every length checked. */
#ifndef RECORD_H
#define RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/trace/format.h"

struct record {
	enum pd_event event;
	unsigned call;
	uint16_t fields; /* PD_HAS_... */
	uint16_t flags;	 /* PD_TRACE_... */
	uint16_t reason;
	int16_t device;
	uint32_t region;
	int64_t result;
	uint64_t taken; /* ticks */
	uint64_t addr, size, extra, pin_addr, pin_size, buffer_id, context;
	uint32_t stack; /* 0: none */
	uint64_t key;
	uint32_t number; /* of a consumer's object, or of a dma-buf of the program's */
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

/* Whether it is an event to be shown: not the writer's housekeeping, nor what we don't know. */
static inline bool record_is_event(uint64_t first)
{
	unsigned type = record_type(first);

	return type == PD_RECORD_CALL || type == PD_RECORD_ERROR || type == PD_RECORD_LOST ||
	       (type == PD_RECORD_REGION && record_what(first) < PD_EV_REGISTER) ||
	       (type == PD_RECORD_NOTE && record_what(first) >= PD_EV_REGISTER &&
		record_what(first) < PD_EV_LOST);
}

/* Decoded: an event with a name (PD_RECORD_NOTE). */
static inline bool record_is_note(const struct record *record)
{
	return record->event >= PD_EV_REGISTER && record->event < PD_EV_LOST;
}

/*
 * The record at `words`, of which `room` words can be read. NULL when it is good, else what was
 * expected.
 */
const char *record_check(const uint64_t *words, uint64_t room);

/* Ticks that a good event took. */
uint64_t record_taken(const uint64_t *words);

/* All of a good event. */
void record_decode(const uint64_t *words, struct record *record);

#endif
