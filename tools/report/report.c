// SPDX-License-Identifier: MIT
/* pindown report: summarizes a trace. It prints the answers first, then the figures. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/ui/pager.h"
#include "tools/ui/plot.h"
#include "tools/report/html.h"
#include "tools/report/job.h"
#include "tools/report/report.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"
#include "tools/report/tally.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown report [options] TRACE...\n"
	"\n"
	"Summarizes a trace: stale registrations (where they were pinned and freed),\n"
	"leaked pins, memory that is never freed, missed invalidations; hits, misses and\n"
	"evictions; where the time went; pinned and allocated bytes over time; each\n"
	"device; each call. TRACE is a file, or the name given to PINDOWN_TRACE: app.pdt\n"
	"stands for all app.<pid>.pdt of the newest run, which are then reported\n"
	"together; older runs are named. A folder is a job of many processes: its traces\n"
	"are compared one by one, and the ranks that stand out are named.\n"
	"\n"
	"  --all          print full lists (default: first ten lines)\n"
	"  --html FILE    also write a self-contained page for a browser: pinned and\n"
	"                 allocated bytes, regions, BAR use and addresses over time,\n"
	"                 allocations by caller, and tables that can be sorted; with -\n"
	"                 for FILE the page replaces the text\n"
	"  --diff         compare two traces: print the changes from first to second\n"
	"  --json         print one JSON document instead\n"
	"  --check        for use in tests: end with a verdict of one line. Exit with 1\n"
	"                 when there is a stale or revoked registration, a missed\n"
	"                 invalidation, a leaked pin or a stale export, with 3 when a\n"
	"                 trace can't tell\n"
	"  --symbols DIR  look in DIR too for the programs and libraries of call stacks\n"
	"                 and for their debug files, by name or by build id\n"
	"  --no-pager     don't use $PAGER or less, even on a terminal\n"
	"  --ascii        draw the plot without block characters\n"
	"  --color WHEN   auto, always or never\n"
	"  --help         print this text\n"
	"\n"
	"Exit status: 0; 1 when a file could not be read completely, or when --check\n"
	"finds something; 2 for bad options; 3 when --check can't tell.\n";

enum { MAX_COLUMNS = 120, ROWS = 8, HISTORY = 600 };

/* ---- the processes -------------------------------------------------------------------------- */

static void print_command(const struct trace_file *file)
{
	const char *end = file->command + file->command_bytes;
	size_t shown = 0;

	out_print("%s", out_bold());
	for (const char *at = file->command; at < end && shown < 200; at += strlen(at) + 1) {
		out_print("%s%.200s", shown ? " " : "", at);
		shown += strlen(at) + 1;
	}
	out_print("%s%s\n", shown < 200 ? "" : " ...", out_plain());
}

static void print_file(const struct trace_file *file)
{
	time_t began = (time_t)(file->header.begin.realtime / 1000000000u);
	struct tm when;
	char date[40];
	unsigned hint = 0;
	uint64_t last = trace_file_ns(file, file->last_ticks, &hint);

	print_command(file);
	if (!localtime_r(&began, &when) ||
	    !strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &when))
		snprintf(date, sizeof(date), "at an unknown time");
	out_print("  process %u%s on %.100s, %s, traced for %s\n", file->header.pid,
		  trace_rank_text(file).text, file->host, date,
		  duration_text(last > file->first_ns ? last - file->first_ns : 0).text);
	if (file->cut)
		out_print("  %s%s is cut short: %s of %s%s\n", out_yellow(), file->name,
			  bytes_text(file->bytes).text,
			  bytes_text(file->header.units * PDN_TRACE_UNIT).text, out_plain());
	else if (!file->header.end.ticks)
		out_print("  no end mark: the process was killed, called _exit, or is still "
			  "running\n");
	if (*file->distrust)
		out_print("  %severy hit is checked by buffer id: %s%s\n", out_red(),
			  file->distrust, out_plain());
}

static void print_files(const struct reader *reader, const struct report_wishes *wishes)
{
	unsigned count = reader_files(reader);
	unsigned shown = wishes->all || count <= SHORT_LIST ? count : SHORT_LIST;

	char *left_out = reader_left_out(reader);

	for (unsigned i = 0; i < shown; i++)
		print_file(reader_file(reader, i));
	if (shown < count)
		out_print("  and %u more processes (--all shows them)\n", count - shown);
	if (left_out)
		out_print("  older runs, left out: %s\n", left_out);
	release(left_out);
}

/* ---- the cache ------------------------------------------------------------------------------ */

/* PINDOWN_DMABUF_MAPPING: by which mapping the registrations of each GPU's memory go. */
static void print_mappings(const struct tally *tally)
{
	for (unsigned i = 0; i <= DEVICES; i++) {
		const struct pin_tally *device = &tally->device[i];

		if (!device->maps)
			continue;
		out_print("  dma-bufs of device ");
		out_print(i < DEVICES ? "%u" : "?", i);
		out_print(": %s by the default mapping",
			  count_text(device->maps - device->maps_pcie).text);
		out_print(", %s over PCIe\n", count_text(device->maps_pcie).text);
	}
}

