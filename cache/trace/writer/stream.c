// SPDX-License-Identifier: MIT
/* A thread's place in the trace file: the slot of its counters, its pieces and chunks. */
#define _GNU_SOURCE
#include "cache/trace/writer/stream.h"

#include <string.h>

#include "cache/trace/journal/journal.h"
#include "cache/trace/writer/clock.h"
#include "cache/trace/writer/writer.h"

enum { OTHERS = 5 + 2 + 2 }; /* words of a clock, a thread and a loss before an event */
/*
 * trace_base of a record whose thread has exited: out of range of each time stamp, also of a small
 * one, as a machine has that has just booted.
 */
#define RETURNED (1ull << 63)

static uint32_t streams;	      /* how many have begun */
static struct pdn_trace_chunk *slots; /* the chunk of counters that slots are taken from */

/* ---- chunks --------------------------------------------------------------------------------- */

/*
 * Begins the piece's next chunk, in the unit of the file at `offset`, and lets readers see it. Its
 * first records' times count from `base`.
 */
static void begin_chunk(struct pdn_journal_piece *piece, char *memory, uint64_t offset,
			uint32_t tid, uint64_t base)
{
	struct pdn_trace_chunk *chunk = (struct pdn_trace_chunk *)(void *)memory;
	struct pdn_trace_header *header = pdn_trace.header;
	uint64_t end = offset / PDN_TRACE_UNIT + 1;
	uint64_t known = __atomic_load_n(&header->units, __ATOMIC_RELAXED);

	pdn_journal_move(piece, memory, offset);
	chunk->kind = (uint16_t)piece->kind;
	chunk->units = 1;
	chunk->stream = piece->stream;
	chunk->sequence = piece->sequence++;
	chunk->tid = tid;
	chunk->base = base;
	pdn_trace_clock_read(&chunk->clock);
	/* Release: pairs with readers of the file. The number of units is only a count: relaxed. */
	__atomic_store_n(&chunk->magic, PDN_CHUNK_MAGIC, __ATOMIC_RELEASE);
	while (known < end && !__atomic_compare_exchange_n(&header->units, &known, end, false,
							   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	/* For copies of the file. Readers on this machine see the header in memory. */
	pdn_trace_file_write(header, sizeof(*header), 0);
}

/* ---- counters in the file ------------------------------------------------------------------- */

/* Gives a free slot of `chunk` to tid; NULL: there is none. */
static struct pdn_trace_slot *claim_free_slot(struct pdn_trace_chunk *chunk, uint32_t tid)
{
	struct pdn_trace_slot *slot = (struct pdn_trace_slot *)(chunk + 1);
	const size_t bytes = PDN_JOURNAL_PIECE_SIZE - sizeof(*chunk);

	for (size_t i = 0; i < bytes / sizeof(*slot); i++) {
		uint32_t free = 0;

		/*
		 * Relaxed: this only decides the slot's owner; a new slot's zeroes become visible
		 * with the chunk.
		 */
		if (__atomic_compare_exchange_n(&slot[i].tid, &free, tid, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return &slot[i];
	}
	return NULL;
}

/* A full chunk stays as it is: its slots are in use. */
struct pdn_trace_slot *pdn_stream_slot_new(uint32_t tid)
{
	struct pdn_trace_chunk *chunk = __atomic_load_n(&slots, __ATOMIC_ACQUIRE);
	struct pdn_trace_slot *slot = chunk ? claim_free_slot(chunk, tid) : NULL;
	struct pdn_journal_piece *piece;
	uint64_t offset;
	char *memory;

	if (slot)
		return slot;
	offset = pdn_trace_file_claim();
	piece = offset ? pdn_journal_piece_new(PDN_CHUNK_COUNTERS, &memory) : NULL;
	if (!piece)
		return NULL;
	begin_chunk(piece, memory, offset, tid, 0);
	slot = claim_free_slot((struct pdn_trace_chunk *)(void *)memory, tid);
	/*
	 * If another thread has begun a chunk first, only this one slot of the new chunk is ever
	 * used. Release: pairs with the acquire above, so that a thread that finds the chunk finds
	 * it set up.
	 */
	__atomic_compare_exchange_n(&slots, &chunk, (struct pdn_trace_chunk *)(void *)memory, false,
				    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	return slot;
}

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

/* Moves the thread's counters into the file. */
static void take_slot(struct pdn_thread *self)
{
	struct pdn_trace_slot *slot = has_slot(self) ? NULL : pdn_stream_slot_new(self->tid);

	if (has_slot(self)) /* relaxed: it is in use already; the tid is for readers */
		__atomic_store_n(&slot_of(self)->tid, self->tid, __ATOMIC_RELAXED);
	if (!slot)
		return;
	memcpy(slot, &self->own_counters, sizeof(self->own_counters));
	/* Release: pairs with pdn_counter_sum(), which finds them filled in. */
	__atomic_store_n(&self->counters, (struct pdn_counters *)slot, __ATOMIC_RELEASE);
}

void pdn_stream_lose_event(struct pdn_thread *self)
{
	struct pdn_trace_header *header = pdn_trace.header;

	/* A child that has not noticed the fork has its parent's. */
	if (!header || !pdn_process_is_known())
		return;
	if (self && has_slot(self))
		pdn_count(&self->counters->lost_events);
	else /* relaxed: a count, for the reader of the file */
		__atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED);
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Bytes of the piece that are taken. */
static size_t taken(const struct pdn_thread *self)
{
	return (size_t)(self->trace_at - self->trace_memory);
}

static bool write_piece(const struct pdn_thread *self)
{
	return pdn_trace_file_write(self->trace_memory, taken(self), self->trace_piece->place - 1);
}

/* A piece without a place, for the rest of the stream, or for a new one. */
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
	return self->trace_at && pdn_journal_complete(self->trace_memory) != taken(self);
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
	begin_chunk(self->trace_piece, self->trace_memory, offset, self->tid, end);
	self->trace_base = end;
	self->trace_at = self->trace_memory + sizeof(struct pdn_trace_chunk);
	self->trace_end = self->trace_memory + PDN_JOURNAL_PIECE_SIZE;
	return true;
}

/* ---- making room ---------------------------------------------------------------------------- */

static void put(struct pdn_thread *self, enum pdn_record type, const uint64_t *words,
		unsigned count)
{
	uint64_t *at = pdn_stream_take(self, count + 1);

	memcpy(at + 1, words, count * sizeof(*words));
	pdn_stream_commit(at, count + 1, type, 0, 0);
}

static void put_clock(struct pdn_thread *self, uint64_t base)
{
	struct {
		uint64_t base;
		struct pdn_trace_clock clock;
	} words = {.base = base};

	pdn_trace_clock_read(&words.clock);
	put(self, PDN_RECORD_CLOCK, &words.base, sizeof(words) / sizeof(words.base));
	self->trace_base = base;
}

/* Writes how many events were lost here, now that there is room again. */
static void put_lost(struct pdn_thread *self)
{
	struct pdn_trace_slot *slot = slot_of(self);
	uint64_t more = self->counters->lost_events - slot->told;

	if (more)
		put(self, PDN_RECORD_LOST, &more, 1);
	slot->told += more;
}

static bool make_room_alone(struct pdn_thread *self, unsigned words, uint64_t end)
{
	const uint64_t tid = self->tid;

	take_slot(self);
	if (!pdn_stream_has_room(self, words + OTHERS) && !next_place(self, end))
		return false;
	if (self->trace_base == RETURNED)
		put(self, PDN_RECORD_THREAD, &tid, 1);
	if (end - self->trace_base > UINT32_MAX)
		put_clock(self, end);
	if (has_slot(self))
		put_lost(self);
	return true;
}

__attribute__((noinline)) bool pdn_stream_make_room(struct pdn_thread *self, unsigned words,
						    uint64_t end)
{
	struct pdn_shield alone;
	bool ready;

	/* In a child that has not noticed the fork yet, the pieces are the parent's. */
	if (!pdn_process_is_known()) {
		if (pdn_locks_held)
			return false;
		pdn_process_begin();
	}
	pdn_trace_open();
	/* While the file is full, a lost event costs no more than a look at the clock. */
	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN ||
	    (!pdn_stream_has_room(self, words) && pdn_trace_file_is_full()))
		return false;
	pdn_alone_begin(&alone);
	ready = make_room_alone(self, words, end);
	pdn_shield_down(&alone);
	return ready;
}

__attribute__((noinline)) void pdn_stream_write_late(const struct pdn_thread *self)
{
	struct pdn_shield alone;

	pdn_alone_begin(&alone);
	if (self->trace_piece) /* none in a child that was forked meanwhile */
		write_piece(self);
	pdn_shield_down(&alone);
}

/* ---- threads and fork ----------------------------------------------------------------------- */

void pdn_stream_start_thread(struct pdn_thread *self)
{
	struct pdn_shield alone;

	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN)
		return;
	pdn_alone_begin(&alone);
	take_slot(self);
	pdn_shield_down(&alone);
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
	slots = NULL;
}
