/* SPDX-License-Identifier: MIT */
/*
 * The names of the calls that libpindown.so watches, from hook/cuda/entrypoints.def and
 * hook/verbs/verbs.def.
 */
#ifndef WATCHED_H
#define WATCHED_H

#include <stdbool.h>
#include <stddef.h>

/* A verb of libibverbs: ibv_reg_mr or a related one. */
bool watched_verb(const char *name, size_t length);

/* A name that libcuda exports (cuMemAlloc_v2), or that cuGetProcAddress knows (cuMemAlloc). */
bool watched_name(const char *name, size_t length);

#endif
