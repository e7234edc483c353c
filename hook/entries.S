/* SPDX-License-Identifier: MIT */
/*
 * The first instructions of each wrapper: of the one that programs are bound to by the driver's name, and of
 * the one that look-ups are answered with. The wrapper itself is C (wrap.c).
 *
 * Libraries that patch code (patches.h) write a jump over the first 5 to 14 bytes of a function and move the
 * instructions that were there. Compilers begin a function with what can't be moved, a load relative to
 * the instruction itself, so the first 15 bytes here are three loads of a register that holds no argument.
 *
 * All are alike up to the jump, and the first one is nobody's: it is what the others are compared with.
 */
#include "entries.h"

#if defined(__CET__)
#include <cet.h>
#endif

#if defined(__x86_64__)

#define FUNCTION @function
.macro instructions body
	movl	$0, %eax
	movl	$0, %eax
	movl	$0, %eax
	jmp	\body
.endm

#elif defined(__aarch64__)

#define FUNCTION %function
.macro instructions body
	hint	#34			/* bti c */
	mov	w16, #0
	mov	w16, #0
	mov	w16, #0
	b	\body
.endm

#else
#error "pindown has entries for x86-64 and aarch64 only"
#endif

/* To where the next entry begins. */
.macro place
	.skip	(PD_ENTRY_SIZE - (. - pd_entries_begin) % PD_ENTRY_SIZE) % PD_ENTRY_SIZE, 0xcc
.endm

.macro entry name, body
	place
	.type	\name, FUNCTION
\name:
	instructions \body
	.size	\name, . - \name
.endm

	.section .text.pd_entries, "ax", %progbits
	.globl	pd_entries_begin, pd_entries_end
	.hidden	pd_entries_begin, pd_entries_end

	/* The stack is the same in all of them, so that one description does for all. */
	.p2align 5
pd_entries_begin:
	.cfi_startproc
	instructions pd_entries_begin

#define X(symbol, ...) .globl symbol; entry symbol, pd_caught_linked_##symbol;
#include "entrypoints.def"
#undef X

#define X(symbol, ...) entry pd_looked_up_##symbol, pd_caught_looked_up_##symbol;
#include "entrypoints.def"
#undef X

	place
pd_entries_end:
	.cfi_endproc

	.section .note.GNU-stack, "", %progbits
