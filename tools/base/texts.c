// SPDX-License-Identifier: MIT
/* Growing lists of texts, and texts built by printf formats. */
#define _GNU_SOURCE
#include "tools/base/texts.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"

void texts_add(struct texts *texts, const char *text, size_t length)
{
	char *copy = allocate(length + 1);

	memcpy(copy, text, length);
	texts->list = grow(texts->list, &texts->capacity, texts->count, sizeof(*texts->list));
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
	sort(texts->list, texts->count, sizeof(*texts->list), compare);
	for (unsigned i = 1; i < texts->count; i++) {
		if (strcmp(texts->list[i], texts->list[kept]) == 0)
			release(texts->list[i]);
		else
			texts->list[++kept] = texts->list[i];
	}
	texts->count = kept + 1;
}

void texts_free(struct texts *texts)
{
	for (unsigned i = 0; i < texts->count; i++)
		release(texts->list[i]);
	release(texts->list);
	*texts = (struct texts){0};
}

char *text_of_list(const char *format, va_list arguments)
{
	va_list again;
	char *text;
	int length;

	va_copy(again, arguments);
	length = vsnprintf(NULL, 0, format, again);
	va_end(again);
	text = allocate(length > 0 ? (size_t)length + 1 : 1);
	if (length > 0)
		vsnprintf(text, (size_t)length + 1, format, arguments);
	return text;
}

char *text_of(const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	text = text_of_list(format, arguments);
	va_end(arguments);
	return text;
}

/*
 * The bytes of a character that ends lines or turns the direction of text: U+0080 to U+009F,
 * U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. 0: it is none.
 */
static unsigned control_length(const char *text, size_t left)
{
	const unsigned char *at = (const unsigned char *)text;

	if (left >= 2 &&
	    ((at[0] == 0xc2 && (at[1] & 0xe0) == 0x80) || (at[0] == 0xd8 && at[1] == 0x9c)))
		return 2;
	if (left < 3 || at[0] != 0xe2)
		return 0;
	if (at[1] == 0x80)
		return at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae) ? 3 : 0;
	return at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9 ? 3 : 0;
}

void text_make_printable(char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)text[i];

		if ((c && c < ' ') || c == 0x7f)
			text[i] = '?';
		else if (c & 0x80)
			memset(text + i, '?', control_length(text + i, length - i));
	}
}

/* As text_utf8_length(), of a text that ends anywhere; 0 for U+0080 to U+009F, too. */
static unsigned valid_length(const char *text, size_t left)
{
	char at[5] = "";
	unsigned length;

	memcpy(at, text, left < 4 ? left : 4);
	length = text_utf8_length(at);
	return length == 2 && (unsigned char)at[0] == 0xc2 && (unsigned char)at[1] < 0xa0 ? 0
											  : length;
}

/* The number of ASCII characters at the begin. By words: all output is looked through. */
static size_t ascii_length(const char *text, size_t length)
{
	size_t at = 0;
	uint64_t word;

	for (; at + sizeof(word) <= length; at += sizeof(word)) {
		memcpy(&word, text + at, sizeof(word));
		if (word & 0x8080808080808080u)
			break;
	}
	while (at < length && !(text[at] & 0x80))
		at++;
	return at;
}

size_t text_make_valid(char *text, size_t length, bool utf8)
{
	size_t used = ascii_length(text, length), at = used;

	while (at < length) {
		unsigned valid = valid_length(text + at, length - at);
		size_t ascii;

		if (valid && utf8) {
			memmove(text + used, text + at, valid);
			used += valid;
		} else {
			text[used++] = '?';
		}
		at += valid ? valid : 1;
		ascii = ascii_length(text + at, length - at);
		memmove(text + used, text + at, ascii);
		used += ascii;
		at += ascii;
	}
	return used;
}

char *text_printable(const char *text, size_t length)
{
	char *copy = allocate(length + 1);

	memcpy(copy, text, length);
	text_make_printable(copy, length);
	return copy;
}

/* Not valid are also characters in more bytes than they need, surrogates, and those of no plane. */
unsigned text_utf8_length(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	unsigned length = at[0] < 0x80			  ? 1
			  : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
			  : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
			  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
							  : 0;

	if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
	    (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))
		return 0;
	for (unsigned i = 1; i < length; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

char *text_listed(char *list, const char *more)
{
	char *longer = text_of("%s%s%s", list ? list : "", list ? ", " : "", more);

	release(list);
	return longer;
}
