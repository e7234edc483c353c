/* SPDX-License-Identifier: MIT */
/*
 * The life of the trace, as the library calls it. The file's format is in format.h and
 * docs/internals/trace-format.md; the readers are in tools/.
 *
 * Any thread may call any of these functions at any time. None takes a lock, allocates with malloc,
 * changes errno, or makes a watched call.
 */
#ifndef PDN_TRACE_WRITER_H
#define PDN_TRACE_WRITER_H

/*
 * Sets the names of the watched calls, by call number (below 65536), before the first call is
 * traced: each name with its final NUL, and an empty one behind the last. The text is kept, not
 * copied.
 */
void pdn_trace_call_names(const char *names);

/*
 * Writes why every hit is checked from now on, into this process's trace and those of its children,
 * also if they are opened later. The text is kept, not copied.
 */
void pdn_trace_distrust(const char *why);

/*
 * Open the trace file if the configuration asks for one; once, at the first use of the driver. From
 * then on pdn_trace_mask says which events are written. Concurrent calls wait for the first.
 */
void pdn_trace_open(void);

/*
 * In a forked child: leaves the parent's file; the child's own is opened at the first event. All
 * threads' counters are back in their records, and zero.
 */
void pdn_trace_fork_child(void);

/*
 * At exit: write that the process ended in order, and the counters that are not in the file yet.
 * Later events are still written.
 */
void pdn_trace_close(void);

#endif
