/* SPDX-License-Identifier: MIT */
/* A text for JSON where there is room for it: up to 6 bytes for each of its own, and 2. */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <stddef.h>

/* Writes at `at` and returns the end. */
char *json_quoted(char *at, const char *text, size_t length);

#endif
