/* SPDX-License-Identifier: MIT */
/*
 * dlsym, dlvsym, dlopen, dlmopen and dlclose, as the program calls them.
 *
 * The real ones ask who called them (RTLD_NEXT, the caller's search path, its namespace) and look
 * at the return address. So they are jumped to, not called, with the program's own return address.
 * Each stub saves its arguments in an array, lets C decide (lookup.c), and takes them back: C may
 * have changed them. C answers with the function to jump to, or with 0, and then the first element
 * of the array is what the program gets. (C calls dlclose() itself: that does not look at its
 * caller.)
 */
#if defined(__CET__)
#include <cet.h>
#endif
#include "hook/loader/marks.h"

#if defined(__x86_64__)

#if !defined(_CET_ENDBR)
#define _CET_ENDBR endbr64
#endif

.macro stub name, decide
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 4
\name:
	.cfi_startproc
	_CET_ENDBR
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	/* Three words and the return address: the stack is aligned for a call. */
	movq	%rsp, %rdi
	movq	24(%rsp), %rsi
	call	\decide
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	testq	%rax, %rax
	jz	1f
	jmp	*%rax
1:	movq	%rdi, %rax
	ret
	.cfi_endproc
	.size	\name, . - \name
.endm

#elif defined(__aarch64__)

.macro stub name, decide
	.globl	\name
	.hidden	\name
	.type	\name, %function
	.p2align 4
\name:
	.cfi_startproc
	landing
	sign_return
	stp	x29, x30, [sp, #-48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x29, -48
	.cfi_offset x30, -40
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	str	x2, [sp, #32]
	strip_return
	add	x0, sp, #16
	mov	x1, x30
	bl	\decide
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldr	x2, [sp, #32]
	ldp	x29, x30, [sp], #48
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	check_return
	cbz	x16, 1f
	br	x16			/* through x16: allowed to land on bti c */
1:	ret
	.cfi_endproc
	.size	\name, . - \name
.endm

#else
#error "pindown has look-up stubs for x86-64 and aarch64 only"
#endif

/* The exported name that programs are bound to; our own code uses pdn_stub_NAME. */
.macro exported name
	.globl	\name
	.set	\name, pdn_stub_\name
	.type	\name, STT_FUNC
.endm

	.text
	stub	pdn_stub_dlsym, pdn_decide_dlsym
	stub	pdn_stub_dlvsym, pdn_decide_dlvsym
	stub	pdn_stub_dlopen, pdn_decide_dlopen
	stub	pdn_stub_dlmopen, pdn_decide_dlmopen
	stub	pdn_stub_dlclose, pdn_decide_dlclose
	exported dlsym
	exported dlvsym
	exported dlopen
	exported dlmopen
	exported dlclose

	/* The same for the C library's own functions, for look-ups that ask for those. */
	stub	pdn_stub_libc_dlsym, pdn_decide_libc_dlsym
	stub	pdn_stub_libc_dlvsym, pdn_decide_libc_dlvsym
	stub	pdn_stub_libc_dlopen, pdn_decide_libc_dlopen
	stub	pdn_stub_libc_dlmopen, pdn_decide_libc_dlmopen

	.section .note.GNU-stack, "", %progbits
