// SPDX-License-Identifier: MIT
/* Composing records from events, and writing them into the thread's stream. */
#define _GNU_SOURCE
#include "cache/trace/writer/events.h"

#include <stdio.h>
#include <string.h>

#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/trace/journal/journal.h"
#include "cache/trace/stack/modules.h"
#include "cache/trace/stack/stack.h"
#include "cache/trace/writer/stream.h"

uint32_t pdn_trace_mask;

/*
 * A record of an event. The words follow the first one; the fields are gathered in the order of
 * their PDN_HAS bits.
 */
struct draft {
	uint64_t words[1 + 16];
	unsigned used, fields;
	uint64_t end;
};

static inline void add_always(struct draft *draft, unsigned field, uint64_t value)
{
	draft->words[draft->used++] = value;
	draft->fields |= field;
}

static inline void add(struct draft *draft, unsigned field, uint64_t value)
{
	if (value)
		add_always(draft, field, value);
}

/*
 * Begins a draft with what each event has. begin: 0, if it is not known; then the event has no
 * duration.
 */
static inline void begin_draft(struct draft *draft, uint64_t addr, uint64_t size, int64_t result,
			       uint64_t begin, uint64_t end)
{
	uint64_t taken = begin && begin < end ? end - begin : 0;
	bool quick = taken <= UINT32_MAX;

	draft->words[0] = quick ? taken : 0;
	draft->used = 1;
	draft->fields = 0;
	draft->end = end;
	add(draft, PDN_HAS_ADDR, addr);
	add(draft, PDN_HAS_SIZE, size);
	add(draft, PDN_HAS_RESULT, (uint64_t)result);
	if (!quick)
		add(draft, PDN_HAS_DURATION, taken);
}

/* Always, since 0 is a valid device. */
static inline void add_region(struct draft *draft, uint32_t region, unsigned reason, int32_t device)
{
	add_always(draft, PDN_HAS_REGION,
		   region | (uint64_t)reason << 32 | (uint64_t)(uint16_t)device << 48);
}

/* Only notes have fields above this one: their key, number and origin. */
static inline void add_stack(struct draft *draft)
{
	if (__builtin_expect(pdn_stacks_depth, 0))
		add(draft, PDN_HAS_STACK, pdn_trace_stack(false));
}

/*
 * The record's `when`: its end in ticks after the base that applies at `at`. If a call in a signal
 * handler has begun a chunk meanwhile, its base applies to records in the thread's piece, and the
 * earlier one to a piece that the thread has left.
 */
static inline uint64_t when_of(const struct pdn_thread *self, const uint64_t *at, uint64_t base,
			       uint64_t end)
{
	uint64_t now = self->trace_base;

	if (__builtin_expect(now != base, 0) &&
	    (size_t)((const char *)at - self->trace_memory) < PDN_JOURNAL_PIECE_SIZE)
		base = now;
	return end - base <= UINT32_MAX ? end - base : 0;
}

/* Room for a record, and the base that precedes it; NULL: there is none. */
static inline uint64_t *take(struct pdn_thread *self, unsigned words, uint64_t end, uint64_t *base)
{
	if (!self || !pdn_stream_prepare(self, words, end))
		return NULL;
	*base = self->trace_base;
	return pdn_stream_take(self, words);
}

/*
 * Writes a record, which has its words behind the first one, then the text. Where there is no room,
 * an event is counted as lost.
 */
static inline void write_record(enum pdn_record type, unsigned what, const uint64_t *words,
				unsigned used, const char *text, unsigned length, uint64_t end,
				bool is_event)
{
	unsigned text_words = (length + 7) / 8, all = 1 + used + text_words;
	struct pdn_thread *self = pdn_self();
	uint64_t base, *at = take(self, all, end, &base);

	if (__builtin_expect(!at, 0)) {
		if (is_event)
			pdn_stream_lose_event(self);
		return;
	}
	for (unsigned i = 0; i < used; i++)
		at[1 + i] = words[i];
	if (text_words)
		memcpy(at + 1 + used, text, length);
	pdn_stream_commit(at, all, type, what, is_event ? when_of(self, at, base, end) : 0);
	pdn_stream_write_if_late(self);
}

