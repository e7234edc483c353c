// SPDX-License-Identifier: MIT
/* Draws charts of quantities over time, as SVG. */
#include "tools/base/out.h"
#include "tools/report/html.h"
#include "tools/trace/rank.h"

enum { HEIGHT = 130, TICKS = 5 };

/* ---- pictures ------------------------------------------------------------------------------- */

void html_begin_picture(FILE *page, const char *title, const char *note)
{
	fprintf(page, "<div class=\"picture\">\n<h2>%s</h2>\n<p class=\"dim keys\">%s</p>\n", title,
		note);
}

void html_label(FILE *page, double y, const char *text)
{
	fprintf(page, "<span class=\"y\" style=\"top:%.1fpx\">%s</span>", y, text);
}

void html_begin_drawing(FILE *page, const char *name, unsigned height)
{
	fprintf(page,
		"\n<svg role=\"img\" aria-label=\"%s\" viewBox=\"0 0 %d %u\" "
		"preserveAspectRatio=\"none\" style=\"height:%upx\">\n",
		name, WIDE, height, height);
}

void html_line(FILE *page, const char *kind, double y)
{
	fprintf(page, "<path class=\"%s\" d=\"M0 %.1fH%d\"/>", kind, y, WIDE);
}

void html_end_picture(FILE *page, uint64_t span)
{
	fputs("</svg>\n<div class=\"xs\">", page);
	for (unsigned i = 0; i <= TICKS; i++) {
		uint64_t ns = (uint64_t)((__uint128_t)span * i / TICKS);

		fprintf(page, "<span style=\"left:%u%%\">%s</span>", 100 * i / TICKS,
			i ? duration_text(ns).text : "0");
	}
	fputs("</div>\n<div class=\"readout\"></div>\n</div>\n</div>\n", page);
}

/* ---- charts --------------------------------------------------------------------------------- */

static struct out_text amount(const struct html_chart *chart, uint64_t value)
{
	return chart->is_count ? count_text(value) : bytes_text(value);
}

static uint64_t highest(const uint64_t *values, unsigned count)
{
	uint64_t max = 0;

	for (unsigned i = 0; i < count; i++)
		max = values[i] > max ? values[i] : max;
	return max;
}

static double height_of(uint64_t value, uint64_t max)
{
	return HEIGHT - (max ? (double)value / (double)max * HEIGHT : 0);
}

/* Draws one series as steps, one for each part of the time. */
static void put_area(FILE *page, const struct history *history, enum history_series series,
		     uint64_t max, const char *class)
{
	const uint64_t *values = history->views[0].max[series];
	double each = (double)WIDE / history->columns;

	fprintf(page, "<path class=\"%s\" d=\"M0 %d", class, HEIGHT);
	for (unsigned i = 0; i < history->columns; i++)
		if (i == 0 || values[i] != values[i - 1])
			fprintf(page, "H%.1fV%.1f", each * i, height_of(values[i], max));
	fprintf(page, "H%dV%dZ\"/>\n", WIDE, HEIGHT);
}

/* The begin of the chart's box; the script redraws the chart from this and from html_views(). */
static void put_plot(FILE *page, const struct html_chart *chart)
{
	fprintf(page,
		"<div class=\"plot\" "
		"data-chart='{\"series\":[%d,%d],\"count\":%s,\"capacity\":%llu,"
		"\"height\":%d,\"labels\":[\"%s\",\"%s\"]}'>",
		chart->series, chart->second == SERIES ? -1 : (int)chart->second,
		chart->is_count ? "true" : "false", (unsigned long long)chart->capacity, HEIGHT,
		chart->labels[0], chart->labels[1]);
}

/*
 * The capacity is part of the scale where at least a twentieth of it is used. Otherwise the chart
 * would be flat, and the line is drawn at its upper edge.
 */
static bool fits_scale(uint64_t capacity, uint64_t max)
{
	return max >= capacity / 20;
}

