/* SPDX-License-Identifier: MIT */
/* The names of the driver's calls that the preload watches, from hook/entrypoints.def. */
#ifndef WATCHED_H
#define WATCHED_H

#include <stdbool.h>
#include <stddef.h>

/* A name that libcuda exports (cuMemAlloc_v2) or that cuGetProcAddress is asked for (cuMemAlloc). */
bool watched_name(const char *name, size_t length);

#endif
