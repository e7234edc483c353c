// SPDX-License-Identifier: MIT
/* pindown top: shows the processes that run under libpindown.so, and their counters. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/ui/json.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/system/processes.h"
#include "tools/system/tree.h"
#include "tools/top/bar.h"
#include "tools/ui/screen.h"
#include "tools/command.h"
#include "tools/top/openmetrics.h"

static const char help[] =
	"usage: pindown top [options] [PID]...\n"
	"\n"
	"Shows the processes that use CUDA under libpindown.so, all of them or those\n"
	"given: the memory they have pinned, and how often the registration cache was\n"
	"hit. This needs no trace. Only root sees processes of other users. Keys: s\n"
	"sorts by the next column, c shows command lines, ? helps, q quits.\n"
	"\n"
	"With --bar it shows BAR1 of each GPU, through which other devices reach its\n"
	"memory: its size, how much of it is in use, as nvidia-smi shows it, and how\n"
	"much each process has pinned through pindown. pindown bar is the same, once.\n"
	"\n"
	"  --bar               show BAR1 and who uses it\n"
	"  --trace FILE        with --bar: also show, by call site, the memory still\n"
	"                      pinned at the end of a trace: a file or a family, as for\n"
	"                      pindown report; can be given repeatedly\n"
	"  --sysfs DIR         with --bar: look for the kernel module's list below DIR\n"
	"  --once              print totals once and exit, as without a terminal\n"
	"  --json              print once, as a JSON list with one object for each\n"
	"                      process; with --bar as one object\n"
	"  --openmetrics       print once, in the format of OpenMetrics, which\n"
	"                      Prometheus and its node exporter read\n"
	"  --sort COLUMN       pinned (default), regions, kept, hits, misses, pid,\n"
	"                      rank\n"
	"  --interval SECONDS  time between refreshes, 0.1 to 3600 (default: 2)\n"
	"  --color WHEN        auto, always or never\n"
	"  --help              print this text\n"
	"\n"
	"Exit status: 0; 1 when a given process is not found, or with --bar the GPUs\n"
	"can't be queried or a trace can't be read; 2 for bad options.\n";

enum sort { BY_PINNED, BY_REGIONS, BY_KEPT, BY_HITS, BY_MISSES, BY_PID, BY_RANK, SORTS };
static const char *const sort_names[SORTS] = {"pinned", "regions", "kept", "hits",
					      "misses", "pid",	   "rank"};

struct wishes {
	bool bar, once, json, openmetrics;
	struct texts traces; /* of --bar */
	bool commands;	     /* show command lines */
	enum sort sort;
	const uint32_t *pids;
	unsigned pid_count;
};

/* ---- values -------------------------------------------------------------------------------- */

/*
 * Increase in a second, between the last two refreshes. For a process that was seen once, the mean
 * since it began.
 */
static double rate(const struct process *process, uint64_t now, uint64_t before)
{
	uint64_t ns = process->seen_at - process->seen_before;
	time_t age = time(NULL) - (time_t)process->began;

	if (!process->seen_before)
		return (double)now / (age > 0 ? (double)age : 1);
	return ns && now >= before ? (double)(now - before) * 1e9 / (double)ns : 0;
}

static enum sort sort_now;
static bool rates_now;

static uint64_t value_of(const struct process *process, enum sort sort)
{
	const struct pindown_stats *stats = &process->stats;

	switch (sort) {
	case BY_REGIONS:
		return stats->regions;
	case BY_KEPT:
		return stats->kept_bytes;
	case BY_HITS:
		return rates_now ? (uint64_t)rate(process, stats->hits, process->before.hits)
				 : stats->hits;
	case BY_MISSES:
		return rates_now ? (uint64_t)rate(process, stats->misses, process->before.misses)
				 : stats->misses;
	case BY_PID:
		return UINT32_MAX - process->pid;
	case BY_RANK: /* the lowest first; those without one, which are -1, last */
		return UINT32_MAX - (uint32_t)process->rank;
	default:
		return stats->bytes;
	}
}

