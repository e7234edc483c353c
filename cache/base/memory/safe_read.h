/* SPDX-License-Identifier: MIT */
/*
 * Reading memory that may not be there: without a signal, a lock, or memory of its own. For call
 * stacks.
 */
#ifndef PDN_SAFE_READ_H
#define PDN_SAFE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies `bytes` from there; false when they can't all be read. */
bool pdn_safe_read(void *to, uint64_t from, size_t bytes);

/* Can the page that holds this address be read, at this moment? */
bool pdn_is_readable(uint64_t address);

#endif
