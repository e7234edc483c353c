// SPDX-License-Identifier: MIT
/* A thread's place in the trace file: the slot of its counters, its pieces and chunks. */
#define _GNU_SOURCE
#include "cache/trace/stream.h"

#include <string.h>

#include "cache/trace/chunk.h"
#include "cache/trace/clock.h"
#include "cache/trace/file.h"
#include "cache/trace/journal.h"
#include "cache/trace/writer.h"

enum { CLOCK_WORDS = 5, TWO_WORDS = 2 };
/*
 * trace_base of a record whose thread has exited: out of range of each time stamp, also of a small
 * one, as a machine has that has just booted.
 */
#define RETURNED (1ull << 63)

static uint32_t streams; /* how many have begun */

/* ---- counters in the file ------------------------------------------------------------------- */

static bool has_slot(const struct pdn_thread *self)
{
	return self->counters != &self->own_counters;
}

static struct pdn_trace_slot *slot_of(struct pdn_thread *self)
{
	_Static_assert(offsetof(struct pdn_trace_slot, told) == sizeof(struct pdn_counters),
		       "a slot begins with the counters");
	return (struct pdn_trace_slot *)self->counters;
}

/*
 * Moves the thread's counters into the file. Release: pairs with pdn_counter_sum(), which finds
 * them filled in.
 */
static void move_counters(struct pdn_thread *self)
{
	struct pdn_trace_slot *slot = pdn_trace_slot_new(self->tid);

	if (!slot)
		return;
	memcpy(slot, &self->own_counters, sizeof(self->own_counters));
	__atomic_store_n(&self->counters, (struct pdn_counters *)slot, __ATOMIC_RELEASE);
}

void pdn_stream_lose_event(struct pdn_thread *self)
{
	struct pdn_trace_header *header = pdn_trace.header;

	if (self && has_slot(self))
		pdn_count(&self->counters->lost_events);
	else if (header) /* relaxed: a count, for the reader of the file */
		__atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED);
}

/* ---- pieces and chunks ---------------------------------------------------------------------- */

static bool write_piece(const struct pdn_thread *self)
{
	return pdn_trace_file_write(self->trace_memory,
				    (size_t)(self->trace_at - self->trace_memory),
				    self->trace_piece->place - 1);
}

/* A piece without a place, for the rest of the stream or, if it is the thread's first, a new one. */
static bool take_piece(struct pdn_thread *self)
{
	const struct pdn_journal_piece *left = self->trace_piece;
	struct pdn_journal_piece *piece;
	char *memory;

	piece = pdn_journal_piece_new(PDN_CHUNK_EVENTS, &memory);
	if (!piece)
		return false;
	/* Relaxed: a stream only needs a unique number. */
	piece->stream = left ? left->stream : __atomic_fetch_add(&streams, 1, __ATOMIC_RELAXED);
	piece->sequence = left ? left->sequence : 0;
	self->trace_piece = piece;
	self->trace_memory = memory;
	return true;
}

/*
 * A record in the piece that is not complete: this call is in a signal handler that has interrupted
 * its writing, or such a handler has jumped away. That record keeps the piece, which is written
 * when the trace is closed. The stream continues in another one, since readers stop at an
 * incomplete record.
 */
static bool must_leave(const struct pdn_thread *self)
{
	return self->trace_at &&
	       !pdn_journal_is_complete(self->trace_memory,
					(size_t)(self->trace_at - self->trace_memory));
}

/* Moves to a new chunk. False: there is no room, and the thread's written records stay. */
static bool next_place(struct pdn_thread *self, uint64_t end)
{
	uint64_t offset;

	/* In a forked child trace_at still points to the parent's journal. */
	if (!self->trace_piece || must_leave(self)) {
		if (!take_piece(self))
			return false;
	} else if (self->trace_at && !write_piece(self)) {
		return false;
	}
	self->trace_at = self->trace_end = NULL;
	offset = pdn_trace_file_claim();
	if (!offset)
		return false;
	pdn_trace_chunk_begin(self->trace_piece, self->trace_memory, offset, self->tid, end);
	self->trace_base = end;
	self->trace_at = self->trace_memory + sizeof(struct pdn_trace_chunk);
	self->trace_end = self->trace_memory + PDN_JOURNAL_PIECE_SIZE;
	return true;
}

/* ---- making room ---------------------------------------------------------------------------- */

