/* SPDX-License-Identifier: MIT */
/* Growing lists of texts, and texts by a format. All memory is from memory.h. */
#ifndef TEXTS_H
#define TEXTS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct texts {
	char **list;
	unsigned count, capacity;
};

/* A copy is kept. */
void texts_add(struct texts *texts, const char *text, size_t length);
bool texts_have(const struct texts *texts, const char *text);
void texts_add_once(struct texts *texts, const char *text);
/* Sorted, each once. */
void texts_sort(struct texts *texts);
void texts_free(struct texts *texts);

/* For release(). */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_of_list(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));
/* One more behind the others (NULL: there are none yet), with a comma between; `list` is released. */
char *text_listed(char *list, const char *more);

#endif
