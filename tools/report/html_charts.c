// SPDX-License-Identifier: MIT
/* Draws charts of quantities over time, as SVG. */
#include "tools/report/html.h"
#include "tools/base/out.h"

enum { TOP = 14, HEIGHT = 120, TICKS = 5 };

static struct out_text amount(const struct html_chart *chart, uint64_t value)
{
	return chart->is_count ? count_text(value) : bytes_text(value);
}

void html_time_axis(FILE *page, uint64_t span, double y)
{
	for (unsigned i = 0; i <= TICKS; i++) {
		double x = CHART_LEFT + (double)CHART_WIDTH * i / TICKS;
		uint64_t ns = (uint64_t)((__uint128_t)span * i / TICKS);

		fprintf(page,
			"<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
			x, x, y, y + 5, x, y + 19,
			i == 0	     ? "start"
			: i == TICKS ? "end"
				     : "middle",
			i ? duration_text(ns).text : "0");
	}
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
	return TOP + HEIGHT - (max ? (double)value / (double)max * HEIGHT : 0);
}

/* Draws one series as steps, one for each part of the time. */
static void put_area(FILE *page, const struct history *history, enum history_series series,
		     uint64_t max, const char *class)
{
	const uint64_t *values = history->max[series];
	double each = (double)CHART_WIDTH / history->columns;

	fprintf(page, "<path class=\"%s\" d=\"M%d %d", class, CHART_LEFT, TOP + HEIGHT);
	for (unsigned i = 0; i < history->columns; i++)
		if (i == 0 || values[i] != values[i - 1])
			fprintf(page, "H%.1fV%.1f", CHART_LEFT + each * i,
				height_of(values[i], max));
	fprintf(page, "H%dV%dZ\"/>\n", CHART_LEFT + CHART_WIDTH, TOP + HEIGHT);
}

static void put_scale(FILE *page, const struct html_chart *chart, uint64_t max)
{
	for (unsigned i = 0; i <= 2; i++) {
		uint64_t value = max / 2 * i + (i == 2 ? max % 2 : 0);
		double y = height_of(value, max);

		if (i == 1 && max < 2)
			continue;
		fprintf(page,
			"<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			CHART_LEFT, CHART_LEFT + CHART_WIDTH, y, y, CHART_LEFT - 8, y + 4,
			amount(chart, value).text);
	}
}

static void put_values(FILE *page, const struct history *history, const struct html_chart *chart)
{
	unsigned series = chart->second == SERIES ? 1 : 2;

	fprintf(page,
		" data-values='{\"span\":%llu,\"left\":%d,\"width\":%d,\"total\":%d,\"count\":%s,",
		(unsigned long long)history->span, CHART_LEFT, CHART_WIDTH, CHART_TOTAL,
		chart->is_count ? "true" : "false");
	fputs("\"labels\":[", page);
	for (unsigned i = 0; i < series; i++)
		fprintf(page, "%s\"%s\"", i ? "," : "", chart->labels[i]);
	fputs("],\"values\":[", page);
	for (unsigned i = 0; i < series; i++) {
		const uint64_t *values = history->max[i ? chart->second : chart->series];

		fputs(i ? ",[" : "[", page);
		for (unsigned j = 0; j < history->columns; j++)
			fprintf(page, "%s%llu", j ? "," : "", (unsigned long long)values[j]);
		fputc(']', page);
	}
	fputs("]}'", page);
}

void html_chart(FILE *page, const struct history *history, const struct html_chart *chart)
{
	uint64_t max = highest(history->max[chart->series], history->columns);

	fprintf(page, "<div class=\"picture\">\n<h2>%s</h2>\n<p class=\"dim keys\">", chart->title);
	fprintf(page, "%s</p>\n<svg role=\"img\" aria-label=\"%s\" viewBox=\"0 0 %d %d\"",
		chart->note, chart->name, CHART_TOTAL, TOP + HEIGHT + 30);
	put_values(page, history, chart);
	fputs(">\n", page);
	put_scale(page, chart, max);
	put_area(page, history, chart->series, max, "one");
	if (chart->second != SERIES && highest(history->max[chart->second], history->columns))
		put_area(page, history, chart->second, max, "two");
	html_time_axis(page, history->span, TOP + HEIGHT);
	fprintf(page,
		"<line class=\"cursor\" y1=\"%d\" y2=\"%d\" style=\"display:none\"/>\n"
		"</svg>\n<div class=\"readout\"></div>\n</div>\n",
		TOP, TOP + HEIGHT);
}
