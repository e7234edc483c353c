// SPDX-License-Identifier: MIT
/* Publishing chunks of the trace file, and giving out the slots for counters in some of them. */
#define _GNU_SOURCE
#include "cache/trace/chunk.h"

#include "cache/trace/clock.h"
#include "cache/trace/file.h"
#include "cache/trace/journal.h"
#include "cache/trace/state.h"

static struct pdn_trace_chunk *slots; /* the chunk of counters that slots are taken from */

void pdn_trace_chunk_begin(struct pdn_journal_piece *piece, char *memory, uint64_t offset,
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

static const uint32_t slots_of_a_chunk =
	(PDN_JOURNAL_PIECE_SIZE - sizeof(struct pdn_trace_chunk)) / sizeof(struct pdn_trace_slot);

/* Gives a free slot of `chunk` to tid; NULL: there is none. */
static struct pdn_trace_slot *claim_free_slot(struct pdn_trace_chunk *chunk, uint32_t tid)
{
	struct pdn_trace_slot *slot = (struct pdn_trace_slot *)(chunk + 1);

	for (uint32_t i = 0; i < slots_of_a_chunk; i++) {
		uint32_t free = 0;

		/*
		 * Relaxed: this only decides the slot's owner; a new slot's zeroes become visible
		 * with the chunk.
		 */
		if (__atomic_load_n(&slot[i].tid, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&slot[i].tid, &free, tid, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return &slot[i];
	}
	return NULL;
}

/* A full chunk stays as it is: its slots are in use. */
struct pdn_trace_slot *pdn_trace_slot_new(uint32_t tid)
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
	pdn_trace_chunk_begin(piece, memory, offset, tid, 0);
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

void pdn_trace_slots_forget(void)
{
	slots = NULL;
}
