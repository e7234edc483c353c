/* SPDX-License-Identifier: MIT */
/* The state words, until the kernel shares its own. */
#define _GNU_SOURCE
#include "cache/backend/revocation.h"

const uint32_t pdn_no_revocation_word = 1;
const uint32_t *pdn_revocation_words = &pdn_no_revocation_word;
