/* SPDX-License-Identifier: MIT */
/* A middleware library that exports device memory. */
#ifndef MIDDLE_H
#define MIDDLE_H

#include <stddef.h>

#include "hook/cuda/abi.h"

/* As a toolkit's cuda.h has them. */
#define X(symbol, base, version, flavour, params, ...) CUresult symbol params;
#include "hook/cuda/entrypoints.def"
#undef X

/* A descriptor of device memory, or -1. */
__attribute__((visibility("default"))) int middle_export(CUdeviceptr addr, size_t size);

#endif
