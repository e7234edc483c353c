/* SPDX-License-Identifier: MIT */
/* The information about the process in unit 0 of its trace. For writer.c only. */
#ifndef PD_TRACE_INFO_H
#define PD_TRACE_INFO_H

#include "cache/trace/format.h"

/* Everything there is, call names included. `header` begins a mapped unit. */
void pd_trace_info_write(struct pd_trace_header *header, const char *const *calls, unsigned count);

/* The call names alone, for when they come after the rest. */
void pd_trace_info_calls(struct pd_trace_header *header, const char *const *calls, unsigned count);

/* Why every hit is checked. */
void pd_trace_info_distrust(struct pd_trace_header *header, const char *why);

#endif
