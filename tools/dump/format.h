/* SPDX-License-Identifier: MIT */
/* The output formats of `pindown dump`: one struct of functions for each. */
#ifndef FORMAT_H
#define FORMAT_H

#include "tools/trace/reader.h"

struct format {
	const char *option; /* NULL: the default */
	void (*begin)(const struct reader *reader);
	void (*event)(const struct event *event);
	void (*end)(const struct reader *reader);
};

/* Print whole call stacks, not only the caller. */
extern bool format_stacks;

/* Writes an event's flags as members of a JSON object, each behind a comma (format_json.c). */
char *json_flags(char *at, unsigned flags);
/* The same with the outcome of a retire; nothing for other events. */
char *json_outcome(char *at, const struct record *record);

extern const struct format format_text, format_json, format_chrome;

#endif
