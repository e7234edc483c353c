/* SPDX-License-Identifier: MIT */
/* Growing lists of texts, and texts built by printf formats. All memory is from memory.h. */
#ifndef TEXTS_H
#define TEXTS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct texts {
	char **list;
	unsigned count, capacity;
};

/* Adds a copy. */
void texts_add(struct texts *texts, const char *text, size_t length);
bool texts_have(const struct texts *texts, const char *text);
void texts_add_once(struct texts *texts, const char *text);
/* Sorts the list and removes duplicates. */
void texts_sort(struct texts *texts);
void texts_free(struct texts *texts);

/* The caller frees the text with release(). */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_of_list(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
/*
 * Replaces control characters by question marks: a terminal would obey them. Also those of UTF-8
 * that have two bytes (U+0080 to U+009F), end lines, or turn the direction of text. NULs stay.
 */
void text_make_printable(char *text, size_t length);
/*
 * Replaces each byte that belongs to no valid character of UTF-8, and the characters that
 * text_make_printable() replaces. Without `utf8`, each character beyond ASCII becomes one question
 * mark. Returns the new length; the text needs no NUL.
 */
size_t text_make_valid(char *text, size_t length, bool utf8);
/* A copy made printable; the caller frees it with release(). */
char *text_printable(const char *text, size_t length);
/* The bytes of the UTF-8 character at `text`, 1 to 4; 0: they are no valid character. */
unsigned text_utf8_length(const char *text);
/* Appends `more` to `list` (NULL: empty) behind a comma; `list` is released. */
char *text_listed(char *list, const char *more);

#endif