static inline void write_draft(struct draft *draft, enum pdn_record type, unsigned what,
			       unsigned aside, const char *text, unsigned length)
{
	draft->words[0] |= (uint64_t)draft->fields << 32 | (uint64_t)aside << 48;
	write_record(type, what, draft->words, draft->used, text, length, draft->end, true);
}

static void write_words(enum pdn_record type, unsigned what, const uint64_t *words, unsigned count)
{
	write_record(type, what, words, count, NULL, 0, pdn_ticks(), false);
}

PDN_NOTIFIED(stack_words, write_words);

void pdn_trace_call(unsigned call, uint64_t addr, uint64_t size, int result, uint64_t begin,
		    uint64_t end, uint64_t extra)
{
	bool fits = (unsigned)result <= UINT16_MAX;
	struct draft draft;

	if (!pdn_tracing(PDN_EV_CALL))
		return;
	begin_draft(&draft, addr, size, fits ? 0 : result, begin, end);
	add(&draft, PDN_HAS_EXTRA, extra);
	add_stack(&draft);
	write_draft(&draft, PDN_RECORD_CALL, call, fits ? (unsigned)result : 0, NULL, 0);
}

void pdn_trace_region(enum pdn_event event, const struct pdn_trace_region *what, uint64_t begin,
		      uint64_t end)
{
	struct draft draft;

	if (!pdn_tracing(event))
		return;
	begin_draft(&draft, what->addr, what->size, what->result, begin, end);
	add_region(&draft, what->region, what->reason, what->device);
	add(&draft, PDN_HAS_PIN_ADDR, what->pin_addr);
	add(&draft, PDN_HAS_PIN_SIZE, what->pin_size);
	add(&draft, PDN_HAS_BUFFER_ID, what->buffer_id);
	add(&draft, PDN_HAS_CONTEXT, what->context);
	if (event != PDN_EV_HIT)
		add_stack(&draft);
	write_draft(&draft, PDN_RECORD_REGION, event, what->flags, NULL, 0);
}

void pdn_trace_note(enum pdn_event event, const struct pdn_trace_note *what, uint64_t begin,
		    uint64_t end)
{
	unsigned length = what->name ? (unsigned)strnlen(what->name, PDN_ERROR_MAX_TEXT) : 0;
	struct draft draft;

	if (!pdn_tracing(event))
		return;
	begin_draft(&draft, what->addr, what->size, what->result, begin, end);
	add_always(&draft, PDN_HAS_EXTRA, what->extra);
	add_region(&draft, what->region, what->reason, what->device);
	add(&draft, PDN_HAS_PIN_SIZE, what->pin_size);
	add(&draft, PDN_HAS_BUFFER_ID, what->buffer_id);
	if (what->stack)
		add(&draft, PDN_HAS_STACK, what->stack);
	else
		add_stack(&draft);
	add(&draft, PDN_HAS_KEY, what->key);
	add(&draft, PDN_HAS_NUMBER, what->number);
	add(&draft, PDN_HAS_ORIGIN, what->origin);
	write_draft(&draft, PDN_RECORD_NOTE, event, (what->flags & 0xffu) | length << 8, what->name,
		    length);
}

void pdn_trace_error(const char *text, uint64_t addr, uint64_t size, int result)
{
	unsigned length = (unsigned)strnlen(text, PDN_ERROR_MAX_TEXT);
	struct draft draft;

	if (!pdn_tracing(PDN_EV_ERROR))
		return;
	begin_draft(&draft, addr, size, result, 0, pdn_ticks());
	add_stack(&draft);
	write_draft(&draft, PDN_RECORD_ERROR, PDN_EV_ERROR, length, text, length);
}

static void trace_wait(uint32_t tid, const char *what, const char *and_now)
{
	char text[PDN_ERROR_MAX_TEXT + 1];

	snprintf(text, sizeof(text), "a free has waited two seconds for thread %u's %s, and %s",
		 tid, what, and_now);
	pdn_trace_error(text, 0, 0, 0);
}

PDN_NOTIFIED(free_has_waited, trace_wait);
