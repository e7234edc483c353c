// SPDX-License-Identifier: MIT
/* Draws a bar chart with characters. */
#include "tools/ui/plot.h"

#include "tools/base/out.h"

/* Eighths of a row, from none to all. */
static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[] = {" ", ".", ".", ".", ":", ":", ":", "#", "#"};

static uint64_t highest(const uint64_t *values, unsigned count)
{
	uint64_t max = 0;

	for (unsigned i = 0; i < count; i++)
		if (values[i] > max)
			max = values[i];
	return max;
}

/* How many eighths of this row (0 is the lowest) a bar fills. A value above 0 gets at least one. */
static unsigned eighths(uint64_t value, uint64_t max, unsigned rows, unsigned row)
{
	uint64_t filled = (uint64_t)((__uint128_t)value * rows * 8 / max);
	const uint64_t below = row * (uint64_t)8;

	if (value && !filled)
		filled = 1;
	return filled <= below ? 0 : filled - below >= 8 ? 8 : (unsigned)(filled - below);
}

static char *put_scale(char *at, uint64_t value)
{
	at = put_right(at, bytes_text(value).text, PLOT_MARGIN - 2);
	return put_text(at, out.utf8 ? " ┤" : " |");
}

static void print_row(const uint64_t *values, unsigned count, unsigned rows, unsigned row,
		      uint64_t max)
{
	const char *const *marks = out.utf8 ? blocks : ascii;
	char *at = out_reserve();

	if (row + 1 == rows)
		at = put_scale(at, max);
	else if (rows % 2 == 0 && row + 1 == rows / 2)
		at = put_scale(at, max / 2);
	else
		at = put_text(put_spaces(at, PLOT_MARGIN - 1), out.utf8 ? "│" : "|");
	at = put_text(at, out_green());
	for (unsigned i = 0; i < count; i++)
		at = put_text(at, marks[eighths(values[i], max, rows, row)]);
	while (at[-1] == ' ')
		at--;
	at = put_text(at, out_plain());
	*at++ = '\n';
	out_commit(at);
}

static void print_axis(unsigned count, uint64_t span_ns)
{
	struct out_text end = duration_text(span_ns);
	char *at = put_right(out_reserve(), "0 ", PLOT_MARGIN - 1);

	at = put_text(at, out.utf8 ? "└" : "+");
	for (unsigned i = 0; i < count; i++)
		at = put_text(at, out.utf8 ? "─" : "-");
	*at++ = '\n';
	at = put_spaces(at, PLOT_MARGIN);
	at = put_text(at, "0");
	at = put_right(at, end.text, count - 1);
	*at++ = '\n';
	out_commit(at);
}

void plot_bytes(const uint64_t *values, unsigned count, unsigned rows, uint64_t span_ns)
{
	uint64_t max = highest(values, count);

	for (unsigned row = rows; max && row-- > 0;)
		print_row(values, count, rows, row, max);
	print_axis(count, span_ns);
}
