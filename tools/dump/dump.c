// SPDX-License-Identifier: MIT
/* pindown dump: prints a trace, event by event. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/dump/filter.h"
#include "tools/dump/format.h"
#include "tools/base/out.h"
#include "tools/ui/pager.h"
#include "tools/trace/reader.h"
#include "tools/trace/symbols.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown dump [options] TRACE...\n"
	"\n"
	"Prints a trace, one event a line, in the order in which the events began. TRACE\n"
	"is a file, or the name given to PINDOWN_TRACE: app.pdt stands for all\n"
	"app.<pid>.pdt of the newest run, whose events are then merged by time.\n"
	"\n"
	"Select events (an event must meet all conditions given):\n"
	"  --call GLOB      calls whose name matches GLOB, such as 'cuMem*Async*'\n"
	"  --addr RANGE     events that touch ADDRESS, ADDRESS+LENGTH or FIRST-END\n"
	"  --thread NUMBER  events of one thread\n"
	"  --pid NUMBER     events of one process\n"
	"  --time FROM-TO   events that began in this span, in seconds after the trace's\n"
	"                   start, or with ns, us or ms behind each number\n"
	"  --event LIST     events of these kinds, with commas between: call, pin,\n"
	"                   unpin, hit, evict, invalidate, map, error, register,\n"
	"                   deregister, held, export, outlived, holder, retire, lost\n"
	"  --failed         failed calls and pins, errors, lost events, and what --stale\n"
	"                   selects\n"
	"  --stale          registrations whose memory was freed while they were in use,\n"
	"                   missed invalidations, dma-bufs that outlived their memory,\n"
	"                   addresses that were not kept from reuse\n"
	"\n"
	"Output:\n"
	"  --json           one JSON object a line; times in ns\n"
	"  --chrome         one JSON document, for Perfetto and chrome://tracing\n"
	"  --follow         continue with new events of a running process until it ends\n"
	"  --stacks         print call stacks, where the trace has them\n"
	"                   (PINDOWN_TRACE_STACKS)\n"
	"  --symbols DIR    look in DIR too for the programs and libraries of call\n"
	"                   stacks and for their debug files, by name or by build id\n"
	"  --no-pager       don't use $PAGER or less, even on a terminal\n"
	"  --color WHEN     auto, always or never\n"
	"  --help           print this text\n"
	"\n"
	"Exit status: 0; 1 when a file could not be read completely; 2 for bad options.\n";

static struct filter filter = {.to_time = UINT64_MAX};
static const struct format *format;
static bool wants_json, wants_chrome, follows, no_pager;

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void print_events(struct reader *reader)
{
	struct event event;

	while (reader_next(reader, &event))
		if (filter_wants(&filter, &event))
			format->event(&event);
	out_flush();
}

/*
 * Finds new events by reading the files again. This takes at most a tenth of the time, and happens
 * at most five times a second.
 */
static struct reader *follow(struct reader *reader, char *const *names, unsigned count)
{
	struct timespec pause;
	uint64_t took = 0;
	bool more;

	do {
		uint64_t wait = took * 9 > 200000000 ? took * 9 : 200000000, begin;

		/* Ask before reading, so that the last events are not missed. */
		more = reader_grows(reader);
		pause = (struct timespec){(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
		nanosleep(&pause, NULL);
		begin = now();
		symbols_free(); /* they belong to the open files */
		reader = reader_again(reader, names, count);
		print_events(reader);
		took = now() - begin;
	} while (more);
	return reader;
}

/*
 * ---- the command -------------------------------------------------------------------------------
 */

static bool take_addr(const char *range)
{
	return filter_addr(&filter, range);
}

static bool take_thread(const char *number)
{
	return filter_thread(&filter, number);
}

static bool take_process(const char *number)
{
	return filter_process(&filter, number);
}

static bool take_time(const char *span)
{
	return filter_time(&filter, span);
}

static bool take_events(const char *list)
{
	return filter_events(&filter, list);
}

static const struct setting settings[] = {
	{"call", .text = &filter.call},
	{"addr", .take = take_addr},
	{"thread", .take = take_thread},
	{"pid", .take = take_process},
	{"time", .take = take_time},
	{"event", .take = take_events},
	{"failed", .flag = &filter.failed},
	{"stale", .flag = &filter.stale},
	{"json", .flag = &wants_json},
	{"chrome", .flag = &wants_chrome},
	{"follow", .flag = &follows},
	{"no-pager", .flag = &no_pager},
	{"stacks", .flag = &format_stacks},
	{"symbols", .take = symbols_folder},
	{.name = NULL},
};

static int run(int argc, char **argv)
{
	struct reader *reader;
	int status;

	if (wants_chrome && (follows || wants_json)) {
		complain("--chrome prints one document: it can't be given with --%s",
			 follows ? "follow" : "json");
		return STATUS_USAGE;
	}
	format = wants_chrome ? &format_chrome : wants_json ? &format_json : &format_text;
	pager_begin(!no_pager && !follows && format == &format_text);
	reader = reader_open(argv, (unsigned)argc);
	if (!reader)
		return STATUS_DAMAGED;
	format->begin(reader);
	print_events(reader);
	if (follows)
		reader = follow(reader, argv, (unsigned)argc);
	format->end(reader);
	out_flush();
	status = reader_damaged(reader) ? STATUS_DAMAGED : STATUS_OK;
	symbols_free();
	reader_close(reader);
	return status;
}

const struct command command_dump = {
	"dump", "print a trace, one event a line", help, settings, ARGUMENTS_TRACES, .run = run};
