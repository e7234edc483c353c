/* SPDX-License-Identifier: MIT */
/* The state words, until the kernel shares its own. */
#define _GNU_SOURCE
#include "cache/backend/revocation.h"

const uint32_t pd_own_word = 1;
const uint32_t *pd_words = &pd_own_word;
