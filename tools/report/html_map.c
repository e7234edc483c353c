// SPDX-License-Identifier: MIT
/*
 * Draws the map of addresses. Each region is a box: its width is the time it was pinned, its height
 * its size. Long gaps between addresses are left out. If there are too many regions, the map is
 * divided into cells instead, which are darker the more of them was pinned; so the page stays
 * small.
 */
#include <stdlib.h>

#include "tools/report/html.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"

enum { TOP = 2, HEIGHT = 300, GAP = 6, MAX_STRIPS = 24, MAX_BOXES = 3000 };
enum { ROWS = 80, COLUMNS = 240, SHADES = 5 };

/* A range of addresses without long gaps. */
struct strip {
	uint64_t from, to;
	double y, height;
};

struct map {
	const struct history *history;
	struct strip strips[MAX_STRIPS];
	unsigned strip_count;
};

/* ---- strips --------------------------------------------------------------------------------- */

static int compare_addresses(const void *a, const void *b)
{
	const struct life *one = *(const struct life *const *)a,
			  *other = *(const struct life *const *)b;

	return (one->addr > other->addr) - (one->addr < other->addr);
}

static uint64_t end_of(const struct life *life)
{
	return life->addr + life->size < life->addr ? UINT64_MAX : life->addr + life->size;
}

static unsigned divide(struct map *map, const struct life **sorted, unsigned count, uint64_t gap)
{
	unsigned strips = 0;

	for (unsigned i = 0; i < count; i++) {
		uint64_t from = sorted[i]->addr, to = end_of(sorted[i]);
		struct strip *last = &map->strips[strips ? strips - 1 : 0];

		if (strips && (from <= last->to || from - last->to <= gap)) {
			last->to = to > last->to ? to : last->to;
			continue;
		}
		if (strips == MAX_STRIPS)
			return MAX_STRIPS + 1;
		map->strips[strips++] = (struct strip){.from = from, .to = to};
	}
	return strips;
}

/*
 * Chooses the smallest gap that makes at most MAX_STRIPS strips. Each gets a minimum height and a
 * share of the rest by its size.
 */
static void make_strips(struct map *map)
{
	unsigned count = map->history->life_count;
	const struct life **sorted = allocate((count + 1) * sizeof(*sorted));
	double total = 0, free_height, y = TOP;
	uint64_t gap = 64ull << 20;

	for (unsigned i = 0; i < count; i++)
		sorted[i] = &map->history->lives[i];
	sort(sorted, count, sizeof(*sorted), compare_addresses);
	while ((map->strip_count = divide(map, sorted, count, gap)) > MAX_STRIPS)
		gap = gap > UINT64_MAX / 4 ? UINT64_MAX : gap * 4;
	release(sorted);
	for (unsigned i = 0; i < map->strip_count; i++)
		total += (double)(map->strips[i].to - map->strips[i].from);
	free_height = HEIGHT - (double)GAP * (map->strip_count - 1) - 8.0 * map->strip_count;
	for (unsigned i = 0; i < map->strip_count; i++) {
		struct strip *strip = &map->strips[i];

		strip->y = y;
		strip->height =
			8 +
			(total > 0 ? free_height * (double)(strip->to - strip->from) / total : 0);
		y += strip->height + GAP;
	}
}

static double y_of(const struct map *map, uint64_t addr)
{
	unsigned i = 0;
	const struct strip *strip;

	while (i + 1 < map->strip_count && map->strips[i + 1].from <= addr)
		i++;
	strip = &map->strips[i];
	if (addr >= strip->to || strip->to == strip->from)
		return strip->y + (addr >= strip->to ? strip->height : 0);
	return strip->y +
	       strip->height * ((double)(addr - strip->from) / (double)(strip->to - strip->from));
}

static double x_of(const struct map *map, uint64_t ns)
{
	double part = map->history->span ? (double)ns / (double)map->history->span : 0;

	return WIDE * (part > 1 ? 1 : part);
}

/* ---- boxes ---------------------------------------------------------------------------------- */

static void put_box(FILE *page, const struct life *life, const char *class, double x, double y,
		    double width, double height)
{
	fprintf(page,
		"<rect class=\"%s\" data-f=\"%u\" data-d=\"%d\" x=\"%.2f\" y=\"%.1f\" "
		"width=\"%.2f\" "
		"height=\"%.1f\">",
		class, life->file, life->device, x, y, width < 1 ? 1 : width,
		height < 1 ? 1 : height);
}

static void put_life(FILE *page, const struct map *map, const struct life *life)
{
	double from = x_of(map, life->from), to = x_of(map, life->to), y = y_of(map, life->addr),
	       height = y_of(map, end_of(life) - (life->size ? 1 : 0)) - y, freed = to;

	if (life->freed_at < life->to)
		freed = x_of(map, life->freed_at);
	put_box(page, life, "p b", from, y, freed - from, height);
	fprintf(page, "<title>%#llx, %s, pinned from %s to %s</title></rect>\n",
		(unsigned long long)life->addr, bytes_text(life->size).text,
		duration_text(life->from).text, duration_text(life->to).text);
	if (life->freed_at >= life->to)
		return;
	put_box(page, life, "k b", freed, y, to - freed < 2 ? 2 : to - freed, height);
	fprintf(page, "<title>%#llx, %s, freed at %s and kept until %s</title></rect>\n",
		(unsigned long long)life->addr, bytes_text(life->size).text,
		duration_text(life->freed_at).text, duration_text(life->to).text);
}

