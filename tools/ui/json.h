/* SPDX-License-Identifier: MIT */
/*
 * One JSON document on standard output, for the commands that describe a state. Commas and
 * indentation follow from the calls. Members of a list have NULL as their key.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void json_begin_object(const char *key);
void json_end_object(void);
void json_begin_list(const char *key);
void json_end_list(void);
/* A list on one line. It has no objects and no other lists. */
void json_begin_row(const char *key);
void json_end_row(void);

/* A text of NULL becomes null. Bytes that are not valid UTF-8 are taken for Latin-1. */
void json_text(const char *key, const char *text);
void json_number(const char *key, uint64_t value);
void json_bool(const char *key, bool value);
/* "rank", of a process in its job; a negative one, which is unknown, becomes null. */
void json_rank(int64_t rank);

/*
 * For other documents: writes a quoted text at `at`, as json_text() does, and returns the end. It
 * takes up to 6 bytes for each byte of the text, and 2 more.
 */
char *json_quoted(char *at, const char *text, size_t length);

#endif
