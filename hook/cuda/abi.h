/* SPDX-License-Identifier: MIT */
/*
 * The CUDA driver's binary interface, with the watched calls: cache/driver/cuda_abi.h, and a
 * declaration of each function in the table.
 */
#ifndef HOOK_CUDA_ABI_H
#define HOOK_CUDA_ABI_H

#include "cache/driver/cuda_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define X(symbol, base, version, stream, params, args, ...) CUresult symbol params;
#include "hook/cuda/entrypoints.def"
#undef X

#ifdef __cplusplus
}
#endif
#endif
