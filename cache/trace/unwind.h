/* SPDX-License-Identifier: MIT */
/*
 * How to get from a frame of the stack to the one that called it: from a module's .eh_frame, which
 * exception handling and debuggers use too. Only what compilers write for ordinary functions is
 * understood; the rest is answered with PD_STEP_POINTER. For stack.c only.
 */
#ifndef PD_TRACE_UNWIND_H
#define PD_TRACE_UNWIND_H

#include <stdint.h>

/*
 * The frame's canonical address (CFA) is a register plus an offset; the return address lies just
 * below it, and the caller's frame pointer is saved at an offset from it, or is still in its register.
 */
enum pd_step {
	PD_STEP_END,	 /* nothing called this: the start of a thread */
	PD_STEP_STACK,	 /* CFA = stack pointer + cfa */
	PD_STEP_FRAME,	 /* CFA = frame pointer + cfa */
	PD_STEP_POINTER, /* not known: the frame pointer may point to the caller's and its return */
};

struct pd_rule {
	enum pd_step step;
	int32_t cfa;
	int32_t saved; /* of the frame pointer, from the CFA, in words; 0: it is where it was */
};

/*
 * The rule at `pc`, in a module whose .eh_frame_hdr is at `index`. Reads nothing that can't be read,
 * ends after a bounded time whatever is there.
 */
struct pd_rule pd_unwind_rule(uint64_t index, uint64_t index_bytes, uint64_t pc);

#endif
