/* SPDX-License-Identifier: MIT */
/* Chunks of the trace, and the slots for counters in some of them. For writer.c only. */
#ifndef PD_TRACE_CHUNK_H
#define PD_TRACE_CHUNK_H

#include <stdbool.h>

#include "cache/trace/format.h"

/* From here on a reader sees the chunk, all of whose header is set. */
void pd_trace_chunk_publish(struct pd_trace_header *header, struct pd_trace_chunk *chunk,
			    uint64_t offset);

/* A slot of one's own, all zero but tid; NULL when there is no room. Any thread. */
struct pd_trace_slot *pd_trace_slot_new(struct pd_trace_header *header, uint32_t tid);

/* In a forked child: slots are taken from a new file. */
void pd_trace_slots_forget(void);

#endif
