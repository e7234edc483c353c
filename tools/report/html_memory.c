// SPDX-License-Identifier: MIT
/* Writes the parts of the page about the program's allocations. */
#include <stdio.h>
#include <string.h>

#include "tools/base/out.h"
#include "tools/report/html.h"
#include "tools/report/html_sections.h"
#include "tools/report/html_tables.h"
#include "tools/report/report.h"

enum { MAX_ROWS = 500, HEIGHT = 130 };

/* ---- over time ------------------------------------------------------------------------------ */

static double height_of(uint64_t value, uint64_t max)
{
	return HEIGHT - (double)value / (double)max * HEIGHT;
}

void html_allocated(FILE *page, const struct tally *tally)
{
	const struct timeline *timeline = &tally->allocated_fine;
	uint64_t peak = tally->allocations.peak;
	char note[200];

	if (!peak)
		return;
	snprintf(note, sizeof(note),
		 "Memory that the program has allocated or mapped, pinned or not: up to %s, at %s.",
		 bytes_text(peak).text, duration_text(tally->allocations.peak_at).text);
	html_begin_picture(page, "Allocated bytes", note);
	fputs("<div class=\"plot\">", page);
	html_label(page, 0, bytes_text(peak).text);
	html_label(page, HEIGHT / 2.0, bytes_text(peak / 2).text);
	html_label(page, HEIGHT, "0");
	html_begin_drawing(page, "allocated bytes over time", HEIGHT);
	html_line(page, "grid", HEIGHT / 2.0);
	fprintf(page, "<path class=\"one\" d=\"M0 %d", HEIGHT);
	for (unsigned i = 0; i < timeline->columns; i++)
		if (i == 0 || timeline->max[i] != timeline->max[i - 1])
			fprintf(page, "H%.1fV%.1f", (double)WIDE * i / timeline->columns,
				height_of(timeline->max[i], peak));
	fprintf(page, "H%dV%dZ\"/>\n", WIDE, HEIGHT);
	html_end_picture(page, tally->span);
}

/* ---- call sites ----------------------------------------------------------------------------- */

static void put_sites(FILE *page, const struct allocations *all)
{
	static const char *const columns[] = {
		"allocated by", "call", "#at the peak", "#unfreed", "#total", "#count", NULL};
	unsigned shown = all->site_count < MAX_ROWS ? all->site_count : MAX_ROWS;

	html_begin_table(page, "Allocated bytes by call site", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct site_memory *site = &all->sites[i];

		fputs("<tr>", page);
		html_words(page, site->caller ? site->caller : "–");
		html_words(page, site->call);
		html_bytes(page, site->at_peak);
		html_bytes(page, site->unfreed);
		html_bytes(page, site->total);
		html_count(page, site->count);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, all->site_count);
}

void html_memory(FILE *page, const struct reader *reader, const struct tally *tally)
{
	if (!tally->allocations.peak)
		return;
	html_flame(page, reader, &tally->allocations, FLAME_AT_PEAK);
	html_flame(page, reader, &tally->allocations, FLAME_UNFREED);
	put_sites(page, &tally->allocations);
}
