// SPDX-License-Identifier: MIT
/* pindown dump: what happened, call by call. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "filter.h"
#include "format.h"
#include "out.h"
#include "pager.h"
#include "reader.h"
#include "symbols.h"
#include "verb.h"

static const char help[] =
	"usage: pindown dump [options] TRACE...\n"
	"\n"
	"Prints a trace, one event a line, in the order in which the events began. TRACE is a\n"
	"file, or the name given to PINDOWN_TRACE: app.pdt stands for all app.<pid>.pdt, whose\n"
	"events are then merged by time.\n"
	"\n"
	"Which events (all of the conditions given must hold):\n"
	"  --call GLOB      calls with such a name, as in 'cuMem*Async*'\n"
	"  --addr RANGE     touching ADDRESS, ADDRESS+LENGTH or FIRST-END\n"
	"  --thread NUMBER  of one thread\n"
	"  --time FROM-TO   begun then, after the trace's start: seconds, or with ns, us, ms\n"
	"  --event LIST     of these kinds: call, pin, unpin, hit, evict, invalidate, map,\n"
	"                   error, register, deregister, held, export, outlived, lost\n"
	"  --failed         what did not work: failed calls and pins, errors, lost events,\n"
	"                   missed invalidations, outlived memory\n"
	"\n"
	"How:\n"
	"  --json           one JSON object a line; times in ns\n"
	"  --chrome         one JSON document, for Perfetto and chrome://tracing\n"
	"  --follow         go on with what a running process adds, until it ends\n"
	"  --stacks         with call stacks, where the trace has them (PINDOWN_TRACE_STACKS)\n"
	"  --symbols DIR    where else to look for the files that the addresses are of, and\n"
	"                   their debug files, by name or by build id\n"
	"  --no-pager       on a terminal too, don't show it through $PAGER or less\n"
	"  --color WHEN     auto, always or never\n"
	"  --help           this text\n"
	"\n"
	"Exit status: 0, 1 when a file could not be read wholly, 2 for bad options.\n";

enum option_number {
	CALL = 1,
	ADDR,
	THREAD,
	TIME,
	EVENT,
	FAILED,
	JSON,
	CHROME,
	FOLLOW,
	NO_PAGER,
	STACKS,
	SYMBOLS,
	COLOUR,
	HELP
};

static const struct option options[] = {
	{"call", required_argument, NULL, CALL},     {"addr", required_argument, NULL, ADDR},
	{"thread", required_argument, NULL, THREAD}, {"time", required_argument, NULL, TIME},
	{"event", required_argument, NULL, EVENT},   {"failed", no_argument, NULL, FAILED},
	{"json", no_argument, NULL, JSON},	     {"chrome", no_argument, NULL, CHROME},
	{"follow", no_argument, NULL, FOLLOW},	     {"no-pager", no_argument, NULL, NO_PAGER},
	{"stacks", no_argument, NULL, STACKS},	     {"symbols", required_argument, NULL, SYMBOLS},
	{"color", required_argument, NULL, COLOUR},  {"colour", required_argument, NULL, COLOUR},
	{"help", no_argument, NULL, HELP},	     {NULL, 0, NULL, 0},
};

struct wishes {
	struct filter filter;
	const struct format *format;
	enum out_colour colour;
	bool help, follow, no_pager;
};

static bool parse_option(int number, struct wishes *wishes)
{
	switch (number) {
	case CALL:
		wishes->filter.call = optarg;
		return true;
	case ADDR:
		return filter_addr(&wishes->filter, optarg);
	case THREAD:
		return filter_thread(&wishes->filter, optarg);
	case TIME:
		return filter_time(&wishes->filter, optarg);
	case EVENT:
		return filter_events(&wishes->filter, optarg);
	case FAILED:
		wishes->filter.failed = true;
		return true;
	case JSON:
		wishes->format = &format_json;
		return true;
	case CHROME:
		wishes->format = &format_chrome;
		return true;
	case FOLLOW:
		wishes->follow = true;
		return true;
	case NO_PAGER:
		wishes->no_pager = true;
		return true;
	case STACKS:
		format_stacks = true;
		return true;
	case SYMBOLS:
		return symbols_folder(optarg);
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

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void print_events(struct reader *reader, const struct wishes *wishes)
{
	struct event event;

	while (reader_next(reader, &event))
		if (filter_wants(&wishes->filter, &event))
			wishes->format->event(&event);
	out_flush();
}

/*
 * What is new is found by looking through the files again: not more often than a tenth of the time
 * goes there, and not more than five times a second.
 */
static struct reader *follow(struct reader *reader, char *const *names, unsigned count,
			     const struct wishes *wishes)
{
	struct timespec pause;
	uint64_t took = 0;
	bool more;

	do {
		uint64_t wait = took * 9 > 200000000 ? took * 9 : 200000000, begin;

		/* Asked before the last look, so that nothing is missed. */
		more = reader_grows(reader);
		pause = (struct timespec){(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
		nanosleep(&pause, NULL);
		begin = now();
		symbols_free(); /* they are of the files as they were opened */
		reader = reader_again(reader, names, count);
		print_events(reader, wishes);
		took = now() - begin;
	} while (more);
	return reader;
}

static int run(int argc, char **argv)
{
	struct wishes wishes = {.filter = {.to_time = UINT64_MAX}, .format = &format_text};
	char name[] = "pindown dump";
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
		complain("dump needs the name of a trace; pindown dump --help says more");
		return STATUS_USAGE;
	}
	if (wishes.follow && wishes.format == &format_chrome) {
		complain("--chrome makes one document: it can't be given with --follow");
		return STATUS_USAGE;
	}
	out_begin(wishes.colour, false);
	pager_begin(!wishes.no_pager && !wishes.follow && wishes.format == &format_text);
	reader = reader_open(argv + optind, (unsigned)(argc - optind));
	if (!reader)
		return STATUS_DAMAGED;
	wishes.format->begin(reader);
	print_events(reader, &wishes);
	if (wishes.follow)
		reader = follow(reader, argv + optind, (unsigned)(argc - optind), &wishes);
	wishes.format->end(reader);
	out_flush();
	status = reader_damaged(reader) ? STATUS_DAMAGED : STATUS_OK;
	symbols_free();
	reader_close(reader);
	return status;
}

const struct verb verb_dump = {"dump", "show a trace, one event a line", run, options,
			       ARGUMENTS_TRACES};
