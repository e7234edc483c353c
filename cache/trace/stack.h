/* SPDX-License-Identifier: MIT */
/*
 * Call stacks in the trace. A stack is written once, as a list of return addresses, and events
 * refer to it by its number. Each address is a module's number and an address in its file, so that
 * a trace can be read on another machine.
 *
 * The walk up the stack takes no lock, allocates nothing, and reads no unreadable memory. The rule
 * for the step from a frame to its caller is computed once for each return address (unwind.c) and
 * then cached, so that a step costs a few loads.
 */
#ifndef PDN_TRACE_STACK_H
#define PDN_TRACE_STACK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/trace/format.h"

struct pdn_thread;

/* Before the first stack: sets the most return addresses of one, if there is memory. */
void pdn_stacks_begin(unsigned depth);

/* The most return addresses of a stack; 0: stacks are not wanted. */
extern unsigned pdn_stacks_depth;

/*
 * Stores the return addresses of the caller's stack, innermost first and without those in
 * libpindown.so. Returns their number. Works without a trace too. Takes some microseconds.
 */
unsigned pdn_stack_callers(uint64_t *pcs, unsigned max);

void pdn_stacks_fork_child(void);

/* In events.c: a record that is no event; `words` follow its first word. False: no room. */
bool pdn_trace_words(enum pdn_record type, unsigned what, const uint64_t *words, unsigned count);

#endif
