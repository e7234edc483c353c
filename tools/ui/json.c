// SPDX-License-Identifier: MIT
/* Writes one JSON document, with commas and indentation. */
#include "tools/ui/json.h"

#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"

static unsigned depth, members; /* members: written so far in the innermost object or list */
static bool in_row;

static void put(const char *text, size_t length)
{
	char *at = out_reserve();

	memcpy(at, text, length);
	out_commit(at + length);
}

static void new_line(void)
{
	char *at = out_reserve();

	if (in_row)
		return;
	*at++ = '\n';
	out_commit(put_spaces(at, 2 * depth));
}

static char *put_escaped(char *at, uint32_t unit)
{
	at = put_text(at, "\\u");
	for (int shift = 12; shift >= 0; shift -= 4)
		*at++ = "0123456789abcdef"[unit >> shift & 15];
	return at;
}

/* A valid character of 2 to 4 bytes, for where the output shows no UTF-8. */
static char *put_escaped_character(char *at, const unsigned char *text, unsigned length)
{
	uint32_t code = text[0] & (0x7fu >> length);

	for (unsigned i = 1; i < length; i++)
		code = code << 6 | (text[i] & 0x3f);
	if (code < 0x10000)
		return put_escaped(at, code);
	at = put_escaped(at, 0xd800 + ((code - 0x10000) >> 10));
	return put_escaped(at, 0xdc00 + ((code - 0x10000) & 0x3ff));
}

/* The bytes of the valid character at the begin of a text that may end anywhere; or 0. */
static unsigned character_length(const char *text, size_t left)
{
	char part[5] = "";

	memcpy(part, text, left < 4 ? left : 4);
	return text_utf8_length(part);
}

char *json_quoted(char *at, const char *text, size_t length)
{
	*at++ = '"';
	for (size_t i = 0; i < length;) {
		const unsigned char *c = (const unsigned char *)text + i;
		unsigned bytes =
			*c < ' ' || *c == 0x7f ? 0 : character_length(text + i, length - i);

		i += bytes ? bytes : 1;
		/* A control character of two bytes: a terminal would obey it. */
		if (bytes > 1 && (!out.utf8 || (c[0] == 0xc2 && c[1] < 0xa0))) {
			at = put_escaped_character(at, c, bytes);
			continue;
		}
		if (*c == '"' || *c == '\\')
			*at++ = '\\';
		if (!bytes) {
			at = put_escaped(at, *c);
			continue;
		}
		memcpy(at, c, bytes);
		at += bytes;
	}
	*at++ = '"';
	return at;
}

/* In pieces that have room in the output, of whole characters: each may be written by itself. */
static void put_quoted(const char *text)
{
	size_t length = strlen(text);
	char *quoted = allocate(length * 6 + 3), *end = json_quoted(quoted, text, length);

	for (char *at = quoted; at < end;) {
		size_t piece = end - at < OUT_RESERVED ? (size_t)(end - at) : OUT_RESERVED;

		while (at + piece < end && (at[piece] & 0xc0) == 0x80)
			piece--;
		put(at, piece);
		at += piece;
	}
	release(quoted);
}

static void next_member(const char *key)
{
	if (members++)
		put(",", 1);
	if (depth)
		new_line();
	if (key) {
		put_quoted(key);
		put(": ", 2);
	}
}

static void open_nested(const char *key, const char *bracket)
{
	next_member(key);
	put(bracket, 1);
	depth++;
	members = 0;
}

static void close_nested(const char *bracket)
{
	depth--;
	if (members)
		new_line();
	put(bracket, 1);
	members = 1; /* the member just closed */
	if (!depth) {
		put("\n", 1);
		members = 0;
	}
}

void json_begin_object(const char *key)
{
	open_nested(key, "{");
}

void json_end_object(void)
{
	close_nested("}");
}

void json_begin_list(const char *key)
{
	open_nested(key, "[");
}

void json_end_list(void)
{
	close_nested("]");
}

void json_begin_row(const char *key)
{
	open_nested(key, "[");
	in_row = true;
}

void json_end_row(void)
{
	close_nested("]");
	in_row = false;
}

void json_text(const char *key, const char *text)
{
	next_member(key);
	if (text)
		put_quoted(text);
	else
		put("null", 4);
}

void json_number(const char *key, uint64_t value)
{
	next_member(key);
	out_commit(put_decimal(out_reserve(), value));
}

void json_bool(const char *key, bool value)
{
	next_member(key);
	put(value ? "true" : "false", value ? 4 : 5);
}

void json_rank(int64_t rank)
{
	if (rank < 0)
		json_text("rank", NULL);
	else
		json_number("rank", (uint64_t)rank);
}
