/* SPDX-License-Identifier: MIT */
/* Numbers as people know them. All return NULL for a number without a name. */
#ifndef NAMES_H
#define NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* CUresult: CUDA_ERROR_INVALID_VALUE and so on. */
const char *driver_result_name(int64_t result);

/* enum pindown_result: PINDOWN_ERR_HOST and so on. */
const char *pindown_result_name(int64_t result);

/*
 * The result of a call, named as that kind of call has it; `call` may be NULL. A note's is its consumer's
 * own number, which is taken for an errno.
 */
const char *result_name(const char *call, bool is_note, int64_t result);

/* enum pindown_reason: freed, context, evicted, flushed, stale. */
const char *reason_name(unsigned reason);

#endif
