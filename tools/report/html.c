// SPDX-License-Identifier: MIT
/* pindown report --html: writes a self-contained page. */
#include "tools/report/html.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/report/html_sections.h"
#include "tools/report/html_tables.h"
#include "tools/report/report.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"

enum { MAX_ROWS = 500, MAX_PROCESSES = 200 };

/* ---- the capacity of BAR1 ------------------------------------------------------------------- */

/*
 * Of one GPU, as `pindown run` noted it (PINDOWNBAR1=BYTES); 0: no trace has it, or those of
 * several machines differ.
 */
static uint64_t bar1_capacity(const struct reader *reader)
{
	uint64_t capacity = 0;

	for (unsigned i = 0; i < reader_files(reader); i++) {
		const char *text = trace_file_variable(reader_file(reader, i), "PINDOWNBAR1=");
		uint64_t bytes = text ? strtoull(text, NULL, 10) : 0;

		if (!bytes || (capacity && bytes != capacity))
			return 0;
		capacity = bytes;
	}
	return capacity;
}

/* ---- the head ------------------------------------------------------------------------------- */

static uint64_t file_span(const struct trace_file *file)
{
	unsigned hint = 0;
	uint64_t last = trace_file_ns(file, file->last_ticks, &hint);

	return last > file->first_ns ? last - file->first_ns : 0;
}

static void put_process(FILE *page, const struct trace_file *file)
{
	time_t began = (time_t)(file->header.begin.realtime / 1000000000u);
	char date[40] = "at an unknown time";
	struct tm when;

	if (localtime_r(&began, &when))
		strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &when);
	fprintf(page, "process %u%s on ", file->header.pid, trace_rank_text(file).text);
	html_text(page, file->host);
	fprintf(page, ", %s, traced for %s", date, duration_text(file_span(file)).text);
	if (file->cut)
		fputs("; the trace is cut short", page);
	else if (!file->header.end.ticks)
		fputs("; no end mark: it was killed, called _exit, or is still running", page);
	if (*file->distrust) {
		fputs("; every hit is checked by buffer id: ", page);
		html_text(page, file->distrust);
	}
}

