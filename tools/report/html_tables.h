/* SPDX-License-Identifier: MIT */
/* Cells of the page's tables. */
#ifndef HTML_TABLES_H
#define HTML_TABLES_H

#include <stdint.h>
#include <stdio.h>

/* `columns`: names, NULL at the end; "#" before a name marks a column of numbers. */
void html_begin_table(FILE *page, const char *title, const char *const *columns);
/* With a line of how many rows more there are, if shown < count. */
void html_end_table(FILE *page, uint64_t shown, uint64_t count);
void html_number(FILE *page, uint64_t value, const char *text);
void html_count(FILE *page, uint64_t count);
void html_bytes(FILE *page, uint64_t bytes);
void html_ns(FILE *page, uint64_t ns);
void html_words(FILE *page, const char *text);
void html_answer(FILE *page, const char *kind, const char *what, const char *value,
		 const char *more);

#endif
