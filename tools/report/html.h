/* SPDX-License-Identifier: MIT */
/* The parts of the page that `pindown report --html` writes. */
#ifndef HTML_H
#define HTML_H

#include <stdio.h>

#include "tools/report/history.h"

/* Text of the trace's, made harmless. */
void html_text(FILE *page, const char *text);

/* A picture of what was most in each part of the time (html_charts.c). */
struct html_chart {
	const char *name, *title, *note;
	enum history_series series,
		second; /* the second lies over the first; SERIES: there is none */
	const char *labels[2];
	bool is_count; /* not bytes */
};
void html_chart(FILE *page, const struct history *history, const struct html_chart *chart);

/* The regions over addresses and time (html_map.c). */
void html_map(FILE *page, const struct history *history);

/* The same horizontal axis for all pictures. */
enum { CHART_LEFT = 108, CHART_WIDTH = 840, CHART_TOTAL = 960 };
void html_time_axis(FILE *page, uint64_t span, double y);

extern const char html_style[], html_script[];

#endif
