/* SPDX-License-Identifier: MIT */
/*
 * Standard output with a buffer of our own and fast formatting of numbers. Whether it is a
 * terminal, takes colour and understands UTF-8 is found out once.
 */
#ifndef OUT_H
#define OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum out_colour { OUT_AUTO, OUT_ALWAYS, OUT_NEVER };

struct out {
	int fd;
	bool colour, utf8;
	unsigned width; /* columns */
	size_t used;
	char buffer[65536];
};
extern struct out out;

enum { OUT_RESERVED = 8192 }; /* the most that may be added after one out_reserve() */

void out_begin(enum out_colour colour, bool ascii);
void out_flush(void);
/* "--colour=WHEN" and the like; false when it is not one of auto, always, never. */
bool out_parse_colour(const char *text, enum out_colour *colour);

static inline char *out_reserve(void)
{
	if (__builtin_expect(out.used + OUT_RESERVED > sizeof(out.buffer), 0))
		out_flush();
	return out.buffer + out.used;
}

static inline void out_commit(const char *end)
{
	out.used = (size_t)(end - out.buffer);
}

/* Each of these writes at `at`, where there must be room, and returns the end. */
static inline char *put_text(char *at, const char *text)
{
	size_t length = strlen(text);

	memcpy(at, text, length);
	return at + length;
}

static inline char *put_spaces(char *at, unsigned count)
{
	memset(at, ' ', count);
	return at + count;
}

char *put_decimal(char *at, uint64_t value);
char *put_signed(char *at, int64_t value);
char *put_hex(char *at, uint64_t value);		       /* with 0x */
char *put_fraction(char *at, uint64_t value, unsigned digits); /* exactly so many digits */

/* Columns: text padded to a width, counting one column for each UTF-8 character. */
char *put_left(char *at, const char *text, unsigned width);
char *put_right(char *at, const char *text, unsigned width);
char *put_decimal_right(char *at, uint64_t value, unsigned width);

/* "1.27 µs", "64 KiB"; the text is NUL-terminated. */
struct out_text {
	char text[32];
};
struct out_text duration_text(uint64_t ns);
struct out_text bytes_text(uint64_t bytes);
struct out_text count_text(uint64_t count); /* 12 345 678 */

void out_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Colours, "" where there is none. */
const char *out_bold(void), *out_red(void), *out_green(void), *out_yellow(void), *out_dim(void),
	*out_plain(void);

/* "pindown: ..." on standard error, after what was printed so far. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
