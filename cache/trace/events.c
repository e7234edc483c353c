// SPDX-License-Identifier: MIT
/* Composing records from events, and writing them into the thread's stream. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/trace/format.h"
#include "cache/trace/journal.h"
#include "cache/trace/stack.h"
#include "cache/trace/stream.h"
#include "cache/trace/writer.h"

/* The words of a record; its fields are gathered in the order of their PDN_HAS bits. */
struct draft {
	uint64_t words[2 + 16];
	unsigned used, fields;
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

/* Only notes have fields above this one: their key, number and origin. */
static inline void add_stack(struct draft *draft)
{
	if (__builtin_expect(pdn_stacks_depth, 0))
		add(draft, PDN_HAS_STACK, pdn_trace_stack(false));
}

static inline uint64_t time_taken(uint64_t begin, uint64_t end)
{
	return begin && begin < end ? end - begin : 0;
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

static inline void write_text(struct draft *draft, enum pdn_record type, unsigned what,
			      unsigned aside, uint64_t taken, uint64_t end, const char *text,
			      unsigned length)
{
	unsigned text_words = (length + 7) / 8, words = draft->used + text_words;
	struct pdn_thread *self = pdn_self();
	uint64_t *at, base;

	if (__builtin_expect(!self, 0)) {
		pdn_stream_lose_event(NULL);
		return;
	}
	if (!pdn_stream_prepare(self, words, end, true))
		return;
	base = self->trace_base;
	at = pdn_stream_take(self, words);
	if (__builtin_expect(!at, 0)) {
		pdn_stream_lose_event(self);
		return;
	}
	at[1] = (uint32_t)taken | (uint64_t)draft->fields << 32 | (uint64_t)aside << 48;
	for (unsigned i = 2; i < draft->used; i++)
		at[i] = draft->words[i];
	if (text_words)
		memcpy(at + draft->used, text, length);
	pdn_stream_commit(at, words, type, what, when_of(self, at, base, end));
	pdn_stream_write_if_late(self);
}

static inline void write_draft(struct draft *draft, enum pdn_record type, unsigned what,
			       unsigned aside, uint64_t taken, uint64_t end)
{
	write_text(draft, type, what, aside, taken, end, NULL, 0);
}

void pdn_trace_call(unsigned call, uint64_t addr, uint64_t size, int result, uint64_t begin,
		    uint64_t end, uint64_t extra)
{
	uint64_t taken = time_taken(begin, end);
	bool fits = (unsigned)result <= UINT16_MAX, quick = taken <= UINT32_MAX;
	struct draft draft;

	if (!pdn_tracing(PDN_EV_CALL))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PDN_HAS_ADDR, addr);
	add(&draft, PDN_HAS_SIZE, size);
	if (__builtin_expect(!fits, 0))
		add(&draft, PDN_HAS_RESULT, (uint64_t)(int64_t)result);
	if (__builtin_expect(!quick, 0))
		add(&draft, PDN_HAS_DURATION, taken);
	add(&draft, PDN_HAS_EXTRA, extra);
	add_stack(&draft);
	write_draft(&draft, PDN_RECORD_CALL, call, fits ? (unsigned)result : 0, quick ? taken : 0,
		    end);
}

void pdn_trace_region(enum pdn_event event, const struct pdn_trace_region *what, uint64_t begin,
		      uint64_t end)
{
	uint64_t taken = time_taken(begin, end);
	bool quick = taken <= UINT32_MAX;
	struct draft draft;

	if (!pdn_tracing(event))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PDN_HAS_ADDR, what->addr);
	add(&draft, PDN_HAS_SIZE, what->size);
	add(&draft, PDN_HAS_RESULT, (uint64_t)(int64_t)what->result);
	if (!quick)
		add(&draft, PDN_HAS_DURATION, taken);
	/* Always, since 0 is a valid device. */
	add_always(&draft, PDN_HAS_REGION,
		   what->region | (uint64_t)what->reason << 32 |
			   (uint64_t)(uint16_t)what->device << 48);
	add(&draft, PDN_HAS_PIN_ADDR, what->pin_addr);
	add(&draft, PDN_HAS_PIN_SIZE, what->pin_size);
	add(&draft, PDN_HAS_BUFFER_ID, what->buffer_id);
	add(&draft, PDN_HAS_CONTEXT, what->context);
	if (event != PDN_EV_HIT)
		add_stack(&draft);
	write_draft(&draft, PDN_RECORD_REGION, event, what->flags, quick ? taken : 0, end);
}

void pdn_trace_note(enum pdn_event event, const struct pdn_trace_note *what, uint64_t begin,
		    uint64_t end)
{
	unsigned length = what->name ? (unsigned)strnlen(what->name, PDN_ERROR_MAX_TEXT) : 0;
	uint64_t taken = time_taken(begin, end);
	bool quick = taken <= UINT32_MAX;
	struct draft draft;

	if (!pdn_tracing(event))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PDN_HAS_ADDR, what->addr);
	add(&draft, PDN_HAS_SIZE, what->size);
	add(&draft, PDN_HAS_RESULT, (uint64_t)(int64_t)what->result);
	if (!quick)
		add(&draft, PDN_HAS_DURATION, taken);
	add_always(&draft, PDN_HAS_EXTRA, what->extra);
	add_always(&draft, PDN_HAS_REGION,
		   what->region | (uint64_t)what->reason << 32 |
			   (uint64_t)(uint16_t)what->device << 48);
	add(&draft, PDN_HAS_PIN_SIZE, what->pin_size);
	add(&draft, PDN_HAS_BUFFER_ID, what->buffer_id);
	if (what->stack)
		add(&draft, PDN_HAS_STACK, what->stack);
	else
		add_stack(&draft);
	add(&draft, PDN_HAS_KEY, what->key);
	add(&draft, PDN_HAS_NUMBER, what->number);
	add(&draft, PDN_HAS_ORIGIN, what->origin);
	write_text(&draft, PDN_RECORD_NOTE, event, (what->flags & 0xffu) | length << 8,
		   quick ? taken : 0, end, what->name, length);
}

void pdn_trace_error(const char *text, uint64_t addr, uint64_t size, int result)
{
	unsigned length = (unsigned)strnlen(text, PDN_ERROR_MAX_TEXT);
	struct draft draft;

	if (!pdn_tracing(PDN_EV_ERROR))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PDN_HAS_ADDR, addr);
	add(&draft, PDN_HAS_SIZE, size);
	add(&draft, PDN_HAS_RESULT, (uint64_t)(int64_t)result);
	add_stack(&draft);
	write_text(&draft, PDN_RECORD_ERROR, PDN_EV_ERROR, length, 0, pdn_ticks(), text, length);
}

static void trace_wait(uint32_t tid, const char *what, const char *and_now)
{
	char text[PDN_ERROR_MAX_TEXT + 1];

	snprintf(text, sizeof(text), "a free has waited two seconds for thread %u's %s, and %s",
		 tid, what, and_now);
	pdn_trace_error(text, 0, 0, 0);
}

PDN_NOTIFIED(free_has_waited, trace_wait);

bool pdn_trace_words(enum pdn_record type, unsigned what, const uint64_t *words, unsigned count)
{
	struct pdn_thread *self = pdn_self();
	uint64_t *at;

	if (!self || !pdn_stream_prepare(self, count + 1, pdn_ticks(), false))
		return false;
	at = pdn_stream_take(self, count + 1);
	if (!at)
		return false;
	memcpy(at + 1, words, count * sizeof(*words));
	pdn_stream_commit(at, count + 1, type, what, 0);
	pdn_stream_write_if_late(self);
	return true;
}
