/* SPDX-License-Identifier: MIT */
/*
 * Reads /sys, /proc and /dev, or a copy of them below another folder. Paths are given without the
 * leading slash.
 */
#ifndef TREE_H
#define TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/base/texts.h"

/* False, with the reason in errno, when it is no folder. */
bool tree_set_root(const char *folder);
/* Whether the tree is that of this machine. */
bool tree_is_live(void);

/* A file's text without its last newline, which the caller frees; NULL when it can't be read. */
char *tree_read(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The number that a file holds (0x for hexadecimal); false when it holds none. */
bool tree_number(int64_t *value, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Up to `capacity` bytes of a file; returns how many. */
size_t tree_bytes(void *bytes, size_t capacity, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool tree_has(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The names in a folder, sorted; none when it is not there. */
struct texts tree_list(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The path with all links resolved, below the root; the caller frees it. NULL: no such file. */
char *tree_resolve(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The last part of where a link leads, whether that is there or not; NULL: it is no link. */
char *tree_link(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
