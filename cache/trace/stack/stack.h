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

/* A stack of one frame, for an event that names its caller even without stacks; 0: unknown. */
uint32_t pdn_trace_caller(const void *caller);

/*
 * The number of the current stack: all of it where stacks are wanted. Where they are not, it is 0,
 * or with `few` the innermost frames.
 */
uint32_t pdn_trace_stack(bool few);

/* For `origin`: of a stack's number, which is returned as it is, or of a return address. */
uint32_t pdn_trace_origin(uint64_t number_or_address);
bool pdn_trace_is_address(uint64_t number_or_address);

/*
 * For call stacks: a module is about to be unloaded, which makes knowledge about code addresses
 * stale; a module is about to be loaded, perhaps at the place of an unloaded one.
 */
void pdn_stacks_unloading(void);
void pdn_stacks_loading(void);

#endif
