/* SPDX-License-Identifier: MIT */
/*
 * The parts of the pages that `pindown report --html` writes. A section is a function that writes
 * a heading and what is below it, and nothing when it has nothing to show; put_page() in html.c
 * lists the sections in their order.
 */
#ifndef HTML_H
#define HTML_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/report/history.h"
#include "tools/trace/reader.h"

/*
 * ---- the page (html_page.c) --------------------------------------------------------------------
 */

/*
 * Opens the file, or standard output for "-", and makes the output's texts UTF-8; NULL, after one
 * line, when it fails.
 */
FILE *html_open(const char *name);
/* False, after one line, when not all could be written. */
bool html_close(FILE *page, const char *name);

/* Writes text from a trace, escaped for HTML. */
void html_text(FILE *page, const char *text);
/* The command line of a traced process, the begin of a long one. */
void html_command(FILE *page, const struct trace_file *file);

/* Up to the page's title, whose text comes next; the end of the head and the body follow it. */
void html_begin(FILE *page);
void html_end(FILE *page);

/* Around the boxes of the first lines: html_answer() of html_tables.h. */
void html_begin_answers(FILE *page);
void html_end_answers(FILE *page);

/* Rank, "–" when unknown, and process number: two columns. */
void html_process(FILE *page, int64_t rank, uint32_t pid);

/*
 * ---- pictures ----------------------------------------------------------------------------------
 */

/* A chart of the maximum in each part of the time (html_charts.c). */
struct html_chart {
	const char *name, *title, *note;
	enum history_series series, second; /* drawn over the first; SERIES: none */
	const char *labels[2];
	bool is_count;	   /* a count, not bytes */
	uint64_t capacity; /* of one device; drawn as a line; 0: none */
};
void html_chart(FILE *page, const struct history *history, const struct html_chart *chart);

/*
 * The series of each process and device, for the script, which shows those that are selected. The
 * page shows all together without it.
 */
void html_views(FILE *page, const struct history *history, const struct reader *reader);

/* The map of regions over addresses and time (html_map.c). */
void html_map(FILE *page, const struct history *history);

/*
 * A picture consists of labels on the left, a drawing that is WIDE units wide and is stretched to
 * the page, and a time axis. Labels are text of the page, not of the drawing, so that they stay
 * readable on a narrow screen.
 */
enum { WIDE = 1000 };
void html_begin_picture(FILE *page, const char *title, const char *note);
void html_label(FILE *page, double y, const char *text);
void html_begin_drawing(FILE *page, const char *name, unsigned height);
void html_line(FILE *page, const char *kind, double y);
void html_end_picture(FILE *page, uint64_t span);

#endif