static void print_cache(const struct tally *tally)
{
	uint64_t hits = tally->counters.hits, gets = hits + tally->counters.misses;
	const struct pin_tally *all = &tally->all;

	report_heading("Registration cache");
	out_print("  hits %s", count_text(hits).text);
	out_print(", misses %s", count_text(tally->counters.misses).text);
	if (gets)
		out_print(", hit ratio %.2f %%", 100.0 * (double)hits / (double)gets);
	out_print(", hits checked by buffer id %s\n", count_text(tally->counters.tag_checks).text);
	out_print("  pins %s", count_text(all->pins).text);
	out_print(", unpins %s", count_text(all->unpins).text);
	out_print(", evictions %s", count_text(all->evictions).text);
	out_print(", invalidations %s\n", count_text(all->invalidations).text);
	if (all->pins + all->failed) {
		out_print("  time in pins %s", duration_text(all->ns).text);
		out_print(", %s each\n", duration_text(all->ns / (all->pins + all->failed)).text);
	}
	print_mappings(tally);
}

static void print_timeline(const struct tally *tally)
{
	if (!tally->all.peak_bytes)
		return;
	report_heading("Pinned bytes over time");
	out_print("  at the peak %s", bytes_text(tally->all.peak_bytes).text);
	out_print(" (at %s), ", duration_text(tally->all.peak_at).text);
	out_print("maximum %s regions, ", count_text(tally->all.peak_regions).text);
	out_print("%s at the end\n", bytes_text(tally->all.bytes).text);
	plot_bytes(tally->timeline, tally->columns, ROWS, tally->span);
}

static void print_device(const struct pin_tally *device, const char *name)
{
	char *at = out_reserve();

	at = put_left(put_text(at, "  "), name, 8);
	at = put_right(at, count_text(device->pins).text, 12);
	at = put_right(at, count_text(device->failed).text, 9);
	at = put_right(at, count_text(device->unpins).text, 12);
	at = put_right(at, count_text(device->evictions).text, 11);
	at = put_right(at, bytes_text(device->peak_bytes).text, 12);
	at = put_right(at, bytes_text(device->bytes).text, 12);
	*at++ = '\n';
	out_commit(at);
}

