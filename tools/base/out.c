// SPDX-License-Identifier: MIT
/* Formats numbers and texts, and writes them to standard output through a buffer. */
#define _GNU_SOURCE
#include "tools/base/out.h"

#include <errno.h>
#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/base/texts.h"

struct out out = {.fd = STDOUT_FILENO, .width = 80};

static unsigned terminal_width(int fd)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;
	int width = 0;

	if (columns)
		width = atoi(columns);
	else if (ioctl(fd, TIOCGWINSZ, &size) == 0)
		width = size.ws_col;
	if (width < 1 || width > 1000)
		return 80;
	return width < OUT_NARROWEST ? OUT_NARROWEST : (unsigned)width;
}

static bool wants_colour(void)
{
	const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

	return isatty(out.fd) && !(no && *no) && terminal && strcmp(terminal, "dumb") != 0;
}

static bool is_utf8(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

void out_begin(enum out_colour colour, bool ascii)
{
	out.colour = colour == OUT_AUTO ? wants_colour() : colour == OUT_ALWAYS;
	out.utf8 = !ascii && is_utf8();
	out.width = terminal_width(out.fd);
}

bool out_parse_colour(const char *text, enum out_colour *colour)
{
	static const char *const names[] = {"auto", "always", "never"};

	for (unsigned i = 0; i < 3; i++) {
		if (strcmp(text, names[i]) == 0) {
			*colour = (enum out_colour)i;
			return true;
		}
	}
	return false;
}

/*
 * Here all output passes. A terminal obeys single bytes from 0x80 to 0x9f, if it does not take its
 * input for UTF-8; and some do that take it for such, but meet bytes that are none.
 */
void out_flush(void)
{
	size_t done = 0, total = text_make_valid(out.buffer, out.used, out.utf8);

	out.used = 0;
	if (out.sink) {
		out.sink(out.buffer, total);
		return;
	}
	while (done < total) {
		ssize_t n = write(out.fd, out.buffer + done, total - done);

		if (n >= 0) {
			done += (size_t)n;
		} else if (errno != EINTR) {
			/* EPIPE: the reader has closed the pipe, which is no error. */
			if (errno != EPIPE)
				fprintf(stderr, "pindown: standard output: %s\n", strerror(errno));
			_exit(1);
		}
	}
}

char *put_decimal(char *at, uint64_t value)
{
	char digits[20];
	unsigned n = sizeof(digits);

	do
		digits[--n] = (char)('0' + value % 10);
	while (value /= 10);
	memcpy(at, digits + n, sizeof(digits) - n);
	return at + sizeof(digits) - n;
}

char *put_signed(char *at, int64_t value)
{
	if (value < 0)
		*at++ = '-';
	return put_decimal(at, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

char *put_hex(char *at, uint64_t value)
{
	unsigned digits = value ? (67u - (unsigned)__builtin_clzll(value)) / 4 : 1;

	*at++ = '0';
	*at++ = 'x';
	for (unsigned i = digits; i-- > 0; value >>= 4)
		at[i] = "0123456789abcdef"[value & 15];
	return at + digits;
}

char *put_fraction(char *at, uint64_t value, unsigned digits)
{
	for (unsigned i = digits; i-- > 0; value /= 10)
		at[i] = (char)('0' + value % 10);
	return at + digits;
}

static unsigned columns(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

char *put_left(char *at, const char *text, unsigned width)
{
	unsigned n = columns(text);

	at = put_text(at, text);
	return n < width ? put_spaces(at, width - n) : at;
}

char *put_right(char *at, const char *text, unsigned width)
{
	unsigned n = columns(text);

	if (n < width)
		at = put_spaces(at, width - n);
	return put_text(at, text);
}

char *put_decimal_right(char *at, uint64_t value, unsigned width)
{
	char digits[24];
	char *end = put_decimal(digits, value);

	if ((size_t)(end - digits) < width)
		at = put_spaces(at, width - (unsigned)(end - digits));
	memcpy(at, digits, (size_t)(end - digits));
	return at + (end - digits);
}

/* Three significant digits of value/unit. */
static char *put_scaled(char *at, uint64_t value, uint64_t unit)
{
	uint64_t whole = value / unit, rest = value % unit;
	unsigned digits = whole < 10 ? 2 : whole < 100 ? 1 : 0;

	at = put_decimal(at, whole);
	if (digits) {
		*at++ = '.';
		at = put_fraction(at,
				  (uint64_t)((__uint128_t)rest * (digits == 2 ? 100 : 10) / unit),
				  digits);
	}
	return at;
}

struct out_text duration_text(uint64_t ns)
{
	struct out_text result;
	char *at = result.text;

	if (ns < 10000)
		at = put_text(put_decimal(at, ns), " ns");
	else if (ns < 1000000)
		at = put_text(put_scaled(at, ns, 1000), out.utf8 ? " µs" : " us");
	else if (ns < 1000000000)
		at = put_text(put_scaled(at, ns, 1000000), " ms");
	else
		at = put_text(put_scaled(at, ns, 1000000000), " s");
	*at = '\0';
	return result;
}

struct out_text bytes_text(uint64_t bytes)
{
	static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
	struct out_text result;
	unsigned i = 0;
	char *at;

	while (i < 6 && bytes >> (10 * (i + 1)))
		i++;
	if (!(bytes & ((1ull << (10 * i)) - 1)))
		at = put_decimal(result.text, bytes >> (10 * i));
	else
		at = put_scaled(result.text, bytes, 1ull << (10 * i));
	*put_text(at, units[i]) = '\0';
	return result;
}

struct out_text count_text(uint64_t count)
{
	struct out_text result;
	char digits[24], *at = result.text;
	unsigned n = (unsigned)(put_decimal(digits, count) - digits);

	for (unsigned i = 0; i < n; i++) {
		if (i && (n - i) % 3 == 0)
			*at++ = ' ';
		*at++ = digits[i];
	}
	*at = '\0';
	return result;
}

enum colour { BOLD, RED, GREEN, YELLOW, DIM, PLAIN, COLOURS };

static const char *const colours[COLOURS] = {"\033[1m",	 "\033[31m", "\033[32m",
					     "\033[33m", "\033[2m",  "\033[0m"};

static const char *colour(enum colour which)
{
	return out.colour ? colours[which] : "";
}

const char *out_bold(void)
{
	return colour(BOLD);
}

const char *out_red(void)
{
	return colour(RED);
}

const char *out_green(void)
{
	return colour(GREEN);
}

const char *out_yellow(void)
{
	return colour(YELLOW);
}

const char *out_dim(void)
{
	return colour(DIM);
}

const char *out_plain(void)
{
	return colour(PLAIN);
}

/* The length of the colour that begins here; 0: none, or there are no colours. */
static size_t colour_at(const char *text)
{
	for (unsigned i = 0; out.colour && i < COLOURS; i++)
		if (strncmp(text, colours[i], strlen(colours[i])) == 0)
			return strlen(colours[i]);
	return 0;
}

void out_cut(char *line, unsigned width)
{
	char *end = line, *from = line;
	unsigned used = 0;

	while (*from) {
		size_t length = colour_at(from);
		bool is_colour = length;

		if (!length)
			length = text_utf8_length(from) ? text_utf8_length(from) : 1;
		used += !is_colour;
		if (is_colour || used <= width) {
			memmove(end, from, length);
			end += length;
		}
		from += length;
	}
	*end = '\0';
}

/*
 * Ends of lines and tabs are the format's: in the arguments, which may come from anybody, they are
 * control characters as all others. These two stand for the format's meanwhile.
 */
#define LINE_END '\1'
#define TAB	 '\2'

static unsigned count_of(char c, const char *text)
{
	unsigned count = 0;

	for (; *text; text++)
		count += *text == c;
	return count;
}

/* Replaces one character by another; returns how often. */
static unsigned exchange(char *text, char from, char to)
{
	unsigned count = 0;

	for (; (text = strchr(text, from)); count++)
		*text++ = to;
	return count;
}

/* The text ends with a NUL; colours stay. */
static void make_printable(char *text, unsigned line_ends, unsigned tabs)
{
	/* Where the arguments have these, too, the format's are not told apart from them. */
	bool lines_are_ours = count_of(LINE_END, text) == line_ends,
	     tabs_are_ours = count_of(TAB, text) == tabs;

	for (char *at = text; *at;) {
		size_t length = strcspn(at, "\033\1\2");

		text_make_printable(at, length);
		at += length;
		if (*at == '\033' && colour_at(at))
			at += colour_at(at);
		else if (*at == LINE_END)
			*at++ = lines_are_ours ? '\n' : '?';
		else if (*at == TAB)
			*at++ = tabs_are_ours ? '\t' : '?';
		else if (*at)
			*at++ = '?';
	}
}

void out_print(const char *format, ...)
{
	char marked[OUT_RESERVED], *at = out_reserve();
	unsigned line_ends, tabs;
	va_list arguments;
	int length;

	snprintf(marked, sizeof(marked), "%s", format);
	line_ends = exchange(marked, '\n', LINE_END);
	tabs = exchange(marked, '\t', TAB);
	va_start(arguments, format);
	length = vsnprintf(at, OUT_RESERVED, marked, arguments);
	va_end(arguments);
	if (length <= 0)
		return;
	make_printable(at, line_ends, tabs);
	out_commit(at + (length < OUT_RESERVED ? length : OUT_RESERVED - 1));
}

void out_control(const char *sequence)
{
	out_commit(put_text(out_reserve(), sequence));
}

void out_wrapped(unsigned column, unsigned margin, const char *words)
{
	bool first = true;

	for (words += strspn(words, " "); *words; words += strspn(words, " ")) {
		size_t length = strcspn(words, " ");
		unsigned wide = 0;

		for (size_t i = 0; i < length; i++)
			wide += (words[i] & 0xc0) != 0x80;
		if (!first && column + 1 + wide > out.width) {
			out_print("\n%*s", (int)margin, "");
			column = margin;
			first = true;
		}
		out_print("%s%.*s", first ? "" : " ", (int)length, words);
		column += wide + !first;
		first = false;
		words += length;
	}
	out_print("\n");
}

/* For a terminal: ends lines between words, in place; the first begins at a column. */
static void break_lines(char *text, size_t column, unsigned width)
{
	char *blank = NULL;

	for (char *at = text; *at; at++) {
		column += (*at & 0xc0) != 0x80;
		if (column > width && blank) {
			*blank = '\n';
			column = (size_t)(at - blank);
			blank = NULL;
		}
		if (*at == ' ')
			blank = at;
	}
}

/* Not by allocate(), which complains when memory is short. */
void complain(const char *format, ...)
{
	va_list arguments;
	char text[OUT_RESERVED];

	out_flush();
	fflush(stdout);
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	text_make_printable(text, strlen(text));
	text[text_make_valid(text, strlen(text), is_utf8())] = '\0';
	if (isatty(STDERR_FILENO))
		break_lines(text, strlen("pindown: "), terminal_width(STDERR_FILENO));
	fprintf(stderr, "pindown: %s\n", text);
}
