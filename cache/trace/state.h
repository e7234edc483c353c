/* SPDX-License-Identifier: MIT */
/*
 * The trace's state, which the writer's files share, and how a thread works on the trace alone. For
 * writer.c, stream.c and events.c only.
 */
#ifndef PDN_TRACE_STATE_H
#define PDN_TRACE_STATE_H

#include <stdbool.h>

#include "cache/base/log.h"
#include "cache/trace/format.h"

enum pdn_trace_state { PDN_TRACE_UNTRIED, PDN_TRACE_OPENING, PDN_TRACE_OPEN, PDN_TRACE_OFF };

/*
 * The state is stored with release when all else is set up, and loaded with acquire before all else
 * is used. From PDN_TRACE_UNTRIED on it changes by compare-and-swap, so that one thread opens.
 */
struct pdn_trace {
	int state;			 /* enum pdn_trace_state */
	struct pdn_trace_header *header; /* in the journal */
	bool ended;			 /* closed: events are written one by one */
};
extern __attribute__((visibility("hidden"))) struct pdn_trace pdn_trace;

/*
 * Ends tracing because the file was truncated: it belongs to someone else now. Counters and pieces
 * stay where they are until the process ends.
 */
void pdn_trace_stop(void);

/*
 * Between these two a thread may write to the file or change its place in it: no call in a signal
 * handler, no jump out of one and no cancellation can find that half done, and the program never
 * sees SIGXFSZ, nor another errno. Signals that a thread causes itself stay unblocked: blocked, they would kill it.
 */
void pdn_alone_begin(struct pdn_shield *alone);
void pdn_alone_end(struct pdn_shield *alone);

#endif