static void put_word(struct pdn_thread *self, enum pdn_record type, uint64_t word)
{
	uint64_t *at = pdn_stream_take(self, TWO_WORDS);

	at[1] = word;
	pdn_stream_commit(at, TWO_WORDS, type, 0, 0);
}

static void put_clock(struct pdn_thread *self, uint64_t base)
{
	uint64_t *at = pdn_stream_take(self, CLOCK_WORDS);
	struct pdn_trace_clock clock;

	pdn_trace_clock_read(&clock);
	at[1] = base;
	at[2] = clock.ticks;
	at[3] = clock.monotonic;
	at[4] = clock.realtime;
	pdn_stream_commit(at, CLOCK_WORDS, PDN_RECORD_CLOCK, 0, 0);
	self->trace_base = base;
}

/* Writes how many events were lost here, now that there is room again. */
static void put_lost(struct pdn_thread *self)
{
	struct pdn_trace_slot *slot = slot_of(self);
	uint64_t lost = self->counters->lost_events;

	if (lost == slot->told)
		return;
	put_word(self, PDN_RECORD_LOST, lost - slot->told);
	slot->told = lost;
}

static bool make_room_alone(struct pdn_thread *self, unsigned words, uint64_t end)
{
	const unsigned more = CLOCK_WORDS + TWO_WORDS + TWO_WORDS;

	if (!has_slot(self))
		move_counters(self);
	if (!pdn_stream_has_room(self, words + more) && !next_place(self, end)) {
		if (pdn_trace_file_is_cut())
			pdn_trace_stop();
		return false;
	}
	if (self->trace_base == RETURNED)
		put_word(self, PDN_RECORD_THREAD, self->tid);
	if (end - self->trace_base > UINT32_MAX)
		put_clock(self, end);
	if (has_slot(self))
		put_lost(self);
	return true;
}

__attribute__((noinline)) bool pdn_stream_make_room(struct pdn_thread *self, unsigned words,
						    uint64_t end, bool is_event)
{
	struct pdn_shield alone;
	bool ready = false;

	/* In a child that has not noticed the fork yet, the pieces are the parent's. */
	if (!pdn_process_is_known()) {
		if (pdn_locks_held)
			return false;
		pdn_process_begin();
	}
	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN)
		pdn_trace_open();
	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) == PDN_TRACE_OPEN) {
		/* While the file is full, a lost event costs no more than a look at the clock. */
		if (pdn_stream_has_room(self, words) || !pdn_trace_file_is_full()) {
			pdn_alone_begin(&alone);
			ready = make_room_alone(self, words, end);
			pdn_alone_end(&alone);
		}
		if (!ready && is_event)
			pdn_stream_lose_event(self);
	}
	return ready;
}

__attribute__((noinline)) void pdn_stream_write_late(const struct pdn_thread *self)
{
	struct pdn_shield alone;

	pdn_alone_begin(&alone);
	if (self->trace_piece) /* none in a child that was forked meanwhile */
		write_piece(self);
	pdn_alone_end(&alone);
}

/* ---- threads and fork ----------------------------------------------------------------------- */

void pdn_stream_start_thread(struct pdn_thread *self)
{
	struct pdn_shield alone;

	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN)
		return;
	pdn_alone_begin(&alone);
	if (has_slot(self))
		/* Relaxed: the slot is in use already; the tid is for readers. */
		__atomic_store_n(&slot_of(self)->tid, self->tid, __ATOMIC_RELAXED);
	else
		move_counters(self);
	pdn_alone_end(&alone);
}

PDN_NOTIFIED(thread_starts, pdn_stream_start_thread);

/*
 * The record's thread exits. The next thread that gets the record uses the rest of its chunk. Later
 * events of the exiting thread are written too.
 */
static void end_thread(struct pdn_thread *self)
{
	self->trace_base = RETURNED;
	self->stack_low = self->stack_high = 0;
}

PDN_NOTIFIED(thread_exits, end_thread);

void pdn_streams_fork_child(void)
{
	/*
	 * The pieces are in the parent's journal: nothing more is written there. trace_at stays,
	 * since this may be a signal handler that has interrupted the taking of a record.
	 */
	struct pdn_thread *self = pdn_self_tls;

	if (self) {
		self->trace_end = NULL;
		self->trace_piece = NULL;
		self->trace_base = 0;
	}
	streams = 0;
}