static int compare(const void *a, const void *b)
{
	const struct process *of_a = a, *of_b = b;
	uint64_t value_a = value_of(of_a, sort_now), value_b = value_of(of_b, sort_now);

	if (value_a != value_b)
		return value_a > value_b ? -1 : 1;
	return of_a->pid < of_b->pid ? -1 : of_a->pid > of_b->pid;
}

static bool is_wanted(const struct wishes *wishes, const struct process *process)
{
	for (unsigned i = 0; i < wishes->pid_count; i++)
		if (wishes->pids[i] == process->pid)
			return true;
	return !wishes->pid_count;
}

static void look(struct processes *all, const struct wishes *wishes, bool rates)
{
	unsigned kept = 0;

	if (tree_is_live())
		processes_read(all);
	for (unsigned i = 0; i < all->count; i++)
		if (is_wanted(wishes, &all->list[i]))
			all->list[kept++] = all->list[i];
	all->count = kept;
	sort_now = wishes->sort;
	rates_now = rates;
	sort(all->list, all->count, sizeof(*all->list), compare);
}

/* ---- as text ------------------------------------------------------------------------------- */

static const char *user_name(uid_t user)
{
	static char number[24];
	const struct passwd *entry = getpwuid(user);

	if (entry)
		return entry->pw_name;
	snprintf(number, sizeof(number), "%u", (unsigned)user);
	return number;
}

/* "9999", "12.3k", "1.23M": at most five characters. */
static struct out_text short_count(double count)
{
	static const char units[] = {'\0', 'k', 'M', 'G', 'T'};
	struct out_text result;
	unsigned unit = 0;

	for (; count >= 9999.5 && unit < 4; unit++)
		count /= 1000;
	snprintf(result.text, sizeof(result.text), unit && count < 100 ? "%.1f%c" : "%.0f%c", count,
		 units[unit]);
	return result;
}

/* Cut off after one digit: 100.0 means that there was no miss. */
static struct out_text hit_ratio(uint64_t hits, uint64_t gets)
{
	uint64_t thousandths = (uint64_t)((__uint128_t)hits * 1000 / gets);
	struct out_text result;

	snprintf(result.text, sizeof(result.text), "%" PRIu64 ".%" PRIu64, thousandths / 10,
		 thousandths % 10);
	return result;
}

void print_line(struct drawing *drawing, const char *format, ...)
{
	va_list arguments;
	char *line;

	if (!drawing->rows)
		return;
	drawing->rows--;
	va_start(arguments, format);
	line = text_of_list(format, arguments);
	va_end(arguments);
	if (drawing->on_screen)
		out_cut(line, screen_columns());
	out_print("%s", line);
	screen_end_line(drawing->on_screen);
	release(line);
}

static void print_head(const struct processes *all, const struct wishes *wishes,
		       struct drawing *drawing)
{
	uint64_t bytes = 0, regions = 0;
	char *sum, *hint;
	bool fits;

	for (unsigned i = 0; i < all->count; i++) {
		bytes += all->list[i].stats.bytes;
		regions += all->list[i].stats.regions;
	}
	sum = text_of("%u process%s, %s pinned in %s region%s", all->count,
		      all->count == 1 ? "" : "es", bytes_text(bytes).text, count_text(regions).text,
		      regions == 1 ? "" : "s");
	hint = text_of("; by %s (?: help, q: quit)", sort_names[wishes->sort]);
	fits = strlen(sum) + strlen(hint) <= out.width;
	print_line(drawing, "%s%s", sum, drawing->on_screen && fits ? hint : "");
	release(sum);
	release(hint);
	print_line(drawing, "%s%7s %s%s%8s %5s %8s %6s %6s %5s %6s %s%s", out_bold(), "PID",
		   drawing->ranks ? "  RANK " : "", drawing->users ? "USER     " : "", "PINNED",
		   "REGS", "KEPT", rates_now ? "HITS/s" : "HITS", rates_now ? "MISS/s" : "MISSES",
		   "HIT%", "MISSED", "COMMAND", out_plain());
}

enum { OF_COMMAND = 8, BEFORE_COMMAND = 63, OF_RANK = 7, OF_USER = 9, BELOW_PID = 9 };

