// SPDX-License-Identifier: MIT
/* pindown report: what a trace says in sum. The answers first, the tallies after. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "out.h"
#include "plot.h"
#include "tally.h"
#include "verb.h"

static const char help[] =
	"usage: pindown report [options] TRACE...\n"
	"\n"
	"Says what a trace shows in sum: what was freed while in use, what was still pinned at "
	"the\n"
	"end, missed invalidations and lost events; hits, misses and evictions; pinned bytes over\n"
	"time; each device; each call. TRACE is a file, or the name given to PINDOWN_TRACE:\n"
	"app.pdt stands for all app.<pid>.pdt, which are then taken together.\n"
	"\n"
	"  --all         lists without end, instead of their first ten lines\n"
	"  --ascii       the plot without block characters\n"
	"  --color WHEN  auto, always or never\n"
	"  --help        this text\n"
	"\n"
	"Exit status: 0, 1 when a file could not be read wholly, 2 for bad options.\n";

enum { SHORT_LIST = 10, MOST_COLUMNS = 120, ROWS = 8 };

struct wishes {
	bool all, ascii, help;
	enum out_colour colour;
};

/* ---- what was traced ------------------------------------------------------------------------ */

static void print_heading(const char *text)
{
	out_print("\n%s%s%s\n", out_bold(), text, out_plain());
}

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
	out_print("  process %u on %.100s, %s, traced for %s\n", file->header.pid, file->host, date,
		  duration_text(last > file->first_ns ? last - file->first_ns : 0).text);
	if (file->cut)
		out_print("  %s%s is cut short: %s of %s%s\n", out_yellow(), file->name,
			  bytes_text(file->bytes).text,
			  bytes_text(file->header.units * PD_TRACE_UNIT).text, out_plain());
	else if (!file->header.end.ticks)
		out_print("  no end mark: the process was killed, left by _exit, or still runs\n");
}

