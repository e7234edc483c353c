// SPDX-License-Identifier: MIT
/* Writes one JSON document, with commas and indentation. */
#include "tools/ui/json.h"

#include <stdio.h>

#include "tools/base/out.h"
#include "tools/base/texts.h"

static unsigned depth, members; /* members: written so far in the innermost object or list */

static void put(const char *text, size_t length)
{
	char *at = out_reserve();

	memcpy(at, text, length);
	out_commit(at + length);
}

static void new_line(void)
{
	char *at = out_reserve();

	*at++ = '\n';
	out_commit(put_spaces(at, 2 * depth));
}

static void put_escaped(uint32_t unit)
{
	char escape[8];

	snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)(unit & 0xffff));
	put(escape, 6);
}

/* A valid character of 2 to 4 bytes, for where the output shows no UTF-8. */
static void put_escaped_character(const unsigned char *at, unsigned length)
{
	uint32_t code = at[0] & (0x7fu >> length);

	for (unsigned i = 1; i < length; i++)
		code = code << 6 | (at[i] & 0x3f);
	if (code < 0x10000) {
		put_escaped(code);
		return;
	}
	put_escaped(0xd800 + ((code - 0x10000) >> 10));
	put_escaped(0xdc00 + ((code - 0x10000) & 0x3ff));
}

static void put_quoted(const char *text)
{
	put("\"", 1);
	while (*text) {
		const unsigned char *c = (const unsigned char *)text;
		unsigned length = *c < ' ' || *c == 0x7f ? 0 : text_utf8_length(text);

		/* A control character of two bytes: a terminal would obey it. */
		if (length > 1 && (!out.utf8 || (c[0] == 0xc2 && c[1] < 0xa0))) {
			put_escaped_character(c, length);
			text += length;
			continue;
		}
		if (*c == '"' || *c == '\\')
			put("\\", 1);
		if (length)
			put(text, length);
		else
			put_escaped(*c);
		text += length ? length : 1;
	}
	put("\"", 1);
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
