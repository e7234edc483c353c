/* SPDX-License-Identifier: MIT */
/* Quotes a text for JSON. The result takes up to 6 bytes for each byte of the text, and 2 more. */
#ifndef JSON_TEXT_H
#define JSON_TEXT_H

#include <stddef.h>

/* Writes at `at` and returns the end. */
char *json_quoted(char *at, const char *text, size_t length);

#endif
