/* SPDX-License-Identifier: MIT */
/* A middleware library that exports device memory. */
#ifndef MIDDLE_H
#define MIDDLE_H

#include <stddef.h>

#include "hook/cuda/abi.h"

/* The declarations of a toolkit's cuda.h. */
#define X(symbol, base, version, flavour, params, ...) CUresult symbol params;
#include "hook/cuda/entrypoints.def"
#undef X

/* Returns a descriptor of device memory, or -1. */
__attribute__((visibility("default"))) int middle_export(CUdeviceptr addr, size_t size);

#endif
