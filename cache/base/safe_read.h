/* SPDX-License-Identifier: MIT */
/*
 * Reading memory that may not be there: without a signal, a lock, or memory of its own. For call
 * stacks. These change errno: their callers keep it.
 */
#ifndef PD_PEEK_H
#define PD_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies `bytes` from there; false when they can't all be read. */
bool pd_peek(void *to, uint64_t from, size_t bytes);

/* Can the page that holds this address be read, at this moment? */
bool pd_is_readable(uint64_t address);

#endif
