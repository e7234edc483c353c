/* SPDX-License-Identifier: MIT */
/*
 * The rule for the step from a stack frame to its caller's, from a module's .eh_frame, which
 * exception handling and debuggers use too. Understands what compilers write for ordinary
 * functions; the answer for anything else is PDN_STEP_POINTER. For stack.c only.
 */
#ifndef PDN_TRACE_UNWIND_H
#define PDN_TRACE_UNWIND_H

#include <stdint.h>

/*
 * The frame's canonical address (CFA) is a register plus an offset. On x86-64 the return address
 * lies just below the CFA; on arm64 it is saved at an offset from it. The caller's frame pointer is
 * saved at an offset, too, or is in its register.
 */
enum pdn_step {
	PDN_STEP_END,	  /* no caller: the start of a thread */
	PDN_STEP_STACK,	  /* CFA = stack pointer + cfa */
	PDN_STEP_FRAME,	  /* CFA = frame pointer + cfa */
	PDN_STEP_POINTER, /* unknown: try the frame pointer, as if the function kept one */
};

struct pdn_rule {
	enum pdn_step step;
	int32_t cfa;
	int32_t saved; /* place of the saved frame pointer, from the CFA, in words; 0: not saved */
#if defined(__aarch64__)
	int32_t returns; /* the same of the return address */
#endif
};

/*
 * The rule at `pc`, in a module whose .eh_frame_hdr is at `index`. Reads no unreadable memory, and
 * takes a bounded time whatever the memory contains.
 */
struct pdn_rule pdn_unwind_rule(uint64_t index, uint64_t index_bytes, uint64_t pc);

#endif
