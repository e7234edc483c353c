/* SPDX-License-Identifier: MIT */
/*
 * The first instructions of each wrapper: of the one that programs are bound to by the driver's
 * name, and of the one with which look-ups are answered. Both continue in one function in C
 * (wrap.c), with the program's own return address, and with one more argument behind the program's:
 * the real function, or NULL if it is not known yet.
 *
 * Libraries that patch code (loader/patches.h) write a jump over the first 5 to 14 bytes of a
 * function and move the instructions that were there. A compiler may begin a function with an
 * instruction that can't be moved, such as a load relative to the instruction itself. So the first
 * 15 bytes here are three loads of a register that holds no argument.
 *
 * All entries are alike up to the jump. The first one belongs to no wrapper: the others are
 * compared with it, to see whether one was patched.
 */
#include "hook/cuda/entries.h"

#if defined(__CET__)
#include <cet.h>
#endif

#if defined(__x86_64__)

#define FUNCTION @function
/* The argument behind `count` others. Arguments beyond the sixth are on the caller's stack. */
.macro load_real slot, count
	.if	\count == 0
	movq	\slot(%rip), %rdi
	.elseif	\count == 1
	movq	\slot(%rip), %rsi
	.elseif	\count == 2
	movq	\slot(%rip), %rdx
	.elseif	\count == 3
	movq	\slot(%rip), %rcx
	.elseif	\count == 4
	movq	\slot(%rip), %r8
	.elseif	\count == 5
	movq	\slot(%rip), %r9
	.else
	.error	"too many arguments for an entry"
	.endif
.endm
.macro movable
	movl	$0, %eax
	movl	$0, %eax
	movl	$0, %eax
.endm
.macro go_to body
	jmp	\body
.endm

#elif defined(__aarch64__)

#define FUNCTION %function
.macro load_real slot, count
	adrp	x\count, \slot
	ldr	x\count, [x\count, :lo12:\slot]
.endm
.macro movable
	hint	#34			/* bti c */
	mov	w16, #0
	mov	w16, #0
	mov	w16, #0
.endm
.macro go_to body
	b	\body
.endm

#else
#error "pindown has entries for x86-64 and aarch64 only"
#endif

/* Skip to the place of the next entry. */
.macro place
	.skip	(PDN_ENTRY_SIZE - (. - pdn_entries_begin) % PDN_ENTRY_SIZE) % PDN_ENTRY_SIZE, 0xcc
.endm

.macro entry name, body, table, count, has_room
	place
	.type	\name, FUNCTION
\name:
	movable
	.if	\has_room
	load_real \table+8*row, \count
	.endif
	go_to	\body
	.size	\name, . - \name
	.set	row, row + 1
.endm

/* Where an entry can't add an argument, each of the two entries has a C function of its own. */
#define LINKED_BODY(symbol, args)    \
	PDN_CHOOSE(PDN_FITS_IN_REGISTERS(symbol, args), pdn_caught_##symbol, \
		   pdn_linked_body_##symbol)
#define LOOKED_UP_BODY(symbol, args) \
	PDN_CHOOSE(PDN_FITS_IN_REGISTERS(symbol, args), pdn_caught_##symbol, \
		   pdn_looked_up_body_##symbol)

	.section .text.pdn_entries, "ax", %progbits
	.globl	pdn_entries_begin, pdn_entries_end
	.hidden	pdn_entries_begin, pdn_entries_end

	/* One description of the stack serves all entries: they do not touch it. */
	.p2align 5
pdn_entries_begin:
	.cfi_startproc
	movable
	go_to	pdn_entries_begin

	.set	row, 0
#define X(symbol, base, version, flavour, params, args, ...) \
	.globl symbol; \
	entry symbol, LINKED_BODY(symbol, args), pdn_linked_real, PDN_COUNT args, \
		PDN_FITS_IN_REGISTERS(symbol, args);
#include "hook/cuda/entrypoints.def"
#undef X

	.set	row, 0
#define X(symbol, base, version, flavour, params, args, ...) \
	entry pdn_looked_up_##symbol, LOOKED_UP_BODY(symbol, args), pdn_looked_up_real, \
		PDN_COUNT args, PDN_FITS_IN_REGISTERS(symbol, args);
#include "hook/cuda/entrypoints.def"
#undef X

	place
pdn_entries_end:
	.cfi_endproc

	.section .note.GNU-stack, "", %progbits
