/* SPDX-License-Identifier: MIT */
/*
 * State words, which say whether a pin still stands. Each pin that the kernel can revoke has a word
 * in an area that the kernel shares with this process. The kernel changes it before the driver's
 * free continues, so that one load validates a hit. A pin that can't be revoked has word 0, which
 * never changes.
 */
#ifndef PDN_REVOCATION_H
#define PDN_REVOCATION_H

#include <stdint.h>

/* The area, as 32-bit words. Before it is mapped, and in a forked child: pdn_no_revocation_word. */
extern __attribute__((visibility("hidden"))) const uint32_t *pdn_revocation_words;
extern const uint32_t pdn_no_revocation_word;

/*
 * Loading the pointer needs no order: the word's address depends on it, and it was stored before
 * the first region with such a word. Acquire: pairs with the kernel's store; a thread that sees the
 * pin stand reads all else after that.
 */
static inline uint32_t pdn_revocation_word(uint32_t number)
{
	const uint32_t *words = __atomic_load_n(&pdn_revocation_words, __ATOMIC_RELAXED);

	return __atomic_load_n(&words[number], __ATOMIC_ACQUIRE);
}

#endif
