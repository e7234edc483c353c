/* SPDX-License-Identifier: MIT */
/* The parts of `pindown report`. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

#include "tools/base/out.h"
#include "tools/report/tally.h"

struct report_wishes {
	bool all, ascii, check, diff, no_pager;
	const char *html; /* a file to be written; NULL: none */
};

enum { SHORT_LIST = 10 };

void report_heading(const char *text);

/* What is wrong, and what it cost, a line each (answers.c). */
void report_answers(const struct tally *tally);
/* Each region that is behind those answers: whose, where it was pinned, where it was freed. */
void report_regions(const struct reader *reader, const struct tally *tally,
		    const struct report_wishes *wishes);
/* Where most time went. */
void report_sites(const struct tally *tally, const struct report_wishes *wishes);

/* What --check fails for. */
bool report_is_bad(const struct tally *tally);

/* One page, of everything (html.c). False after one line that says why not. */
bool report_html(const char *name, const struct reader *reader, const struct tally *tally);

/* What changed from one to the other (diff.c). */
void report_diff(const struct tally *one, const struct tally *other);

#endif
