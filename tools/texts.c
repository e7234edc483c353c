// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "texts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

void texts_add(struct texts *texts, const char *text, size_t length)
{
	char *copy = allocate(length + 1);

	memcpy(copy, text, length);
	texts->list = grow(texts->list, &texts->room, texts->count, sizeof(*texts->list));
	texts->list[texts->count++] = copy;
}

bool texts_have(const struct texts *texts, const char *text)
{
	for (unsigned i = 0; i < texts->count; i++)
		if (strcmp(texts->list[i], text) == 0)
			return true;
	return false;
}

void texts_add_once(struct texts *texts, const char *text)
{
	if (!texts_have(texts, text))
		texts_add(texts, text, strlen(text));
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void texts_sort(struct texts *texts)
{
	unsigned kept = 0;

	if (!texts->count)
		return;
	qsort(texts->list, texts->count, sizeof(*texts->list), compare);
	for (unsigned i = 1; i < texts->count; i++) {
		if (strcmp(texts->list[i], texts->list[kept]) == 0)
			free(texts->list[i]);
		else
			texts->list[++kept] = texts->list[i];
	}
	texts->count = kept + 1;
}

void texts_free(struct texts *texts)
{
	for (unsigned i = 0; i < texts->count; i++)
		free(texts->list[i]);
	free(texts->list);
	*texts = (struct texts){0};
}

char *text_of(const char *format, ...)
{
	va_list arguments;
	char *text;
	int length;

	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (length < 0)
		text = allocate(1);
	return text;
}
