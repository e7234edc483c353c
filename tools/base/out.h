/* SPDX-License-Identifier: MIT */
/*
 * Standard output with a buffer of its own and fast formatting of numbers. Its width, and whether
 * it shows colours and UTF-8, are found out once, by out_begin(). What is no valid UTF-8 becomes
 * question marks, and what is beyond ASCII, too, where it does not show UTF-8.
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
	void (*sink)(const char *text, size_t length); /* gets the output instead of fd; or NULL */
	bool colour, utf8;
	unsigned width; /* columns; a narrower terminal counts as OUT_NARROWEST */
	size_t used;
	char buffer[65536];
};
extern struct out out;

enum { OUT_NARROWEST = 40 };
enum { OUT_RESERVED = 8192 }; /* bytes that one out_reserve() makes free */

void out_begin(enum out_colour colour, bool ascii);
void out_flush(void);
/* Parses the value of --color; false when it is not auto, always or never. */
bool out_parse_colour(const char *text, enum out_colour *colour);

/* Where up to OUT_RESERVED bytes can be written; out_commit() then adds them to the output. */
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

/* Each of these writes at `at`, which must have enough space, and returns the end. */
static inline char *put_text(char *at, const char *text)
{
	return (char *)__builtin_mempcpy(at, text, strlen(text));
}

static inline char *put_spaces(char *at, unsigned count)
{
	memset(at, ' ', count);
	return at + count;
}

char *put_decimal(char *at, uint64_t value);
char *put_signed(char *at, int64_t value);
char *put_hex(char *at, uint64_t value);		       /* with 0x */
char *put_fraction(char *at, uint64_t value, unsigned digits); /* exactly `digits` */

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

/*
 * Control characters in the arguments become question marks, as names may come from anybody: ends
 * of lines and tabs, too. Only the colours below stay.
 */
void out_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Cuts a line to so many columns, in place; colours take none, and stay. */
void out_cut(char *line, unsigned width);

/* Writes an escape sequence for the terminal. */
void out_control(const char *sequence);

/*
 * Prints words from the current column on, and ends the line. Lines after the first begin at
 * `margin`; none is wider than the output, unless a single word is.
 */
void out_wrapped(unsigned column, unsigned margin, const char *words);

/* Escape sequences; "" when the output has no colours. */
const char *out_bold(void), *out_red(void), *out_green(void), *out_yellow(void), *out_dim(void),
	*out_plain(void);

/*
 * Prints "pindown: ..." on standard error, after all output so far: one line, which is broken
 * between words only on a terminal. Control characters become question marks.
 */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
