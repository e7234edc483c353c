/* SPDX-License-Identifier: MIT */
/*
 * The first instructions of each wrapper: of the one that programs are bound to by the driver's
 * name, and of the one with which look-ups are answered. Both continue in C (wrap.c) as their row's
 * kind demands (entries.h): in a function of the row, with the program's own return address and
 * with the real function behind the program's arguments, or NULL if it is not known yet; in a body
 * of the row's; or in the one function of the calls that are made seldom.
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
#include "hook/loader/marks.h"

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
/* In registers that hold no argument. */
.macro load_row slot
	movq	\slot(%rip), %r11
	movl	$row, %eax
.endm

#elif defined(__aarch64__)

#define FUNCTION %function
.macro load_real slot, count
	adrp	x\count, \slot
	ldr	x\count, [x\count, :lo12:\slot]
.endm
.macro movable
	landing
	mov	w16, #0
	mov	w16, #0
	mov	w16, #0
.endm
.macro go_to body
	b	\body
.endm
.macro load_row slot
	adrp	x16, \slot
	ldr	x16, [x16, :lo12:\slot]
	mov	w17, #row
.endm

#else
#error "pindown has entries for x86-64 and aarch64 only"
#endif

/* Skip to the place of the next entry. */
.macro place
	.skip	(PDN_ENTRY_SIZE - (. - pdn_entries_begin) % PDN_ENTRY_SIZE) % PDN_ENTRY_SIZE, 0xcc
.endm

.macro begin name
	place
	.type	\name, FUNCTION
\name:
	movable
.endm

.macro end name
	.size	\name, . - \name
	.set	row, row + 1
.endm

.macro often name, caught, table, count
	begin	\name
	load_real \table+8*row, \count
	go_to	\caught
	end	\name
.endm

.macro in_memory name, body
	begin	\name
	go_to	\body
	end	\name
.endm

.macro seldom name, table
	begin	\name
	load_row \table+8*row
	go_to	pdn_entry_seldom
	end	\name
.endm

#define OFTEN(road, name, symbol, args) \
	often name, pdn_caught_##symbol, pdn_##road##_real, PDN_COUNT args;
#define IN_MEMORY(road, name, symbol, args) in_memory name, pdn_##road##_body_##symbol;
#define SELDOM(road, name, symbol, args)    seldom name, pdn_##road##_real;
#define ENTRY(road, name, symbol, args) \
	PDN_OF_KIND(symbol, OFTEN, IN_MEMORY, SELDOM)(road, name, symbol, args)

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
	ENTRY(linked, symbol, symbol, args)
#include "hook/cuda/entrypoints.def"
#undef X

	.set	row, 0
#define X(symbol, base, version, flavour, params, args, ...) \
	ENTRY(looked_up, pdn_looked_up_##symbol, symbol, args)
#include "hook/cuda/entrypoints.def"
#undef X

	place
pdn_entries_end:
	.cfi_endproc

/*
 * Hands pdn_seldom() (wrap.c) the row, the real function, the words that hold arguments, and the
 * program's return address. It answers with the function to jump to, with the program's own
 * arguments and return address, or with NULL: then the first of the words is the result.
 */
	.text
	.type	pdn_entry_seldom, FUNCTION
	.p2align 4
#if defined(__x86_64__)
pdn_entry_seldom:
	.cfi_startproc
	pushq	%r9
	.cfi_adjust_cfa_offset 8
	pushq	%r8
	.cfi_adjust_cfa_offset 8
	pushq	%rcx
	.cfi_adjust_cfa_offset 8
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	movl	%eax, %edi
	movq	%r11, %rsi
	movq	%rsp, %rdx
	movq	48(%rsp), %rcx
	/* Six words and the return address: one more aligns the stack for a call. */
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	call	pdn_seldom
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	popq	%rcx
	.cfi_adjust_cfa_offset -8
	popq	%r8
	.cfi_adjust_cfa_offset -8
	popq	%r9
	.cfi_adjust_cfa_offset -8
	testq	%rax, %rax
	jz	1f
	jmp	*%rax
1:	movq	%rdi, %rax
	ret
	.cfi_endproc
#else
/* It also keeps two more arguments, and the address at which a structure is returned. */
pdn_entry_seldom:
	.cfi_startproc
	sign_return
	stp	x29, x30, [sp, #-96]!
	.cfi_def_cfa_offset 96
	.cfi_offset x29, -96
	.cfi_offset x30, -88
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	strip_return
	mov	w0, w17
	mov	x1, x16
	add	x2, sp, #16
	mov	x3, x30
	bl	pdn_seldom
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldr	x8, [sp, #80]
	ldp	x29, x30, [sp], #96
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	check_return
	cbz	x16, 1f
	br	x16			/* through x16: allowed to land on bti c */
1:	ret
	.cfi_endproc
#endif
	.size	pdn_entry_seldom, . - pdn_entry_seldom

	.section .note.GNU-stack, "", %progbits
