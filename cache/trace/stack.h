/* SPDX-License-Identifier: MIT */
/*
 * Call stacks in the trace: who called. A stack is written once, as a list of return addresses, and
 * events name it by its number. Each address is a module's number and an offset in its file, so that a
 * trace can be read on another machine.
 *
 * The walk up the stack takes no lock, allocates nothing, and reads nothing that can't be read. How to
 * get from a frame to its caller is found out once for each return address (unwind.c) and then
 * remembered, so that a step costs a few loads.
 */
#ifndef PD_TRACE_STACK_H
#define PD_TRACE_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/trace/format.h"

struct pd_thread;

/* Before the first stack: how many return addresses at most. False: no memory for it. */
bool pd_stacks_begin(unsigned depth);

/* Whether stacks are wanted. */
extern unsigned pd_stacks_depth;

/* The number of the caller's stack, after it has been written if it is new; 0: none. Keeps errno. */
uint32_t pd_stack_take(struct pd_thread *self);

/*
 * The return addresses of the caller's stack without those of ours, innermost first; whether there
 * is a trace or not. Takes some microseconds. How many.
 */
unsigned pd_stack_callers(uint64_t *pcs, unsigned most);

/* Goes up when code is unloaded. */
uint32_t pd_stacks_generation(void);

void pd_stacks_fork_child(void);

/* writer.c's: a record of this thread that is no event, words behind the first. False: no room. */
bool pd_trace_words(enum pd_record type, unsigned what, const uint64_t *words, unsigned count);

#endif
