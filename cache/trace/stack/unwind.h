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
 * The frame's canonical address (CFA) is a register plus an offset. The return address is
 * saved at an offset from it: on x86-64 just below the CFA. The caller's frame pointer is saved at
 * an offset, too, or is in its register.
 */
enum pdn_step {
	PDN_STEP_END,	  /* no caller: the start of a thread */
	PDN_STEP_STACK,	  /* CFA = stack pointer + cfa */
	PDN_STEP_FRAME,	  /* CFA = frame pointer + cfa */
	PDN_STEP_POINTER, /* unknown: try the frame pointer, as if the function kept one */
};

enum { PDN_MAX_FRAME = 1 << 20 }; /* bytes */

/* One word, which is stored and loaded at once. */
struct pdn_rule {
	uint64_t step : 3; /* enum pdn_step */
	int64_t cfa : 22;
	/* From the CFA, in words: where the caller's frame pointer is saved (0: it is not) ... */
	int64_t saved : 19;
	int64_t returns : 19; /* ... and the return address */
};
_Static_assert(sizeof(struct pdn_rule) == sizeof(uint64_t), "rule");

/*
 * The rule at `pc`, in a module whose .eh_frame_hdr is at `index`. Reads no unreadable memory, and
 * takes a bounded time whatever the memory contains.
 */
struct pdn_rule pdn_unwind_rule(uint64_t index, uint64_t index_bytes, uint64_t pc);

#endif
