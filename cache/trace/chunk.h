/* SPDX-License-Identifier: MIT */
/* Chunks of the trace file, and the slots for counters in some of them. For the writer only. */
#ifndef PDN_TRACE_CHUNK_H
#define PDN_TRACE_CHUNK_H

#include <stdbool.h>

#include "cache/trace/format.h"

struct pdn_journal_piece;

/*
 * Begins the piece's next chunk, in the unit of the file at `offset`, and lets readers see it. Its
 * first records' times count from `base`.
 */
void pdn_trace_chunk_begin(struct pdn_journal_piece *piece, char *memory, uint64_t offset,
			   uint32_t tid, uint64_t base);

/* A new slot for tid, all else zero; NULL when there is no room. Any thread. */
struct pdn_trace_slot *pdn_trace_slot_new(uint32_t tid);

/* In a forked child: slots will come from its own file. */
void pdn_trace_slots_forget(void);

#endif
