/* SPDX-License-Identifier: MIT */
/*
 * What the loader calls for the definition of an indirect function: it passes nothing that says
 * which one, so each symbol that we define has its own code, in the order of the table.
 */
#include "hook/loader/yield.h"

#if defined(__CET__)
#include <cet.h>
#endif
#include "hook/loader/marks.h"

#if defined(__x86_64__)

#if !defined(_CET_ENDBR)
#define _CET_ENDBR endbr64
#endif
.macro ask_for_number
	_CET_ENDBR
	movl	$number, %edi
	jmp	pdn_yield_definition
.endm

#elif defined(__aarch64__)

.macro ask_for_number
	landing
	mov	w0, #number
	b	pdn_yield_definition
.endm

#endif

	.text
	.globl	pdn_yield_code
	.hidden	pdn_yield_code
	.p2align 4
pdn_yield_code:
	.set	number, 0
	.rept	PDN_YIELD_MOST
	ask_for_number
	.set	number, number + 1
	.org	pdn_yield_code + number * PDN_YIELD_SIZE
	.endr

	.section .note.GNU-stack, "", %progbits
