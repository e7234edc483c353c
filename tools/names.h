/* SPDX-License-Identifier: MIT */
/* Numbers as people know them. All return NULL for a number without a name. */
#ifndef NAMES_H
#define NAMES_H

#include <stdint.h>

/* CUresult: CUDA_ERROR_INVALID_VALUE and so on. */
const char *driver_result_name(int64_t result);

/* enum pindown_result: PINDOWN_ERR_HOST and so on. */
const char *pindown_result_name(int64_t result);

/* enum pindown_reason: freed, context, evicted, flushed, stale. */
const char *reason_name(unsigned reason);

#endif
