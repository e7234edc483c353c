/* SPDX-License-Identifier: MIT */
/* Libraries in /etc/ld.so.cache. */
#ifndef LIBRARY_CACHE_H
#define LIBRARY_CACHE_H

#include "tools/check/elf_file.h"

/*
 * The path of the library that /etc/ld.so.cache has for this name and for the file's machine; the
 * caller frees it. NULL when there is none, or no cache in a known format.
 */
char *library_cache_find(const struct elf_file *file, const char *name);

#endif