/* A job is one user's: where there is not the width for both, ranks stand in the place of users. */
static struct drawing choose_columns(const struct processes *all, struct drawing drawing)
{
	drawing.ranks = false;
	for (unsigned i = 0; i < all->count; i++)
		drawing.ranks |= all->list[i].rank >= 0;
	drawing.users =
		!drawing.ranks || out.width >= BEFORE_COMMAND + OF_RANK + OF_USER + OF_COMMAND;
	return drawing;
}

/* The columns that not every table has. */
static struct out_text rank_and_user(const struct process *process, const struct drawing *drawing)
{
	struct out_text columns = {""};
	int at = 0;

	if (drawing->ranks && process->rank >= 0)
		at = snprintf(columns.text, sizeof(columns.text), "%6d ", process->rank);
	else if (drawing->ranks)
		at = snprintf(columns.text, sizeof(columns.text), "%6s ", "-");
	if (drawing->users)
		snprintf(columns.text + at, sizeof(columns.text) - (size_t)at, "%-8.8s ",
			 user_name(process->user));
	return columns;
}

/* The command line in as many lines as it takes. */
static void print_command_line(const struct process *process, struct drawing *drawing)
{
	char *words = process_command_line(process);
	size_t each = out.width - BELOW_PID, length = strlen(words);

	for (size_t at = 0; at < length; at += each)
		print_line(drawing, "%*s%.*s", BELOW_PID, "", (int)each, words + at);
	release(words);
}

static void print_process(const struct process *process, bool commands, struct drawing *drawing)
{
	const struct pindown_stats *stats = &process->stats, *before = &process->before;
	uint64_t gets = stats->hits + stats->misses;
	double hits = rates_now ? rate(process, stats->hits, before->hits) : (double)stats->hits;
	double misses =
		rates_now ? rate(process, stats->misses, before->misses) : (double)stats->misses;
	bool wrong = stats->missed_invalidations || stats->distrusted;
	struct out_text ratio = {"-"};
	int width = (int)out.width - BEFORE_COMMAND - (drawing->ranks ? OF_RANK : 0) -
		    (drawing->users ? OF_USER : 0);

	if (gets)
		ratio = hit_ratio(stats->hits, gets);
	print_line(drawing, "%7u %s%8s %5s %8s %6s %6s %5s %s%6s%s %.*s", process->pid,
		   rank_and_user(process, drawing).text, bytes_text(stats->bytes).text,
		   short_count((double)stats->regions).text, bytes_text(stats->kept_bytes).text,
		   short_count(hits).text, short_count(misses).text, ratio.text,
		   wrong ? out_red() : "", short_count((double)stats->missed_invalidations).text,
		   wrong ? out_plain() : "", width > OF_COMMAND ? width : OF_COMMAND,
		   process->command);
	if (commands)
		print_command_line(process, drawing);
}

static const char *what_of_frees(const struct pindown_stats *stats)
{
	if (stats->distrusted)
		return "may be missed: every hit is checked";
	return stats->intercepting ? "are watched" : "are not watched";
}

