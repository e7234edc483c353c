/* SPDX-License-Identifier: MIT */
/* The information about the process in unit 0 of its trace. */
#ifndef PDN_TRACE_INFO_H
#define PDN_TRACE_INFO_H

#include "cache/trace/format.h"

/* The rank of this process in its job, as its environment has it, or PDN_NO_RANK (rank.h). */
int32_t pdn_trace_rank(void);

/*
 * For the writer. Writes all of it, call names included: `calls` is as pdn_trace_call_names() takes
 * it. `header` is the start of a unit in memory.
 */
void pdn_trace_info_write(struct pdn_trace_header *header, const char *calls);

/* Writes the call names alone, if they become known after the rest. */
void pdn_trace_info_calls(struct pdn_trace_header *header, const char *calls);

/* Writes a text, of at most PATH_MAX bytes. */
void pdn_trace_info_text(struct pdn_trace_header *header, enum pdn_trace_info_kind kind,
			 const char *text);

#endif
