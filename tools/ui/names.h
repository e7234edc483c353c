/* SPDX-License-Identifier: MIT */
/* Names for results and reasons. All functions return NULL for a number without a name. */
#ifndef NAMES_H
#define NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* CUresult: CUDA_ERROR_INVALID_VALUE and so on. */
const char *driver_result_name(int64_t result);

/* enum pindown_result: PINDOWN_ERR_HOST and so on. */
const char *pindown_result_name(int64_t result);

/*
 * The name of the result of `call`, which may be NULL; driver calls, verbs and pindown's own calls
 * have different results. The result in a note is the consumer's own number, taken for an errno.
 */
const char *result_name(const char *call, bool is_note, int64_t result);

/* enum pindown_reason: freed, context, evicted, flushed, stale. */
const char *reason_name(unsigned reason);

#endif
