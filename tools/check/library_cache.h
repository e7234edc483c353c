/* SPDX-License-Identifier: MIT */
#ifndef LIBRARY_CACHE_H
#define LIBRARY_CACHE_H

#include "tools/check/elf_file.h"

/*
 * The library of that name that fits the object, by /etc/ld.so.cache; the caller frees its path.
 * NULL when there is none, or no cache, or one that is not understood.
 */
char *library_cache_find(const struct object *object, const char *name);

#endif