static void print_files(const struct reader *reader, const struct wishes *wishes)
{
	unsigned count = reader_files(reader);
	unsigned shown = wishes->all || count <= SHORT_LIST ? count : SHORT_LIST;

	for (unsigned i = 0; i < shown; i++)
		print_file(reader_file(reader, i));
	if (shown < count)
		out_print("  and %u more processes (--all shows them)\n", count - shown);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void print_answer(const char *what, uint64_t count, bool bad, const char *more)
{
	char *at = out_room();

	at = put_left(put_text(at, "  "), what, 26);
	at = put_text(at, count ? (bad ? out_red() : out_yellow()) : out_green());
	at = put_text(at, count ? count_text(count).text : "none");
	at = put_text(at, out_plain());
	if (count)
		at = put_text(at, more);
	*at++ = '\n';
	out_took(at);
}

static uint64_t longest_kept(const struct findings *freed, uint64_t span)
{
	uint64_t longest = 0;

	for (unsigned i = 0; i < freed->count; i++) {
		const struct finding *finding = &freed->list[i];
		uint64_t until = finding->until == UINT64_MAX ? span : finding->until;

		if (until > finding->region.freed_at && until - finding->region.freed_at > longest)
			longest = until - finding->region.freed_at;
	}
	return longest;
}

static void print_answers(const struct tally *tally)
{
	char more[200];

	print_heading("Answers");
	print_answer("Missed invalidations", tally->missed_count, true,
		     ": frees that were learned of too late");
	snprintf(more, sizeof(more), ", %s of freed memory kept, for %s at most",
		 bytes_text(tally->freed.bytes).text,
		 duration_text(longest_kept(&tally->freed, tally->span)).text);
	print_answer("Freed while in use", tally->freed_count, false, more);
	snprintf(more, sizeof(more), ", %s%s", bytes_text(tally->left.bytes).text,
		 tally->left_freed ? ", freed memory among them" : "");
	print_answer("Still pinned at the end", tally->left_count, tally->left_freed, more);
	print_answer("Failed calls", tally->calls_failed, false, "");
	print_answer("Failed pins", tally->all.failed, true, "");
	print_answer("Errors", tally->events_of[PD_EV_ERROR], true,
		     ": pindown dump --event error shows them");
	print_answer("Lost events", tally->lost, true, ": they found no room in the trace");
}

/* ---- the cache ------------------------------------------------------------------------------ */

static void print_cache(const struct tally *tally)
{
	uint64_t hits = tally->counters.hits, gets = hits + tally->counters.misses;
	const struct pin_tally *all = &tally->all;

	print_heading("Registration cache");
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
}

static void print_timeline(const struct tally *tally)
{
	if (!tally->all.peak_bytes)
		return;
	print_heading("Pinned bytes over time");
	out_print("  at the peak %s", bytes_text(tally->all.peak_bytes).text);
	out_print(" (at %s), ", duration_text(tally->all.peak_at).text);
	out_print("%s regions at most, ", count_text(tally->all.peak_regions).text);
	out_print("%s at the end\n", bytes_text(tally->all.bytes).text);
	plot_bytes(tally->timeline, tally->columns, ROWS, tally->span);
}

static void print_device(const struct pin_tally *device, const char *name)
{
	char *at = out_room();

	at = put_left(put_text(at, "  "), name, 8);
	at = put_right(at, count_text(device->pins).text, 12);
	at = put_right(at, count_text(device->failed).text, 9);
	at = put_right(at, count_text(device->unpins).text, 12);
	at = put_right(at, count_text(device->evictions).text, 11);
	at = put_right(at, bytes_text(device->peak_bytes).text, 12);
	at = put_right(at, bytes_text(device->bytes).text, 12);
	*at++ = '\n';
	out_took(at);
}

static void print_devices(const struct tally *tally)
{
	char name[16];

	if (!tally->all.pins && !tally->all.failed)
		return;
	print_heading("Devices");
	out_print("  %sdevice          pins   failed      unpins  evictions        peak  at the "
		  "end%s\n",
		  out_dim(), out_plain());
	for (unsigned i = 0; i <= DEVICES; i++) {
		snprintf(name, sizeof(name), i < DEVICES ? "%u" : "?", i);
		if (tally->device[i].seen)
			print_device(&tally->device[i], name);
	}
}

/* ---- lists of regions ----------------------------------------------------------------------- */

static void print_finding(const struct reader *reader, const struct finding *finding, bool freed)
{
	const struct region *region = &finding->region;
	char *at = out_room();
	char number[24];

	*put_hex(number, region->addr) = '\0';
	at = put_left(put_text(at, "  "), number, 18);
	at = put_right(at, bytes_text(region->size).text, 11);
	at = put_decimal_right(at, region->number, 9);
	if (region->device >= 0)
		at = put_decimal_right(at, (uint64_t)region->device, 8);
	else
		at = put_right(at, "-", 8);
	at = put_right(at, duration_text(region->pinned_at).text, 11);
	at = put_right(at, region->freed ? duration_text(region->freed_at).text : "-", 11);
	if (freed)
		at = put_right(at,
			       finding->until == UINT64_MAX ? "never"
							    : duration_text(finding->until).text,
			       11);
	if (reader_files(reader) > 1)
		at = put_decimal_right(at, reader_file(reader, region->file)->header.pid, 9);
	*at++ = '\n';
	out_took(at);
}

static void print_findings(const struct reader *reader, const struct findings *findings,
			   uint64_t count, const char *heading, bool freed,
			   const struct wishes *wishes)
{
	unsigned shown = findings->count;

	if (!shown)
		return;
	if (!wishes->all && shown > SHORT_LIST)
		shown = SHORT_LIST;
	print_heading(heading);
	out_print(
		"  %saddress                  size   region  device  pinned at   freed at%s%s%s\n",
		out_dim(), freed ? "   unpinned" : "", reader_files(reader) > 1 ? "      pid" : "",
		out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_finding(reader, &findings->list[i], freed);
	if (shown < count)
		out_print("  and %s more%s\n", count_text(count - shown).text,
			  wishes->all ? "" : " (--all shows them)");
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void print_call(const struct call_tally *call)
{
	char *at = out_room();

	at = put_left(put_text(at, "  "), strlen(call->name) < 200 ? call->name : "(name too long)",
		      34);
	at = put_right(at, count_text(call->count).text, 13);
	at = put_text(at, call->failed ? out_red() : "");
	at = put_right(at, count_text(call->failed).text, 9);
	at = put_text(at, call->failed ? out_plain() : "");
	at = put_right(at, duration_text(call->ns).text, 11);
	at = put_right(at, duration_text(call->ns / call->count).text, 10);
	at = put_right(at, duration_text(call->most).text, 10);
	*at++ = '\n';
	out_took(at);
}

static void print_calls(const struct tally *tally)
{
	print_heading("Calls");
	if (!tally->call_count) {
		out_print("  none in the trace\n");
		return;
	}
	out_print(
		"  %scall                                      count   failed      total      mean"
		"       max%s\n",
		out_dim(), out_plain());
	for (unsigned i = 0; i < tally->call_count; i++)
		print_call(&tally->calls[i]);
}

/* ---- the verb ------------------------------------------------------------------------------- */

static void print(struct reader *reader, const struct wishes *wishes)
{
	unsigned columns = out.width - PLOT_MARGIN - 1;
	struct tally *tally = tally_make(reader, columns < MOST_COLUMNS ? columns : MOST_COLUMNS);

	print_files(reader, wishes);
	print_answers(tally);
	print_cache(tally);
	print_timeline(tally);
	print_devices(tally);
	print_findings(reader, &tally->missed, tally->missed_count, "Missed invalidations", true,
		       wishes);
	print_findings(reader, &tally->freed, tally->freed_count, "Freed while in use", true,
		       wishes);
	print_findings(reader, &tally->left, tally->left_count, "Still pinned at the end", false,
		       wishes);
	print_calls(tally);
	out_flush();
	tally_free(tally, reader);
}

enum option_number { ALL = 1, ASCII, COLOUR, HELP };

static const struct option options[] = {
	{"all", no_argument, NULL, ALL},
	{"ascii", no_argument, NULL, ASCII},
	{"color", required_argument, NULL, COLOUR},
	{"colour", required_argument, NULL, COLOUR},
	{"help", no_argument, NULL, HELP},
	{NULL, 0, NULL, 0},
};

static bool parse_option(int number, struct wishes *wishes)
{
	switch (number) {
	case ALL:
		wishes->all = true;
		return true;
	case ASCII:
		wishes->ascii = true;
		return true;
	case COLOUR:
		if (out_parse_colour(optarg, &wishes->colour))
			return true;
		complain("--color %s: must be one of auto, always, never", optarg);
		return false;
	case HELP:
		wishes->help = true;
		return true;
	}
	return false; /* getopt has said why */
}

static int run(int argc, char **argv)
{
	struct wishes wishes = {0};
	char name[] = "pindown report";
	struct reader *reader;
	int number, status;

	argv[0] = name;
	while ((number = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (!parse_option(number, &wishes))
			return STATUS_USAGE;
	if (wishes.help) {
		fputs(help, stdout);
		return STATUS_OK;
	}
	if (optind == argc) {
		complain("report needs the name of a trace; pindown report --help says more");
		return STATUS_USAGE;
	}
	out_begin(wishes.colour, wishes.ascii);
	reader = reader_open(argv + optind, (unsigned)(argc - optind));
	if (!reader)
		return STATUS_DAMAGED;
	print(reader, &wishes);
	status = reader_damaged(reader) ? STATUS_DAMAGED : STATUS_OK;
	reader_close(reader);
	return status;
}

const struct verb verb_report = {"report", "say what a trace shows in sum", run};
