/* SPDX-License-Identifier: MIT */
/* Chunks of the trace file, and the slots for counters in some of them. For the writer only. */
#ifndef PDN_TRACE_CHUNK_H
#define PDN_TRACE_CHUNK_H

#include <stdbool.h>

#include "cache/trace/format.h"

/* Lets readers see the chunk; all of its header is set but the magic. */
void pdn_trace_chunk_publish(struct pdn_trace_header *header, struct pdn_trace_chunk *chunk,
			     uint64_t offset);

/* A new slot for tid, all else zero; NULL when there is no room. Any thread. */
struct pdn_trace_slot *pdn_trace_slot_new(struct pdn_trace_header *header, uint32_t tid);

/* In a forked child: slots will come from its own file. */
void pdn_trace_slots_forget(void);

#endif