static void put_capacity_note(char *note, size_t bytes, const struct html_chart *chart,
			      uint64_t capacity, uint64_t max)
{
	if (!chart->capacity)
		snprintf(note, bytes, "%s%s", chart->note,
			 chart->series != SERIES_BAR
				 ? ""
				 : " Its capacity is not in the traces; pindown run adds it if all "
				   "GPUs have the same.");
	else
		snprintf(note, bytes,
			 "%s <span><i class=\"key c\"></i>capacity: %s</span><span>used at the "
			 "peak: %.2g %%%s</span>",
			 chart->note, bytes_text(capacity).text,
			 100.0 * (double)max / (double)capacity,
			 fits_scale(capacity, max) ? "" : "; the line is above the scale");
}

void html_chart(FILE *page, const struct history *history, const struct html_chart *chart)
{
	const struct view *all = &history->views[0];
	uint64_t peak = highest(all->max[chart->series], history->columns), max,
		 capacity = chart->capacity * (history->devices ? history->devices : 1);
	char note[600];

	if (chart->second != SERIES && highest(all->max[chart->second], history->columns) > peak)
		peak = highest(all->max[chart->second], history->columns);
	max = peak;
	if (capacity && fits_scale(capacity, peak) && capacity > max)
		max = capacity;
	put_capacity_note(note, sizeof(note), chart, capacity, peak);
	html_begin_picture(page, chart->title, note);
	put_plot(page, chart);
	html_label(page, 0, amount(chart, max).text);
	html_label(page, HEIGHT / 2.0, max > 1 ? amount(chart, max / 2).text : "");
	html_label(page, HEIGHT, "0");
	html_begin_drawing(page, chart->name, HEIGHT);
	html_line(page, "grid", HEIGHT / 2.0);
	put_area(page, history, chart->series, max, "one");
	if (chart->second != SERIES)
		put_area(page, history, chart->second, max, "two");
	if (capacity)
		html_line(page, "capacity",
			  fits_scale(capacity, peak) ? height_of(capacity, max) + 1 : 1);
	html_end_picture(page, history->span);
}

/* ---- the series, for the script ------------------------------------------------------------- */

/* Only changes, as pairs of column and value. */
static void put_series(FILE *page, const struct history *history, const uint64_t *values)
{
	const char *comma = "";

	fputc('[', page);
	for (unsigned i = 0; i < history->columns; i++) {
		if (values[i] == (i ? values[i - 1] : 0))
			continue;
		fprintf(page, "%s%u,%llu", comma, i, (unsigned long long)values[i]);
		comma = ",";
	}
	fputc(']', page);
}

static void put_view(FILE *page, const struct history *history, const struct view *view)
{
	fprintf(page, "{\"f\":%lld,\"d\":%lld,\"s\":[", (long long)view->file,
		(long long)view->device);
	for (unsigned i = 0; i < SERIES; i++) {
		fputs(i ? "," : "", page);
		put_series(page, history, view->max[i]);
	}
	fputs("]}", page);
}

void html_views(FILE *page, const struct history *history, const struct reader *reader)
{
	const char *comma = "";

	fprintf(page,
		"<script type=\"application/json\" id=\"views\">{\"span\":%llu,\"columns\":%u,"
		"\"more\":%u,\"files\":{",
		(unsigned long long)history->span, history->columns,
		reader_files(reader) - history->viewed);
	for (unsigned i = 0; i < history->view_count; i++) {
		const struct view *view = &history->views[i];
		const struct trace_file *file;

		if (view->file == EVERY || view->device != EVERY)
			continue;
		file = reader_file(reader, (unsigned)view->file);
		fprintf(page, "%s\"%lld\":\"process %u%s\"", comma, (long long)view->file,
			file->header.pid, trace_rank_text(file).text);
		comma = ",";
	}
	fputs("},\"views\":[", page);
	for (unsigned i = 0; i < history->view_count; i++) {
		fputs(i ? ",\n" : "\n", page);
		put_view(page, history, &history->views[i]);
	}
	fputs("]}</script>\n", page);
}
