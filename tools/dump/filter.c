// SPDX-License-Identifier: MIT
/* Parses the conditions on events, and applies them. */
#define _GNU_SOURCE
#include "tools/dump/filter.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cache/pindown.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"

static bool parse_number(const char **text, uint64_t *value)
{
	char *end;

	if (!isdigit((unsigned char)**text))
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 0);
	*text = end;
	return errno == 0;
}

/* A, A+LENGTH or A-B (B not included). */
bool filter_addr(struct filter *filter, const char *text)
{
	const char *at = text;
	uint64_t second;
	char sign;

	if (!parse_number(&at, &filter->from_addr))
		goto bad;
	sign = *at;
	if (sign == '\0') {
		filter->to_addr = filter->from_addr + 1;
		return true;
	}
	at++;
	if ((sign != '+' && sign != '-') || !parse_number(&at, &second) || *at)
		goto bad;
	if (sign == '+' && __builtin_add_overflow(filter->from_addr, second, &second))
		goto bad;
	filter->to_addr = second;
	if (second > filter->from_addr)
		return true;
bad:
	complain("--addr %s: must be ADDRESS, ADDRESS+LENGTH or FIRST-END, as in "
		 "0x7f0000000000+4096",
		 text);
	return false;
}

/* The number of a thread or of a process; 0 when it is none. */
static uint32_t parse_id(const char *text)
{
	const char *at = text;
	uint64_t value;

	return parse_number(&at, &value) && !*at && value <= UINT32_MAX ? (uint32_t)value : 0;
}

bool filter_thread(struct filter *filter, const char *text)
{
	filter->thread = parse_id(text);
	if (!filter->thread)
		complain("--thread %s: must be a thread number", text);
	return filter->thread != 0;
}

bool filter_process(struct filter *filter, const char *text)
{
	filter->process = parse_id(text);
	if (!filter->process)
		complain("--pid %s: must be a process number", text);
	return filter->process != 0;
}

/* Converts "1.5", "1.5s", "20ms", "20us" or "20ns" to ns, exactly: without floating point. */
static bool parse_time(const char **text, uint64_t *ns)
{
	static const struct {
		const char *name;
		uint64_t unit;
	} units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}, {"", 1000000000}};
	uint64_t whole = 0, fraction = 0, scale = 1;
	const char *at = *text;

	if (!isdigit((unsigned char)*at) && *at != '.')
		return false;
	for (; isdigit((unsigned char)*at); at++)
		if (__builtin_mul_overflow(whole, 10u, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole))
			return false;
	if (*at == '.') {
		for (at++; isdigit((unsigned char)*at); at++) {
			if (scale < 1000000000) {
				fraction = fraction * 10 + (uint64_t)(*at - '0');
				scale *= 10;
			}
		}
	}
	for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		size_t length = strlen(units[i].name);

		if (strncmp(at, units[i].name, length) != 0)
			continue;
		*text = at + length;
		if (__builtin_mul_overflow(whole, units[i].unit, ns))
			return false;
		*ns += fraction * units[i].unit / scale;
		return true;
	}
	return false;
}

/* FROM-TO; one of the two may be missing. */
bool filter_time(struct filter *filter, const char *text)
{
	const char *at = text;

	filter->from_time = 0;
	filter->to_time = UINT64_MAX;
	if (*at != '-' && !parse_time(&at, &filter->from_time))
		goto bad;
	if (*at++ != '-' || (*at && !parse_time(&at, &filter->to_time)) || *at || at == text + 1 ||
	    filter->to_time < filter->from_time)
		goto bad;
	return true;
bad:
	complain("--time %s: must be FROM-TO, each in seconds or with ns, us or ms, as in 1.5-1.7 "
		 "or 20ms-",
		 text);
	return false;
}

