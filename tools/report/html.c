// SPDX-License-Identifier: MIT
#include "tools/report/html.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/base/out.h"

/* Texts that consist of files. */
#define FILES_TEXT(name, files)   \
	extern const char name[]; \
	__asm__(".pushsection .rodata\n" #name ":\n" files ".byte 0\n.popsection")
#define FILE_OF_PAGE(name) ".incbin \"tools/report/page/" name "\"\n"

FILES_TEXT(html_template, FILE_OF_PAGE("page.html"));
FILES_TEXT(html_style, FILE_OF_PAGE("page.css"));
FILES_TEXT(html_script,
	   FILE_OF_PAGE("words.js") FILE_OF_PAGE("tables.js") FILE_OF_PAGE("map.js")
		   FILE_OF_PAGE("pictures.js") FILE_OF_PAGE("flame.js") FILE_OF_PAGE("page.js"));

static struct {
	FILE *file;
	const char *rest;	/* of the template */
	const char *less, *and; /* what is written for < and & */
	bool colour, utf8;	/* of the output before */
} page;

/* Texts of a trace may have markup in them, which must not become the page's. */
static void put_output(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '<')
			fputs(page.less, page.file);
		else if (text[i] == '&')
			fputs(page.and, page.file);
		else
			fputc(text[i], page.file);
	}
}

/* Writes the template up to a marker, and skips that. */
static void put_until(const char *marker)
{
	const char *at = strstr(page.rest, marker);

	fwrite(page.rest, (size_t)(at - page.rest), 1, page.file);
	page.rest = at + strlen(marker);
}

static bool is_output(const char *name)
{
	return strcmp(name, "-") == 0;
}

bool html_begin(const char *name)
{
	FILE *file = is_output(name) ? stdout : fopen(name, "w");

	if (!file) {
		complain("--html %s: %s", name, strerror(errno));
		return false;
	}
	out_flush();
	page.file = file;
	page.rest = html_template;
	page.colour = out.colour;
	page.utf8 = out.utf8;
	put_until("{{style}}");
	fputs(html_style, file);
	put_until("{{text}}");
	page.less = "&lt;";
	page.and = "&amp;";
	out.colour = false;
	out.utf8 = true; /* the page is UTF-8 even if the terminal is not */
	out.sink = put_output;
	return true;
}

void html_data(void)
{
	out_flush();
	put_until("{{report}}");
	page.less = "\\u003c";
	page.and = "&";
}

bool html_end(const char *name)
{
	bool good;

	out_flush();
	out.sink = NULL;
	out.colour = page.colour;
	out.utf8 = page.utf8;
	put_until("{{script}}");
	fputs(html_script, page.file);
	fputs(page.rest, page.file);
	good = !ferror(page.file);
	if ((is_output(name) ? fflush(page.file) : fclose(page.file)) == 0 && good)
		return true;
	complain("--html %s: %s", name, strerror(errno));
	return false;
}
