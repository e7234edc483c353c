/* SPDX-License-Identifier: MIT */
/*
 * One JSON document on standard output, for the verbs that describe a state. Commas and indentation
 * follow from the calls; a key of NULL is for members of a list.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>

void json_begin_object(const char *key);
void json_end_object(void);
void json_begin_list(const char *key);
void json_end_list(void);

/* A text of NULL is null. What is not ASCII is taken for Latin-1 unless it is good UTF-8. */
void json_text(const char *key, const char *text);
void json_number(const char *key, uint64_t value);
void json_bool(const char *key, bool value);

#endif
