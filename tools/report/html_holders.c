// SPDX-License-Identifier: MIT
/* Writes the parts of the page about registrations and dma-bufs that outlived their memory. */
#include <stdio.h>

#include "tools/base/out.h"
#include "tools/report/holders.h"
#include "tools/report/html.h"
#include "tools/report/html_sections.h"
#include "tools/report/html_tables.h"
#include "tools/report/report.h"
#include "tools/trace/symbols.h"

enum { MAX_ROWS = 500, MAX_CHAIN = 8 };

void html_definitions(FILE *page, const struct tally *tally)
{
	if (report_defines(tally))
		fprintf(page, "<p class=\"dim\" style=\"margin-top:12px\">%s</p>\n",
			report_definitions);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* The caller with its library, and the functions that led there. */
static void put_code(FILE *page, const struct trace_file *file, uint32_t stack)
{
	struct place places[MAX_CHAIN];
	unsigned count = stack ? symbols_chain(file, stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE], maker[2 * PLACE_TEXT_SIZE + 4096];

	*put_maker(maker, file, stack) = '\0';
	fputs("<td class=\"w\">", page);
	html_text(page, maker);
	for (unsigned i = 1; i < count; i++) {
		fputs("<br>", page);
		html_text(page, place_text(&places[i], text));
	}
	fputs("</td>", page);
}

static void put_address(FILE *page, uint64_t addr)
{
	fprintf(page, "<tr><td class=\"a\">%#llx</td>", (unsigned long long)addr);
}

static void put_registrations(FILE *page, const struct reader *reader,
			      const struct holders *holders)
{
	static const char *const columns[] = {"address",      "#size",	       "#freed at",
					      "registration", "registered by", "freed by",
					      "#rank",	      "#process",      NULL};
	unsigned count = holders->registration_count, shown = count < MAX_ROWS ? count : MAX_ROWS;

	if (!shown)
		return;
	html_begin_table(page, "Freed while the program had a registration of it", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct registration *registration = &holders->registrations[i];
		const struct trace_file *file = reader_file(reader, registration->file);

		put_address(page, registration->addr);
		html_bytes(page, registration->size);
		html_ns(page, registration->ts);
		html_words(page, registration_fate(registration));
		put_code(page, file, registration->made_by);
		put_code(page, file, registration->freed_by);
		html_process(page, file->rank, file->header.pid);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, holders->registrations_all);
}

static void put_outlived(FILE *page, const struct reader *reader, const struct holders *holders)
{
	static const char *const columns[] = {"address",   "#size",    "#exported at",
					      "#freed at", "then",     "exported by",
					      "#rank",	   "#process", NULL};
	unsigned count = holders->outlived_count, shown = count < MAX_ROWS ? count : MAX_ROWS;

	if (!shown)
		return;
	html_begin_table(page, "Freed while the program had a dma-buf of it open", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct outlived *outlived = &holders->outlived[i];
		const struct export *made = &outlived->made;
		const struct trace_file *file = reader_file(reader, made->file);

		put_address(page, outlived->addr);
		html_bytes(page, outlived->size);
		html_number(page, made->ts, made->tid ? duration_text(made->ts).text : "–");
		html_ns(page, outlived->ts);
		html_words(page, outlived_state(outlived));
		put_code(page, file, made->stack);
		html_process(page, file->rank, file->header.pid);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, holders->answers->all[ANSWER_EXPORTS].count);
}

static void put_consumers(FILE *page, const struct holders *holders)
{
	static const char *const columns[] = {"consumer",   "#made",	"#failed",
					      "#destroyed", "#by free", "#held",
					      "#regions",   "#bytes",	NULL};
	unsigned shown = holders->consumer_count < MAX_ROWS ? holders->consumer_count : MAX_ROWS;

	if (!shown)
		return;
	html_begin_table(page, "Registrations", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct consumer *consumer = &holders->consumers[i];

		fputs("<tr>", page);
		html_words(page, *consumer->name ? consumer->name : "–");
		html_count(page, consumer->made);
		html_count(page, consumer->failed);
		html_count(page, consumer->destroyed);
		html_count(page, consumer->revoked);
		html_count(page, consumer->held);
		html_count(page, consumer->held_regions);
		html_bytes(page, consumer->held_bytes);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, holders->consumer_count);
}

void html_holders(FILE *page, const struct reader *reader, const struct holders *holders)
{
	put_registrations(page, reader, holders);
	put_outlived(page, reader, holders);
	put_consumers(page, holders);
}
