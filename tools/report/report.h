/* SPDX-License-Identifier: MIT */
/* The parts of `pindown report`. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

#include "tools/base/out.h"
#include "tools/report/tally.h"

struct report_wishes {
	bool all, ascii, check, diff, json, no_pager;
	const char *html; /* the file to write, or NULL */
};

enum { SHORT_LIST = 10 };

void report_heading(const char *text);

/* Problems and costs, one line each (answers.c). */
void report_answers(const struct tally *tally);
/* The regions behind those answers, and where each was pinned and freed. */
void report_regions(const struct reader *reader, const struct tally *tally,
		    const struct report_wishes *wishes);
/* The call sites that took most time. */
void report_sites(const struct tally *tally, const struct report_wishes *wishes);

/* Whether --check fails. */
bool report_is_bad(const struct tally *tally);

/* Prints all of it as one JSON document (json.c). */
void report_json(const struct reader *reader, const struct tally *tally);

/* Writes a page with everything (html.c). False, after one line, when it fails. */
bool report_html(const char *name, const struct reader *reader, const struct tally *tally);

/* The changes from one run to the other (diff.c). */
void report_diff(const struct tally *one, const struct tally *other);

#endif
