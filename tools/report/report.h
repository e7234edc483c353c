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

/* Problems and costs, one line each (findings.c). */
void report_answers(const struct tally *tally);
/* The regions behind those answers, and where each was pinned and freed. */
void report_regions(const struct reader *reader, const struct tally *tally,
		    const struct report_wishes *wishes);
/* The program's allocations, over time and by call site (memory_text.c). */
void report_memory(const struct tally *tally, const struct report_wishes *wishes);
/* The allocations that were never freed, by the stacks that made them (memory_text.c). */
void report_unfreed(const struct reader *reader, const struct tally *tally,
		    const struct report_wishes *wishes);
/*
 * Prints the call chain of a stack, so that the caller's purpose shows too; "as above" if the row
 * before has it.
 */
void report_who(const struct trace_file *file, const char *what, uint32_t stack, bool as_above);
/* The call sites that took most time. */
void report_sites(const struct reader *reader, const struct tally *tally,
		  const struct report_wishes *wishes);

/* Stale and held: what the words mean, where either of them occurs. */
extern const char report_definitions[];
bool report_defines(const struct tally *tally);

/* Prints the verdict of --check, and returns the exit status. */
int report_judge(struct verdict *verdict, const struct report_wishes *wishes);
/* Whether a document takes the place of the text on standard output, and whether it is a page. */
bool report_is_document(const struct report_wishes *wishes);
bool report_is_page(const struct report_wishes *wishes);

/* Prints all of it as one JSON document (json.c). */
void report_json(const struct reader *reader, const struct tally *tally);

/* The changes from one run to the other (diff.c). */
void report_diff(const struct tally *one, const struct tally *other);

#endif