/* Prints all counters of one process. */
static void print_details(const struct process *process, struct drawing *drawing)
{
	const struct pindown_stats *stats = &process->stats;

	print_line(drawing, "%s", "");
	print_line(drawing, "  pins %s, unpins %s, failed pins %s", count_text(stats->pins).text,
		   count_text(stats->unpins).text, count_text(stats->pin_failures).text);
	print_line(drawing, "  evictions %s, invalidations %s, lost races %s",
		   count_text(stats->evictions).text, count_text(stats->invalidations).text,
		   count_text(stats->lost_races).text);
	print_line(drawing, "  hits checked by buffer id %s", count_text(stats->tag_checks).text);
	print_line(drawing, "  maximum %s pinned, %s region%s; backend %s",
		   bytes_text(stats->peak_bytes).text, count_text(stats->peak_regions).text,
		   stats->peak_regions == 1 ? "" : "s", stats->backend);
	print_line(drawing, "  frees %s%s", what_of_frees(stats),
		   process->traced ? "; traced" : "");
	if (stats->max_dmabufs)
		print_line(drawing,
			   "  dma-bufs with a file descriptor: %s; maximum %s, half of ulimit -n",
			   count_text(stats->dmabufs).text, count_text(stats->max_dmabufs).text);
	if (stats->fallbacks)
		print_line(drawing, "  %s pins by the driver's dma-buf, as pindown.ko refused",
			   count_text(stats->fallbacks).text);
	if (stats->object_kept_regions || stats->objects_revoked)
		print_line(drawing,
			   "  freed under a registration: %s kept in %s region%s; ended %s",
			   bytes_text(stats->object_kept_bytes).text,
			   count_text(stats->object_kept_regions).text,
			   stats->object_kept_regions == 1 ? "" : "s",
			   count_text(stats->objects_revoked).text);
	if (stats->retired || stats->escapes)
		print_line(drawing,
			   "  retired addresses: %s now (%s), %s in all; dropped %s, "
			   "%sescaped %s%s",
			   count_text(stats->retired_ranges).text,
			   bytes_text(stats->retired_bytes).text, count_text(stats->retired).text,
			   count_text(stats->retired_dropped).text, stats->escapes ? out_red() : "",
			   count_text(stats->escapes).text, stats->escapes ? out_plain() : "");
	if (stats->unprotected || stats->left_to_card)
		print_line(drawing,
			   "  not retired: %s frees under a registration; left to libibverbs: %s",
			   count_text(stats->unprotected).text,
			   count_text(stats->left_to_card).text);
	for (unsigned i = 0; i < PDN_TOP_DEVICES; i++)
		if (process->device_bytes[i])
			print_line(drawing, "  device %u: %s", i,
				   bytes_text(process->device_bytes[i]).text);
}

/* One line that counts the processes which the list leaves out. */
static char *text_of_others(const struct processes *all)
{
	return text_of("processes under another release of libpindown.so, whose own pindown top "
		       "shows them: %u",
		       all->others);
}

/* Why the list may be empty. */
static void print_hints(const struct wishes *wishes, struct drawing *drawing)
{
	print_line(drawing, "%s", "");
	print_line(drawing, wishes->pid_count ? "  None of the processes given is here now."
					      : "  No process uses CUDA under libpindown.so now.");
	print_line(drawing,
		   "  To start one: pindown run PROGRAM. It is shown from its first use of");
	print_line(drawing,
		   "  CUDA on, unless PINDOWN_TOP=0. Only root sees other users' processes.");
}

static void print_all(const struct processes *all, const struct wishes *wishes,
		      struct drawing drawing)
{
	drawing = choose_columns(all, drawing);
	print_head(all, wishes, &drawing);
	if (all->others) {
		char *others = text_of_others(all);

		print_line(&drawing, "  %s", others);
		release(others);
	} else if (!all->count) {
		print_hints(wishes, &drawing);
	}
	for (unsigned i = 0; i < all->count; i++) {
		if (drawing.rows == 1 && i + 1 < all->count) {
			print_line(&drawing, "%7u more: too many for this screen", all->count - i);
			return;
		}
		print_process(&all->list[i], wishes->commands, &drawing);
	}
	if (all->count == 1 && wishes->pid_count == 1)
		print_details(&all->list[0], &drawing);
}

static const char *const key_help[] = {
	"s        sort by the next column: pinned, regions, kept, hits, misses, pid,",
	"         rank",
	"c        show or hide the whole command lines",
	"?        this text; any key leaves it",
	"q        quit",
	"",
	"RANK     rank in a job of Slurm, Open MPI or MPICH, if a process has one;",
	"         on a narrow terminal in the place of the column USER",
	"PINNED   memory pinned now, in whole pages of 64 KiB",
	"REGS     regions pinned now",
	"KEPT     pinned memory that the program has freed, still in use",
	"HITS/s   hits of the registration cache, in a second",
	"MISS/s   misses, in a second. A process's first figures are means",
	"         since it began; later ones are since the last refresh.",
	"HIT%     share of hits since the process began",
	"MISSED   frees noticed only after the driver had made them; anything",
	"         above 0 is a bug. Red: every hit is checked for that reason.",
};

