/* SPDX-License-Identifier: MIT */
/*
 * What the assembler files of hook/ say on arm64 about branch targets (BTI) and signed return
 * addresses (PAC), if the compiler's options ask for them, as those of distributions do
 * (-mbranch-protection=standard). An object without the note would take the mark from the whole
 * library. All instructions are hints, which older processors ignore.
 */
#ifndef PDN_MARKS_H
#define PDN_MARKS_H

/* This is no C. */
/* clang-format off */
#if defined(__aarch64__)

/* An indirect call may land here. */
.macro landing
	hint	#34			/* bti c */
.endm

#if defined(__ARM_FEATURE_PAC_DEFAULT) && __ARM_FEATURE_PAC_DEFAULT & 2
#define PDN_SIGN  27 /* pacibsp */
#define PDN_CHECK 31 /* autibsp */
#elif defined(__ARM_FEATURE_PAC_DEFAULT)
#define PDN_SIGN  25 /* paciasp */
#define PDN_CHECK 29 /* autiasp */
#endif

/* Before the return address (x30) goes to the stack, and when it is back. */
.macro sign_return
#if defined(PDN_SIGN)
#if PDN_SIGN == 27
	.cfi_b_key_frame
#endif
	hint	#PDN_SIGN
	.cfi_negate_ra_state
#endif
.endm
.macro check_return
#if defined(PDN_SIGN)
	hint	#PDN_CHECK
	.cfi_negate_ra_state
#endif
.endm
/* x30 without its signature. */
.macro strip_return
#if defined(PDN_SIGN)
	hint	#7			/* xpaclri */
#endif
.endm

#if defined(__ARM_FEATURE_BTI_DEFAULT)
#define PDN_HAS_BTI 1
#else
#define PDN_HAS_BTI 0
#endif
#if defined(PDN_SIGN)
#define PDN_HAS_PAC 2
#else
#define PDN_HAS_PAC 0
#endif

#if PDN_HAS_BTI | PDN_HAS_PAC
	.pushsection .note.gnu.property, "a", %note
	.p2align 3
	.word	4, 16, 5		/* lengths of the name and of the content; properties */
	.asciz	"GNU"
	.word	0xc0000000, 4, PDN_HAS_BTI | PDN_HAS_PAC, 0
	.popsection
#endif

#endif

#endif
