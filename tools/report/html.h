/* SPDX-License-Identifier: MIT */
/* The parts of the page that `pindown report --html` writes. */
#ifndef HTML_H
#define HTML_H

#include <stdio.h>

#include "tools/report/history.h"

/* Writes text from a trace, escaped for HTML. */
void html_text(FILE *page, const char *text);

/* A chart of the maximum in each part of the time (html_charts.c). */
struct html_chart {
	const char *name, *title, *note;
	enum history_series series, second; /* drawn over the first; SERIES: none */
	const char *labels[2];
	bool is_count; /* a count, not bytes */
};
void html_chart(FILE *page, const struct history *history, const struct html_chart *chart);

/* The map of regions over addresses and time (html_map.c). */
void html_map(FILE *page, const struct history *history);

/* All pictures have the same horizontal axis. */
enum { CHART_LEFT = 108, CHART_WIDTH = 840, CHART_TOTAL = 960 };
void html_time_axis(FILE *page, uint64_t span, double y);

extern const char html_style[], html_script[];

#endif
