// SPDX-License-Identifier: MIT
/* Writes cells of the page's tables. */
#include "tools/report/html_tables.h"

#include "tools/base/out.h"
#include "tools/report/html.h"

void html_begin_table(FILE *page, const char *title, const char *const *columns)
{
	fprintf(page, "<h2>%s</h2>\n<div class=\"wide\"><table>\n<thead><tr>", title);
	for (; *columns; columns++)
		fprintf(page, "<th%s>%s</th>", **columns == '#' ? " class=\"n\"" : "",
			*columns + (**columns == '#'));
	fputs("</tr></thead>\n<tbody>\n", page);
}

void html_end_table(FILE *page, uint64_t shown, uint64_t count)
{
	fputs("</tbody></table></div>\n", page);
	if (shown < count)
		fprintf(page, "<p class=\"dim\">and %s more</p>\n", count_text(count - shown).text);
}

void html_number(FILE *page, uint64_t value, const char *text)
{
	fprintf(page, "<td class=\"n\" data-v=\"%llu\">%s</td>", (unsigned long long)value, text);
}

void html_count(FILE *page, uint64_t count)
{
	html_number(page, count, count_text(count).text);
}

void html_bytes(FILE *page, uint64_t bytes)
{
	html_number(page, bytes, bytes_text(bytes).text);
}

void html_ns(FILE *page, uint64_t ns)
{
	html_number(page, ns, duration_text(ns).text);
}

void html_words(FILE *page, const char *text)
{
	fputs("<td class=\"w\">", page);
	html_text(page, text);
	fputs("</td>", page);
}

void html_answer(FILE *page, const char *kind, const char *what, const char *value,
		 const char *more)
{
	fprintf(page, "<div class=\"answer %s\"><em>%s</em><b>%s</b><span>", kind, what, value);
	html_text(page, more);
	fputs("</span></div>\n", page);
}
