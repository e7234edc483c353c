// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "cache/trace/chunk.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/address_space.h"
#include "cache/trace/clock.h"
#include "cache/trace/file.h"
#include "cache/trace/journal.h"

static struct pd_trace_chunk *slots; /* the chunk of counters that slots are taken from */

void pd_trace_chunk_publish(struct pd_trace_header *header, struct pd_trace_chunk *chunk,
			    uint64_t offset)
{
	uint64_t end = offset / PD_TRACE_UNIT + chunk->units;
	uint64_t known = __atomic_load_n(&header->units, __ATOMIC_RELAXED);

	/* Release: pairs with readers of the file. How many units there are is a count: relaxed. */
	__atomic_store_n(&chunk->magic, PD_CHUNK_MAGIC, __ATOMIC_RELEASE);
	while (known < end && !__atomic_compare_exchange_n(&header->units, &known, end, false,
							   __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	/* For who copies the file. Readers on this machine see what is in memory. */
	pd_trace_file_write(header, sizeof(*header), 0);
}

static const uint32_t slots_of_a_chunk =
	(PD_JOURNAL_PIECE_SIZE - sizeof(struct pd_trace_chunk)) / sizeof(struct pd_trace_slot);

/* A slot of `chunk` that was free is now tid's; NULL: there is none. */
static struct pd_trace_slot *take_free(struct pd_trace_chunk *chunk, uint32_t tid)
{
	struct pd_trace_slot *slot = (struct pd_trace_slot *)(chunk + 1);

	for (uint32_t i = 0; i < slots_of_a_chunk; i++) {
		uint32_t free = 0;

		/*
		 * Relaxed: nothing is to be seen but whose it is; a new slot's zeroes come with the
		 * chunk.
		 */
		if (__atomic_load_n(&slot[i].tid, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&slot[i].tid, &free, tid, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return &slot[i];
	}
	return NULL;
}

/* The first slot of a new chunk, which takes the place of `full`, if that is one. */
static struct pd_trace_slot *take_first_of_new(struct pd_trace_header *header,
					       struct pd_trace_chunk *full, uint32_t tid)
{
	uint64_t offset = pd_trace_file_claim(1);
	struct pd_journal_piece *piece;
	struct pd_trace_chunk *chunk;
	struct pd_trace_slot *slot;
	char *memory;

	piece = offset ? pd_journal_piece_new(PD_CHUNK_COUNTERS, &memory) : NULL;
	if (!piece)
		return NULL;
	pd_journal_move(piece, memory, offset);
	chunk = (struct pd_trace_chunk *)(void *)memory;
	chunk->kind = PD_CHUNK_COUNTERS;
	chunk->units = 1;
	chunk->tid = (uint32_t)syscall(SYS_gettid);
	pd_trace_clock_read(&chunk->clock);
	slot = take_free(chunk, tid);
	pd_trace_chunk_publish(header, chunk, offset);
	/*
	 * A thread that was quicker has put one there too: then nobody else takes slots of ours.
	 * Release: pairs with the acquire in pd_trace_slot_new(), so that who finds the chunk finds
	 * it set up.
	 */
	__atomic_compare_exchange_n(&slots, &full, chunk, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
	return slot;
}

/* Full chunks stay as they are: their slots are in use. */
struct pd_trace_slot *pd_trace_slot_new(struct pd_trace_header *header, uint32_t tid)
{
	struct pd_trace_chunk *chunk = __atomic_load_n(&slots, __ATOMIC_ACQUIRE);
	struct pd_trace_slot *slot = chunk ? take_free(chunk, tid) : NULL;

	return slot ? slot : take_first_of_new(header, chunk, tid);
}

void pd_trace_slots_forget(void)
{
	slots = NULL;
}
