// SPDX-License-Identifier: MIT
/* What the pages of pindown report are made of: text, boxes and tables. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/report/html.h"
#include "tools/report/html_tables.h"
#include "tools/trace/rank.h"

/* The files page.css and page.js, as texts. */
#define FILE_TEXT(name, path)                                              \
	extern const char name[];                                          \
	__asm__(".pushsection .rodata\n" #name ":\n.incbin \"" path "\"\n" \
		".byte 0\n.popsection")

FILE_TEXT(html_style, "tools/report/page.css");
FILE_TEXT(html_script, "tools/report/page.js");

/* ---- text ----------------------------------------------------------------------------------- */

void html_text(FILE *page, const char *text)
{
	for (const char *at = text; *at;) {
		unsigned length = text_utf8_length(at);

		if (*at == '<')
			fputs("&lt;", page);
		else if (*at == '>')
			fputs("&gt;", page);
		else if (*at == '&')
			fputs("&amp;", page);
		else if (*at == '"')
			fputs("&quot;", page);
		else if (*at == '\'')
			fputs("&#39;", page);
		else if (length)
			fwrite(at, length, 1, page);
		else
			fputc('?', page);
		at += length ? length : 1;
	}
}

void html_command(FILE *page, const struct trace_file *file)
{
	const char *end = file->command + file->command_bytes;
	size_t shown = 0;

	for (const char *at = file->command; at < end && shown < 300; at += strlen(at) + 1) {
		if (shown)
			fputc(' ', page);
		html_text(page, at);
		shown += strlen(at) + 1;
	}
	if (shown >= 300)
		fputs(" …", page);
}

/* ---- the page ------------------------------------------------------------------------------- */

static bool utf8_before; /* of the output; the page is UTF-8 even if the terminal is not */

static bool is_output(const char *name)
{
	return strcmp(name, "-") == 0;
}

FILE *html_open(const char *name)
{
	FILE *page = is_output(name) ? stdout : fopen(name, "w");

	if (!page)
		complain("--html %s: %s", name, strerror(errno));
	out_flush();
	utf8_before = out.utf8;
	out.utf8 |= page != NULL;
	return page;
}

bool html_close(FILE *page, const char *name)
{
	bool good = !ferror(page);

	out.utf8 = utf8_before;
	if ((is_output(name) ? fflush(page) : fclose(page)) == 0 && good)
		return true;
	complain("--html %s: %s", name, strerror(errno));
	return false;
}

void html_begin(FILE *page)
{
	fprintf(page,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<style>\n%s</style>\n<title>",
		html_style);
}

void html_end(FILE *page)
{
	fprintf(page, "<script>\n%s</script>\n</body>\n</html>\n", html_script);
}

/* ---- boxes ---------------------------------------------------------------------------------- */

void html_begin_answers(FILE *page)
{
	fputs("<div class=\"answers\">\n", page);
}

void html_end_answers(FILE *page)
{
	fputs("</div>\n", page);
}

/* ---- tables --------------------------------------------------------------------------------- */

void html_process(FILE *page, int64_t rank, uint32_t pid)
{
	/* Sorted behind all ranks. */
	html_number(page, rank == NO_RANK ? UINT32_MAX : (uint64_t)rank,
		    rank == NO_RANK ? "–" : count_text((uint64_t)rank).text);
	fprintf(page, "<td class=\"n\" data-v=\"%u\">%u</td>", pid, pid);
}