bool filter_events(struct filter *filter, const char *text)
{
	char *names = NULL;

	for (const char *at = text;; at++) {
		size_t length = strcspn(at, ",");
		unsigned event = 0;

		while (event < PDN_EVENTS && !(strlen(pdn_event_names[event]) == length &&
					       strncmp(at, pdn_event_names[event], length) == 0))
			event++;
		if (event == PDN_EVENTS)
			break;
		filter->events |= 1u << event;
		at += length;
		if (!*at)
			return true;
	}
	for (unsigned event = 0; event < PDN_EVENTS; event++)
		names = text_listed(names, pdn_event_names[event]);
	complain("--event %s: must be names separated by commas: %s", text, names);
	release(names);
	return false;
}

/* In stream order, a program may use memory up to the moment at which the free takes effect. */
bool event_stale(const struct event *event)
{
	const struct record *record = &event->record;
	bool ended = record->reason == PINDOWN_REASON_FREED ||
		     record->reason == PINDOWN_REASON_CONTEXT ||
		     record->reason == PINDOWN_REASON_STALE;

	switch (record->event) {
	case PDN_EV_INVALIDATE:
	case PDN_EV_UNPIN:
		return (record->flags & PDN_TRACE_MISSED) ||
		       (ended && record->flags & PDN_TRACE_IN_USE);
	case PDN_EV_HELD:
	case PDN_EV_OUTLIVED:
		return record->reason != PINDOWN_REASON_ORDERED;
	case PDN_EV_HOLDER:
		return record->reason != PINDOWN_REASON_ORDERED &&
		       !(record->flags & PDN_TRACE_REVOKED);
	case PDN_EV_RETIRE:
		return record->extra == PDN_RETIRE_ESCAPED || record->extra == PDN_RETIRE_DROPPED;
	default:
		return false;
	}
}

bool event_failed(const struct event *event)
{
	return event->record.result != 0 || event->record.event == PDN_EV_ERROR ||
	       event->record.event == PDN_EV_LOST || event_stale(event);
}

bool event_was_made_capable(const struct event *event)
{
	const char *call = event->record.event == PDN_EV_CALL
				   ? trace_file_call(event->file, event->record.call)
				   : NULL;

	return event->record.extra & PDN_TRACE_MADE_CAPABLE && call && !strcmp(call, "cuMemCreate");
}

uint64_t event_extra(const struct event *event)
{
	uint64_t extra = event->record.extra;

	return event_was_made_capable(event) ? extra & ~PDN_TRACE_MADE_CAPABLE : extra;
}

const char *event_outcome(const struct record *record)
{
	switch (record->extra) {
	case PDN_RETIRE_RESERVED:
		return "reserved";
	case PDN_RETIRE_ESCAPED:
		return "escaped";
	case PDN_RETIRE_RELEASED:
		return "released";
	case PDN_RETIRE_GIVEN_BACK:
		return "given back";
	case PDN_RETIRE_DROPPED:
		return "dropped";
	}
	return NULL;
}

static bool overlaps(const struct filter *filter, uint64_t addr, uint64_t size)
{
	uint64_t end;

	if (__builtin_add_overflow(addr, size ? size : 1, &end))
		end = UINT64_MAX;
	return addr < filter->to_addr && filter->from_addr < end;
}

static bool wants_call(const struct filter *filter, const struct event *event)
{
	const char *name;

	if (event->record.event != PDN_EV_CALL)
		return false;
	name = trace_file_call(event->file, event->record.call);
	return name && fnmatch(filter->call, name, 0) == 0;
}

bool filter_wants(const struct filter *filter, const struct event *event)
{
	if (filter->events && !(filter->events & 1u << event->record.event))
		return false;
	if (event->ts < filter->from_time || event->ts > filter->to_time)
		return false;
	if (filter->thread && event->tid != filter->thread)
		return false;
	if (filter->process && event->file->header.pid != filter->process)
		return false;
	if (filter->failed && !event_failed(event))
		return false;
	if (filter->stale && !event_stale(event))
		return false;
	if (filter->to_addr && (!(event->record.fields & PDN_HAS_ADDR) ||
				!overlaps(filter, event->record.addr, event->record.size)))
		return false;
	return !filter->call || wants_call(filter, event);
}