/* ---- cells ---------------------------------------------------------------------------------- */

/*
 * Coverage of each cell: `change` has differences between columns for whole cells, `part` the share
 * of cells that are covered in part.
 */
struct cells {
	double change[ROWS][COLUMNS + 1], part[ROWS][COLUMNS];
};

static void cover_row(struct cells *cells, unsigned row, double from, double to, double weight)
{
	unsigned first = (unsigned)from, last = (unsigned)to;

	if (first >= COLUMNS)
		first = COLUMNS - 1;
	if (last >= COLUMNS)
		last = COLUMNS - 1;
	if (first == last) {
		cells->part[row][first] += (to - from) * weight;
		return;
	}
	cells->part[row][first] += (first + 1 - from) * weight;
	cells->part[row][last] += (to - last) * weight;
	cells->change[row][first + 1] += weight;
	cells->change[row][last] -= weight;
}

static void cover(struct cells *cells, const struct map *map, const struct life *life,
		  uint64_t begin, uint64_t end)
{
	double from = x_of(map, begin) * COLUMNS / WIDE, to = x_of(map, end) * COLUMNS / WIDE,
	       top = (y_of(map, life->addr) - TOP) * ROWS / HEIGHT,
	       bottom = (y_of(map, end_of(life)) - TOP) * ROWS / HEIGHT;

	if (to < from)
		to = from;
	for (unsigned row = top > 0 ? (unsigned)top : 0; row < ROWS && row <= bottom; row++) {
		double upper = top > row ? top : row, lower = bottom < row + 1 ? bottom : row + 1;

		if (lower > upper)
			cover_row(cells, row, from, to, lower - upper);
	}
}

/* Any coverage is visible, however small. */
static unsigned shade_of(double covered)
{
	unsigned shade;

	if (covered < 1e-6)
		return 0;
	shade = 1 + (unsigned)(covered * SHADES);
	return shade > SHADES ? SHADES : shade;
}

static void put_run(FILE *page, const char *class, unsigned row, unsigned from, unsigned to,
		    unsigned shade)
{
	const double width = (double)WIDE / COLUMNS, height = (double)HEIGHT / ROWS;

	if (shade)
		fprintf(page,
			"<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"opacity=\".%u\"/>\n",
			class, width * from, TOP + height * row, width * (to - from), height + 0.3,
			shade * 9 / SHADES);
}

static void put_cells(FILE *page, const struct cells *cells, const char *class)
{
	for (unsigned row = 0; row < ROWS; row++) {
		unsigned from = 0, shade = 0;
		double whole = 0;

		for (unsigned column = 0; column < COLUMNS; column++) {
			unsigned next;

			whole += cells->change[row][column];
			next = shade_of(whole + cells->part[row][column]);
			if (next == shade)
				continue;
			put_run(page, class, row, from, column, shade);
			from = column;
			shade = next;
		}
		put_run(page, class, row, from, COLUMNS, shade);
	}
}

static void put_all_cells(FILE *page, const struct map *map)
{
	struct cells *pinned = allocate(sizeof(*pinned)), *kept = allocate(sizeof(*kept));

	for (unsigned i = 0; i < map->history->life_count; i++) {
		const struct life *life = &map->history->lives[i];
		uint64_t freed = life->freed_at < life->to ? life->freed_at : life->to;

		cover(pinned, map, life, life->from, freed);
		if (freed < life->to)
			cover(kept, map, life, freed, life->to);
	}
	put_cells(page, pinned, "p");
	put_cells(page, kept, "k");
	release(pinned);
	release(kept);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* The first address of each strip; a label that would overlap the one before is left out. */
static void put_labels(FILE *page, const struct map *map)
{
	double free_from = 0;

	for (unsigned i = 0; i < map->strip_count; i++) {
		const struct strip *strip = &map->strips[i];
		char text[24];

		if (strip->y + 7 < free_from)
			continue;
		snprintf(text, sizeof(text), "%#llx", (unsigned long long)strip->from);
		html_label(page, strip->y + 7, text);
		free_from = strip->y + 7 + 14;
	}
}

void html_map(FILE *page, const struct history *history)
{
	bool boxes = history->life_count <= MAX_BOXES;
	struct map map = {.history = history};
	char note[500];

	if (!history->life_count)
		return;
	make_strips(&map);
	snprintf(note, sizeof(note),
		 "<span><i class=\"key p\"></i>pinned</span>"
		 "<span><i class=\"key k\"></i>freed, but still pinned</span>"
		 "%s%s Long gaps between addresses are left out.",
		 boxes ? "Each box is a region."
		       : "A cell is darker the more of it was pinned, by all processes.",
		 history->cut ? " Only the first million regions are shown." : "");
	html_begin_picture(page, "Addresses over time", note);
	fputs("<div class=\"plot map\">", page);
	put_labels(page, &map);
	html_begin_drawing(page, "addresses over time", HEIGHT + 4);
	for (unsigned i = 1; i < map.strip_count; i++)
		html_line(page, "grid", map.strips[i].y - GAP / 2.0);
	for (unsigned i = 0; boxes && i < history->life_count; i++)
		put_life(page, &map, &history->lives[i]);
	if (!boxes)
		put_all_cells(page, &map);
	html_end_picture(page, history->span);
}