static void put_head(FILE *page, const struct reader *reader)
{
	const struct trace_file *first = reader_file(reader, 0);

	html_begin(page);
	html_command(page, first);
	fputs(" – pindown report</title>\n</head>\n<body>\n<h1>", page);
	html_command(page, first);
	fputs("</h1>\n<p class=\"dim\">", page);
	put_process(page, first);
	if (reader_files(reader) > 1)
		fprintf(page, "; and %u more process%s", reader_files(reader) - 1,
			reader_files(reader) == 2 ? "" : "es");
	fputs("</p>\n", page);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void put_answer(FILE *page, const struct tally *tally, enum answer answer)
{
	static const char *const kinds[] = {[FACT] = "", [NOTE] = "note", [WRONG] = "bad"};
	const struct answer_words *words = &answer_words[answer];
	uint64_t count = tally->answers.all[answer].count;
	const char *none = report_none(tally, words->events), *more = answer_more(tally, answer);

	if (count)
		html_answer(page, kinds[words->gravity], words->what, count_text(count).text,
			    *more ? more + 2 : "");
	else
		html_answer(page, none ? "note" : "good", words->what, none ? "–" : "none",
			    none ? none : "");
}

static void put_answers(FILE *page, const struct tally *tally)
{
	uint64_t hits = tally->counters.hits, gets = hits + tally->counters.misses;
	char value[64], more[PLACE_TEXT_SIZE + 200];

	html_begin_answers(page);
	for (unsigned i = 0; i < ANSWERS; i++)
		if (answer_is_shown(tally->answers.all, i))
			put_answer(page, tally, i);
	if (tally->allocations.count) {
		snprintf(more, sizeof(more), "at %s; %s in %s allocations",
			 duration_text(tally->allocations.peak_at).text,
			 bytes_text(tally->allocations.total).text,
			 count_text(tally->allocations.count).text);
		html_answer(page, "", "Allocated at the peak",
			    bytes_text(tally->allocations.peak).text, more);
	}
	snprintf(value, sizeof(value), gets ? "%.2f %%" : "–",
		 gets ? 100.0 * (double)hits / (double)gets : 0.0);
	snprintf(more, sizeof(more), "of %s gets", count_text(gets).text);
	html_answer(page, "", "Hit ratio", value, more);
	snprintf(more, sizeof(more), "in %s pins",
		 count_text(tally->all.pins + tally->all.failed).text);
	html_answer(page, "", "Time in pins", duration_text(tally->all.ns).text, more);
	snprintf(more, sizeof(more), "at %s; maximum %s regions",
		 duration_text(tally->all.peak_at).text, count_text(tally->all.peak_regions).text);
	html_answer(page, "", "Pinned at the peak", bytes_text(tally->all.peak_bytes).text, more);
	html_answer(page, tally->all.evictions ? "note" : "good", "Evictions",
		    tally->all.evictions ? count_text(tally->all.evictions).text : "none",
		    tally->all.evictions ? "to make space for others" : "");
	html_end_answers(page);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* A time, and the stack that acted then: its first line, the others folded unless `open`. */
static void put_act(FILE *page, const struct trace_file *file, uint64_t ns, const char *when,
		    uint32_t stack, bool open)
{
	enum { MAX_CHAIN = 8 };
	struct place places[MAX_CHAIN];
	unsigned count = stack ? symbols_chain(file, stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE];

	fprintf(page, "<td class=\"w s\" data-v=\"%llu\"><b>%s</b>", (unsigned long long)ns, when);
	if (count > 1)
		fprintf(page, "<details%s><summary>", open ? " open" : "");
	else if (count)
		fputs("<br>", page);
	if (count)
		html_text(page, place_text(&places[0], text));
	fputs(count > 1 ? "</summary>" : "", page);
	for (unsigned i = 1; i < count; i++) {
		fputs(i > 1 ? "<br>" : "", page);
		html_text(page, place_text(&places[i], text));
	}
	fputs(count > 1 ? "</details></td>" : "</td>", page);
}

static void put_finding(FILE *page, const struct reader *reader, const struct finding *finding,
			bool open)
{
	const struct region *region = &finding->region;
	const struct trace_file *file = reader_file(reader, region->file);

	fprintf(page, "<tr><td class=\"a\">%#llx</td>", (unsigned long long)region->addr);
	html_bytes(page, region->size);
	put_act(page, file, region->pinned_at, duration_text(region->pinned_at).text,
		region->pin_stack, open);
	put_act(page, file, region->freed ? region->freed_at : UINT64_MAX,
		region->freed ? duration_text(region->freed_at).text : "–", region->freed_stack,
		open);
	put_act(page, file, finding->until,
		finding->until == UINT64_MAX ? "never" : duration_text(finding->until).text,
		region->unpin_stack, open);
	html_number(page, (uint64_t)(region->device + 1),
		    region->device < 0 ? "–" : count_text((uint64_t)region->device).text);
	html_process(page, file->rank, file->header.pid);
	fputs("</tr>\n", page);
}

static void put_findings(FILE *page, const char *title, const struct reader *reader,
			 const struct findings *findings, uint64_t count, bool open)
{
	static const char *const columns[] = {"address", "#size", "pinned",   "freed", "unpinned",
					      "#device", "#rank", "#process", NULL};
	unsigned shown = findings->count < MAX_ROWS ? findings->count : MAX_ROWS;

	if (!shown)
		return;
	html_begin_table(page, title, columns);
	for (unsigned i = 0; i < shown; i++)
		put_finding(page, reader, &findings->list[i], open);
	html_end_table(page, shown, count);
}

static void put_sites(FILE *page, const struct sites *sites)
{
	static const char *const columns[] = {"called by", "call",    "#total", "#count",
					      "#mean",	   "#failed", NULL};
	unsigned shown = sites->count < MAX_ROWS ? sites->count : MAX_ROWS;

	if (!shown)
		return;
	html_begin_table(page, "Call sites", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct site *site = &sites->list[i];

		fputs("<tr>", page);
		html_words(page, site->caller);
		html_words(page, site->what);
		html_ns(page, site->ns);
		html_count(page, site->count);
		html_ns(page, site->ns / site->count);
		html_count(page, site->failed);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, sites->count);
}

static void put_calls(FILE *page, const struct tally *tally)
{
	static const char *const columns[] = {"call",  "#count", "#failed", "#total",
					      "#mean", "#max",	 NULL};
	unsigned shown = tally->call_count < MAX_ROWS ? tally->call_count : MAX_ROWS;

	if (!shown)
		return;
	html_begin_table(page, "Calls", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct call_tally *call = &tally->calls[i];

		fputs("<tr>", page);
		html_words(page, call->name);
		html_count(page, call->count);
		html_count(page, call->failed);
		html_ns(page, call->ns);
		html_ns(page, call->ns / call->count);
		html_ns(page, call->max_ns);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, tally->call_count);
}

static void put_devices(FILE *page, const struct tally *tally)
{
	static const char *const columns[] = {"#device",    "#pins", "#failed",	    "#unpins",
					      "#evictions", "#peak", "#at the end", NULL};

	if (!tally->all.pins && !tally->all.failed)
		return;
	html_begin_table(page, "Devices", columns);
	for (unsigned i = 0; i <= DEVICES; i++) {
		const struct pin_tally *device = &tally->device[i];

		if (!device->seen)
			continue;
		fputs("<tr>", page);
		html_number(page, i, i < DEVICES ? count_text(i).text : "–");
		html_count(page, device->pins);
		html_count(page, device->failed);
		html_count(page, device->unpins);
		html_count(page, device->evictions);
		html_number(page, device->peak_bytes, bytes_text(device->peak_bytes).text);
		html_number(page, device->bytes, bytes_text(device->bytes).text);
		fputs("</tr>\n", page);
	}
	html_end_table(page, 0, 0);
}

static void put_processes(FILE *page, const struct reader *reader, const struct tally *tally)
{
	static const char *const columns[] = {"#rank",	  "#process", "#peak", "#stale",
					      "#exports", "#missed",  "#left", "#traced",
					      "host",	  "command",  NULL};
	unsigned count = reader_files(reader),
		 shown = count < MAX_PROCESSES ? count : MAX_PROCESSES;

	if (count < 2)
		return;
	html_begin_table(page, "Processes", columns);
	for (unsigned i = 0; i < shown; i++) {
		const struct trace_file *file = reader_file(reader, i);
		const struct amount *answers = tally->answers.of_file[i];

		fputs(answers_are_bad(answers) ? "<tr class=\"bad\">" : "<tr>", page);
		html_process(page, file->rank, file->header.pid);
		html_bytes(page, tally->history.processes[i].peak);
		html_count(page, answers[ANSWER_STALE].count);
		html_count(page, answers[ANSWER_EXPORTS].count);
		html_count(page, answers[ANSWER_MISSED].count);
		html_count(page, answers[ANSWER_LEFT].count);
		html_ns(page, file_span(file));
		html_words(page, file->host);
		fputs("<td class=\"w\">", page);
		html_command(page, file);
		fputs("</td>", page);
		fputs("</tr>\n", page);
	}
	html_end_table(page, shown, count);
	if (shown < count)
		fputs("<p class=\"dim\">pindown report with the folder of the traces compares all "
		      "processes.</p>\n",
		      page);
}

/* ---- the page ------------------------------------------------------------------------------- */

static void put_pictures(FILE *page, const struct reader *reader, const struct tally *tally)
{
	const struct history *history = &tally->history;
	const struct html_chart charts[] = {
		{"pinned bytes over time",
		 "Pinned bytes",
		 "<span><i class=\"key p\"></i>pinned</span>"
		 "<span><i class=\"key k\"></i>freed, but still pinned</span>",
		 SERIES_BYTES,
		 SERIES_KEPT,
		 {"pinned", "freed but still pinned"},
		 false,
		 0},
		{"regions over time",
		 "Live regions",
		 "Number of registrations in the cache.",
		 SERIES_REGIONS,
		 SERIES,
		 {"regions", ""},
		 true,
		 0},
		{"BAR use over time",
		 "BAR use",
		 "BAR1 space that the pins take, in whole pages of 64 KiB.",
		 SERIES_BAR,
		 SERIES,
		 {"of BAR1", ""},
		 false,
		 bar1_capacity(reader)},
	};

	fputs("<div id=\"pictures\">\n", page);
	for (unsigned i = 0; tally->all.pins && i < sizeof(charts) / sizeof(charts[0]); i++)
		html_chart(page, history, &charts[i]);
	html_allocated(page, tally);
	html_map(page, history);
	fputs("</div>\n", page);
	html_views(page, history, reader);
}

static void put_page(FILE *page, const struct reader *reader, const struct tally *tally)
{
	put_head(page, reader);
	put_answers(page, tally);
	html_definitions(page, tally);
	put_processes(page, reader, tally);
	put_findings(page, "Stale registrations: memory freed while in use", reader, &tally->freed,
		     tally->answers.all[ANSWER_STALE].count, true);
	put_findings(page, "Freed in stream order while in use", reader, &tally->ordered,
		     tally->answers.all[ANSWER_ORDERED].count, true);
	put_findings(page, "Missed invalidations", reader, &tally->missed,
		     tally->answers.all[ANSWER_MISSED].count, true);
	html_holders(page, reader, &tally->holders);
	put_pictures(page, reader, tally);
	html_memory(page, reader, tally);
	/* These are no fault, and often many. */
	put_findings(page, "Still pinned at the end", reader, &tally->left,
		     tally->answers.all[ANSWER_LEFT].count, false);
	put_sites(page, &tally->sites);
	put_calls(page, tally);
	put_devices(page, tally);
	html_end(page);
}

bool report_html(const char *name, const struct reader *reader, const struct tally *tally)
{
	FILE *page = html_open(name);

	if (!page)
		return false;
	put_page(page, reader, tally);
	return html_close(page, name);
}
