/* SPDX-License-Identifier: MIT */
/* Names and descriptions of the CUDA errors. */
#ifndef SIM_ERRORS_H
#define SIM_ERRORS_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

/* A result by its name or its number, as text of the given length. */
bool sim_error_by_name(const char *text, size_t length, CUresult *error);

#endif