static void print_devices(const struct tally *tally)
{
	char name[16];

	if (!tally->all.pins && !tally->all.failed)
		return;
	report_heading("Devices");
	out_print("  %sdevice          pins   failed      unpins  evictions        peak  at the "
		  "end%s\n",
		  out_dim(), out_plain());
	for (unsigned i = 0; i <= DEVICES; i++) {
		snprintf(name, sizeof(name), i < DEVICES ? "%u" : "?", i);
		if (tally->device[i].seen)
			print_device(&tally->device[i], name);
	}
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void print_call(const struct call_tally *call)
{
	char *at = out_reserve();

	at = put_left(put_text(at, "  "), strlen(call->name) < 200 ? call->name : "(name too long)",
		      29);
	at = put_right(at, count_text(call->count).text, 13);
	at = put_text(at, call->failed ? out_red() : "");
	at = put_right(at, count_text(call->failed).text, 8);
	at = put_text(at, call->failed ? out_plain() : "");
	at = put_right(at, duration_text(call->ns).text, 9);
	at = put_right(at, duration_text(call->ns / call->count).text, 9);
	at = put_right(at, duration_text(call->max_ns).text, 9);
	*at++ = '\n';
	out_commit(at);
}

static void print_calls(const struct tally *tally)
{
	const char *none = report_none(tally, 1ull << PDN_EV_CALL);

	report_heading("Calls");
	if (!tally->call_count) {
		out_print("  %s\n", none ? none : "none in the trace");
		return;
	}
	out_print(
		"  %scall                                 count  failed    total     mean      max"
		"%s\n",
		out_dim(), out_plain());
	for (unsigned i = 0; i < tally->call_count; i++)
		print_call(&tally->calls[i]);
}

/*
 * ---- the command -------------------------------------------------------------------------------
 */

static struct tally *count(struct reader *reader, const struct report_wishes *wishes)
{
	unsigned columns = out.width - PLOT_MARGIN - 1;

	return tally_make(reader, columns < MAX_COLUMNS ? columns : MAX_COLUMNS,
			  wishes->html || wishes->json ? HISTORY : 0);
}

static void print(const struct reader *reader, const struct tally *tally,
		  const struct report_wishes *wishes)
{
	print_files(reader, wishes);
	report_answers(tally);
	report_regions(reader, tally, wishes);
	report_unfreed(reader, tally, wishes);
	holders_print(&tally->holders, reader, wishes->all ? ~0u : SHORT_LIST);
	report_sites(reader, tally, wishes);
	print_cache(tally);
	print_timeline(tally);
	report_memory(tally, wishes);
	print_devices(tally);
	print_calls(tally);
	out_flush();
}

/* A page has the text, too, for browsers without JavaScript. */
static bool write_page(const struct reader *reader, const struct tally *tally,
		       const struct report_wishes *wishes)
{
	if (!html_begin(wishes->html))
		return false;
	print(reader, tally, wishes);
	html_data();
	report_json(reader, tally);
	return html_end(wishes->html);
}

bool report_is_page(const struct report_wishes *wishes)
{
	return wishes->html && strcmp(wishes->html, "-") == 0;
}

bool report_is_document(const struct report_wishes *wishes)
{
	return wishes->json || report_is_page(wishes);
}

int report_judge(struct verdict *verdict, const struct report_wishes *wishes)
{
	char *text;
	int status = verdict_end(verdict, &text);

	if (report_is_document(wishes))
		complain("%s", text);
	else
		out_print("\n%s%s%s\n",
			  status == STATUS_OK	   ? out_green()
			  : status == STATUS_FOUND ? out_red()
						   : out_yellow(),
			  text, out_plain());
	out_flush();
	release(text);
	return status;
}

/* A trace that can't be opened at all leaves --check without an answer. */
static int unreadable(const struct report_wishes *wishes)
{
	return wishes->check ? STATUS_UNKNOWN : STATUS_DAMAGED;
}

static int status_of(const struct reader *reader, const struct report_wishes *wishes,
		     struct verdict *verdict)
{
	int status = wishes->check ? report_judge(verdict, wishes) : STATUS_OK;

	return status == STATUS_OK && reader_damaged(reader) ? unreadable(wishes) : status;
}

/* Reports all traces together. */
static int report(char *const *names, unsigned number, const struct report_wishes *wishes)
{
	struct reader *reader = reader_open(names, number);
	struct verdict verdict = {0};
	struct tally *tally;
	int status;

	if (!reader)
		return unreadable(wishes);
	tally = count(reader, wishes);
	if (wishes->json)
		report_json(reader, tally);
	else if (!report_is_page(wishes))
		print(reader, tally, wishes);
	out_flush();
	if (wishes->check)
		verdict_add(&verdict, reader, tally);
	status = status_of(reader, wishes, &verdict);
	if (wishes->html && !write_page(reader, tally, wishes))
		status = STATUS_DAMAGED;
	tally_free(tally, reader);
	symbols_free();
	reader_close(reader);
	return status;
}

static int compare(char *const *names, const struct report_wishes *wishes)
{
	struct reader *readers[2] = {reader_open(names, 1), reader_open(names + 1, 1)};
	struct verdict verdict = {0};
	struct tally *tallies[2];
	int status = STATUS_OK;

	if (!readers[0] || !readers[1])
		return unreadable(wishes); /* the process ends, which frees everything */
	for (unsigned i = 0; i < 2; i++) {
		tallies[i] = count(readers[i], wishes);
		print_files(readers[i], wishes);
		if (wishes->check)
			verdict_add(&verdict, readers[i], tallies[i]);
	}
	report_diff(tallies[0], tallies[1]);
	out_flush();
	if (wishes->check)
		status = report_judge(&verdict, wishes);
	if (status == STATUS_OK && (reader_damaged(readers[0]) || reader_damaged(readers[1])))
		status = unreadable(wishes);
	for (unsigned i = 0; i < 2; i++)
		tally_free(tallies[i], readers[i]);
	symbols_free();
	for (unsigned i = 0; i < 2; i++)
		reader_close(readers[i]);
	return status;
}

static struct report_wishes wishes;

static const struct setting settings[] = {
	{"all", .flag = &wishes.all},
	{"ascii", .flag = &wishes.ascii},
	{"check", .flag = &wishes.check},
	{"diff", .flag = &wishes.diff},
	{"html", .text = &wishes.html},
	{"no-pager", .flag = &wishes.no_pager},
	{"json", .flag = &wishes.json},
	{"symbols", .take = symbols_folder},
	{.name = NULL},
};

static int run(int argc, char **argv)
{
	if (wishes.diff && (argc != 2 || wishes.html)) {
		complain(wishes.html ? "--diff prints text: it can't be given with --html"
				     : "--diff needs two traces: the first run and the second");
		return STATUS_USAGE;
	}
	if (wishes.diff && wishes.json) {
		complain("--diff prints text: it can't be given with --json");
		return STATUS_USAGE;
	}
	if (wishes.json && report_is_page(&wishes)) {
		complain("--json and --html - are two documents for one standard output");
		return STATUS_USAGE;
	}
	if (job_is_folder(argv[0]) && (argc != 1 || wishes.diff)) {
		complain("%s is a folder: the report of a job takes one folder and nothing else",
			 argv[0]);
		return STATUS_USAGE;
	}
	if (wishes.html && !report_is_page(&wishes) &&
	    !trace_file_may_replace("--html", wishes.html))
		return STATUS_USAGE;
	if (wishes.ascii)
		out.utf8 = false;
	pager_begin(!wishes.no_pager && !report_is_document(&wishes));
	if (job_is_folder(argv[0]))
		return job_report(argv[0], &wishes);
	return wishes.diff ? compare(argv, &wishes) : report(argv, (unsigned)argc, &wishes);
}

const struct command command_report = {"report",
				       "summarize a trace: stale memory, leaks, costs",
				       help,
				       settings,
				       ARGUMENTS_TRACES,
				       .run = run};
