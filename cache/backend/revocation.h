/* SPDX-License-Identifier: MIT */
/*
 * State words. Where the kernel can revoke a pin, it has a word in a page that it shares with this
 * process, and changes it before the driver's free goes on: so a hit is validated with one load. A pin
 * that nobody revokes has word 0, which never changes.
 */
#ifndef PD_WORDS_H
#define PD_WORDS_H

#include <stdint.h>

/* The area, as 32-bit words. Before there is one, and in a forked child, a word of our own. */
extern __attribute__((visibility("hidden"))) const uint32_t *pd_words;
extern const uint32_t pd_own_word;

/*
 * The pointer needs no order: the word's address depends on it, and it was stored before the first region with
 * such a word. Acquire: pairs with the kernel's store; who sees a pin stand does not use what
 * it has read before.
 */
static inline uint32_t pd_word(uint32_t number)
{
	const uint32_t *words = __atomic_load_n(&pd_words, __ATOMIC_RELAXED);

	return __atomic_load_n(&words[number], __ATOMIC_ACQUIRE);
}

#endif