static void show_help(void)
{
	struct drawing drawing = {.on_screen = true};

	do {
		screen_draw_begin();
		drawing.rows = screen_rows() - 1;
		for (unsigned i = 0; i < sizeof(key_help) / sizeof(key_help[0]); i++)
			print_line(&drawing, "  %s", key_help[i]);
		screen_draw_end();
	} while (!screen_key());
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static void print_json_process(const struct process *process)
{
	const struct pindown_stats *stats = &process->stats;

	json_begin_object(NULL);
	json_number("pid", process->pid);
	json_number("uid", process->user);
	json_rank(process->rank);
	json_text("command", process->command);
	json_number("since", process->began);
	json_text("backend", stats->backend);
	json_bool("intercepting", stats->intercepting);
	json_bool("distrusted", stats->distrusted);
	json_bool("traced", process->traced);
	json_number("bytes", stats->bytes);
	json_number("regions", stats->regions);
	json_number("kept_bytes", stats->kept_bytes);
	json_number("kept_regions", stats->kept_regions);
	json_number("peak_bytes", stats->peak_bytes);
	json_number("peak_regions", stats->peak_regions);
	json_number("hits", stats->hits);
	json_number("misses", stats->misses);
	json_number("tag_checks", stats->tag_checks);
	json_number("pins", stats->pins);
	json_number("unpins", stats->unpins);
	json_number("pin_failures", stats->pin_failures);
	json_number("evictions", stats->evictions);
	json_number("invalidations", stats->invalidations);
	json_number("lost_races", stats->lost_races);
	json_number("missed_invalidations", stats->missed_invalidations);
	json_number("dmabufs", stats->dmabufs);
	json_number("max_dmabufs", stats->max_dmabufs);
	json_number("fallbacks", stats->fallbacks);
	json_number("objects_revoked", stats->objects_revoked);
	json_number("object_kept_bytes", stats->object_kept_bytes);
	json_number("object_kept_regions", stats->object_kept_regions);
	json_number("exports_saved", stats->exports_saved);
	json_number("retired", stats->retired);
	json_number("retired_ranges", stats->retired_ranges);
	json_number("retired_bytes", stats->retired_bytes);
	json_number("retired_dropped", stats->retired_dropped);
	json_number("escapes", stats->escapes);
	json_number("unprotected", stats->unprotected);
	json_number("left_to_card", stats->left_to_card);
	json_begin_object("devices");
	for (unsigned i = 0; i < PDN_TOP_DEVICES; i++) {
		char device[16];

		snprintf(device, sizeof(device), "%u", i);
		if (process->device_bytes[i])
			json_number(device, process->device_bytes[i]);
	}
	json_end_object();
	json_end_object();
}

static void print_json(const struct processes *all)
{
	json_begin_list(NULL);
	for (unsigned i = 0; i < all->count; i++)
		print_json_process(&all->list[i]);
	json_end_list();
}

/*
 * ---- the command ------------------------------------------------------------------------------
 */

static int complain_of_missing(const struct processes *all, const struct wishes *wishes)
{
	int status = STATUS_OK;

	for (unsigned i = 0; i < wishes->pid_count; i++) {
		if (!processes_have(all, wishes->pids[i]))
			status = STATUS_FOUND;
	}
	return status;
}

/* What is shown; with --bar also the GPUs, the module and traces. */
struct shown {
	struct processes all;
	struct bar bar;
};

/* False when --bar can't query the GPUs. */
static bool look_at(struct shown *shown, const struct wishes *wishes, bool rates)
{
	look(&shown->all, wishes, rates);
	return !wishes->bar || bar_look(&shown->bar);
}

static void print(const struct shown *shown, const struct wishes *wishes, struct drawing drawing)
{
	if (wishes->bar)
		bar_print(&shown->bar, &shown->all, &drawing);
	else
		print_all(&shown->all, wishes, drawing);
}

static int once(struct shown *shown, const struct wishes *wishes)
{
	struct processes *all = &shown->all;
	bool answers = look_at(shown, wishes, false);

	if (wishes->json && wishes->bar)
		bar_print_json(&shown->bar, all);
	else if (wishes->json)
		print_json(all);
	else if (wishes->openmetrics)
		print_openmetrics(all);
	else
		print(shown, wishes, (struct drawing){.rows = UINT32_MAX});
	out_flush();
	if (all->others && (wishes->json || wishes->openmetrics)) {
		char *others = text_of_others(all);

		complain("%s", others);
		release(others);
	}
	return answers ? complain_of_missing(all, wishes) : STATUS_FOUND;
}

static int follow(struct shown *shown, struct wishes *wishes)
{
	bool answers = true;
	int key = 0;

	while (key != 'q' && (answers || shown->bar.no_nvml)) {
		answers = look_at(shown, wishes, true);
		screen_draw_begin();
		print(shown, wishes,
		      (struct drawing){.on_screen = true, .rows = screen_rows() - 1});
		screen_draw_end();
		key = screen_key();
		if (key == 's')
			wishes->sort = (wishes->sort + 1) % SORTS;
		if (key == 'c')
			wishes->commands = !wishes->commands;
		if (key == '?' || key == 'h')
			show_help();
	}
	screen_end();
	return answers ? STATUS_OK : STATUS_FOUND;
}

static struct wishes wishes;

static bool take_sort(const char *column)
{
	for (unsigned i = 0; i < SORTS; i++) {
		if (strcmp(column, sort_names[i]) == 0) {
			wishes.sort = (enum sort)i;
			return true;
		}
	}
	complain("--sort %s: must be one of pinned, regions, kept, hits, misses, pid, rank",
		 column);
	return false;
}

static bool take_trace(const char *name)
{
	texts_add(&wishes.traces, name, strlen(name));
	return true;
}

static bool take_root(const char *folder)
{
	if (tree_set_root(folder) && tree_has("sys"))
		return true;
	complain("--sysfs %s: must be a folder that contains sys", folder);
	return false;
}

static const struct setting settings[] = {
	{"bar", .flag = &wishes.bar},
	{"trace", .take = take_trace},
	{"sysfs", .take = take_root},
	{"once", .flag = &wishes.once},
	{"json", .flag = &wishes.json},
	{"openmetrics", .flag = &wishes.openmetrics},
	{"sort", .take = take_sort},
	{"interval", .take = screen_take_interval},
	{.name = NULL},
};

static int show(void)
{
	struct shown shown = {.all.count = 0};
	int status;

	if (wishes.bar && !bar_open(&shown.bar, &wishes.traces))
		return STATUS_FOUND;
	if (wishes.once || wishes.json || wishes.openmetrics || !screen_begin())
		status = once(&shown, &wishes);
	else
		status = follow(&shown, &wishes);
	processes_free(&shown.all);
	bar_close(&shown.bar);
	return status;
}

static int run(int argc, char **argv)
{
	uint32_t pids[256];
	int status;

	if (wishes.openmetrics && (wishes.json || wishes.bar)) {
		complain("%s and --openmetrics exclude each other",
			 wishes.json ? "--json" : "--bar");
		return STATUS_USAGE;
	}
	if (!wishes.bar && (wishes.traces.count || !tree_is_live())) {
		complain("--trace and --sysfs need --bar");
		return STATUS_USAGE;
	}
	wishes.pid_count = (unsigned)argc;
	if (wishes.pid_count > sizeof(pids) / sizeof(pids[0])) {
		complain("at most %zu processes can be given", sizeof(pids) / sizeof(pids[0]));
		return STATUS_USAGE;
	}
	if (!processes_parse(argv, pids, wishes.pid_count))
		return STATUS_USAGE;
	wishes.pids = pids;
	status = show();
	texts_free(&wishes.traces);
	return status;
}

const struct command command_top = {"top",
				    "show running processes, their pinned memory, and BAR1",
				    help,
				    settings,
				    ARGUMENTS_PROCESSES,
				    .run = run};
