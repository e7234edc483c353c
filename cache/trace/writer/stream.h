/* SPDX-License-Identifier: MIT */
/*
 * A thread's stream of records and its place in the file. For writer.c and events.c only.
 *
 * The place is in the thread's record: trace_piece is its piece of the journal, for the life of the
 * record, and trace_memory is that piece's memory; trace_at to trace_end is the part that is left
 * (both NULL: the thread has no place in the file yet, or is just moving); 32-bit time stamps count
 * from trace_base.
 *
 * One comparison on the fast path catches everything rare: there is no piece, the piece is full,
 * the time stamp is out of range, or another thread's record was taken over (then trace_base puts
 * every time stamp out of range).
 */
#ifndef PDN_TRACE_STREAM_H
#define PDN_TRACE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/process/process.h"
#include "cache/base/thread/thread.h"
#include "cache/trace/format.h"
#include "cache/trace/writer/file.h"

static inline bool pdn_stream_has_room(const struct pdn_thread *self, unsigned words)
{
	return self->trace_end - self->trace_at >= (ptrdiff_t)words * 8;
}

/* Whatever is missing on the fast path. False: nothing can be written. */
bool pdn_stream_make_room(struct pdn_thread *self, unsigned words, uint64_t end);

/* Makes room for a record that ends at `end`. False: there is none. */
static inline bool pdn_stream_prepare(struct pdn_thread *self, unsigned words, uint64_t end)
{
	if (__builtin_expect(
		    end - self->trace_base <= UINT32_MAX && pdn_stream_has_room(self, words), 1) &&
	    pdn_process_is_known())
		return true;
	return pdn_stream_make_room(self, words, end);
}

/*
 * Takes `words` from the piece in one instruction: a call in a signal handler before or after it
 * takes others. NULL: such a call has left no room. The record is complete when its first word is
 * stored.
 */
static inline uint64_t *pdn_stream_take(struct pdn_thread *self, unsigned words)
{
	uint64_t bytes = (uint64_t)words * 8, at = bytes;

#if defined(__x86_64__)
	__asm__("xaddq %0, %1" : "+r"(at), "+m"(self->trace_at) : : "cc");
#else
	at = (uint64_t)__atomic_fetch_add(&self->trace_at, bytes, __ATOMIC_RELAXED);
#endif
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return at + bytes <= (uint64_t)self->trace_end ? (uint64_t *)at : NULL;
}

/* Release: pairs with readers of the file, which read a record's first word first. */
static inline void pdn_stream_commit(uint64_t *at, unsigned words, enum pdn_record type,
				     unsigned what, uint64_t when)
{
	__atomic_store_n(at, words | (uint64_t)type << 8 | (uint64_t)what << 16 | when << 32,
			 __ATOMIC_RELEASE);
}

/*
 * After the trace was closed, each thread writes its records at once. Relaxed: a record that
 * another thread writes during the closing may be missing, as if the process had ended a moment
 * earlier.
 */
void pdn_stream_write_late(const struct pdn_thread *self);

static inline void pdn_stream_write_if_late(const struct pdn_thread *self)
{
	if (__builtin_expect(__atomic_load_n(&pdn_trace.ended, __ATOMIC_RELAXED), 0))
		pdn_stream_write_late(self);
}

/* Counts a lost event; NULL: of a thread without a record. */
void pdn_stream_lose_event(struct pdn_thread *self);

/*
 * Called by a new thread, and when the trace opens by the thread that opens it: moves its record's
 * counters into the file, if there is one, so that they survive a kill.
 */
void pdn_stream_start_thread(struct pdn_thread *self);

/* A new slot for the counters of tid, all else zero; NULL: there is no room. Any thread. */
struct pdn_trace_slot *pdn_stream_slot_new(uint32_t tid);

/* In a forked child: no thread has a place, and all counters are the records' own, and zero. */
void pdn_streams_fork_child(void);

#endif
