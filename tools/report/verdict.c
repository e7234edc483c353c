// SPDX-License-Identifier: MIT
/* pindown report --check: decides, and says which trace is at fault. */
#include "tools/report/verdict.h"

#include <stdio.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/status.h"
#include "tools/base/texts.h"
#include "tools/report/tally.h"
#include "tools/trace/rank.h"

enum { MAX_NAMED = 5 };

/* Format 1.0 has none of the later events. Before 1.2 no address was retired. */
uint64_t recorded_events(const struct trace_file *file)
{
	uint64_t mask = file->header.event_mask;

	if (!file->header.minor)
		mask &= EVENT_BIT(REGISTER) - 1;
	return file->header.minor < 2 ? mask | EVENT_BIT(RETIRE) : mask;
}

bool is_incomplete(const struct trace_file *file)
{
	return file->cut || file->damaged || file->counters.lost;
}

/* ---- one trace ------------------------------------------------------------------------------ */

static char *found_in(const struct amount *amounts)
{
	char *list = NULL;

	for (unsigned i = 0; i < ANSWERS; i++) {
		const char *const *fault = answer_words[i].fault;
		uint64_t count = amounts[i].count;
		char *text;

		if (!fault[0] || !count)
			continue;
		text = text_of("%s %s", count_text(count).text, fault[count != 1]);
		list = text_listed(list, text);
		release(text);
	}
	return list;
}

/* The events without which --check cannot tell. */
static char *not_recorded(const struct trace_file *file)
{
	uint64_t needed = 0, mask = recorded_events(file);
	char *list = NULL;

	for (unsigned i = 0; i < ANSWERS; i++)
		needed |= answer_words[i].fault[0] ? answer_words[i].events : 0;
	for (unsigned event = 0; event < PDN_EVENTS; event++)
		if (needed & ~mask & 1ull << event)
			list = text_listed(list, pdn_event_names[event]);
	return list;
}

static char *unknown_in(const struct trace_file *file)
{
	char *events = not_recorded(file), *list = NULL, *text;

	if (file->cut)
		list = text_listed(list, "cut short");
	if (file->damaged)
		list = text_listed(list, "damaged");
	if (file->counters.lost) {
		text = text_of("%s lost events", count_text(file->counters.lost).text);
		list = text_listed(list, text);
		release(text);
	}
	if (events) {
		text = text_of("not recorded: %s", events);
		list = text_listed(list, text);
		release(text);
	}
	release(events);
	return list;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* Appends "NAME: text" to a list of at most MAX_NAMED files; `text` is released. */
static void name_file(char **list, unsigned *count, const char *name, const char *rank, char *text)
{
	char *longer;

	if (!text)
		return;
	if (++*count <= MAX_NAMED) {
		longer = text_of("%s%s%s%s: %s", *list ? *list : "", *list ? "; " : "", name, rank,
				 text);
		release(*list);
		*list = longer;
	}
	release(text);
}

void verdict_unread(struct verdict *verdict, const char *name)
{
	name_file(&verdict->unknown, &verdict->unknown_count, name, "",
		  text_of("could not be read"));
}

void verdict_add(struct verdict *verdict, const struct reader *reader, const struct tally *tally)
{
	const struct texts *unread = reader_unread(reader);

	for (unsigned i = 0; i < reader_files(reader); i++) {
		const struct trace_file *file = reader_file(reader, i);
		struct out_text rank = trace_rank_text(file);

		verdict->files++;
		verdict->unended += !file->header.end.ticks;
		name_file(&verdict->found, &verdict->found_count, file->name, rank.text,
			  found_in(tally->answers.of_file[i]));
		name_file(&verdict->unknown, &verdict->unknown_count, file->name, rank.text,
			  unknown_in(file));
	}
	for (unsigned i = 0; i < unread->count; i++)
		verdict_unread(verdict, unread->list[i]);
}

static char *put_list(char *text, const char *what, const char *list, unsigned count)
{
	char *longer = text_of("%s%s%s: %s", text ? text : "", text ? "; " : "check: ", what, list);

	release(text);
	if (count <= MAX_NAMED)
		return longer;
	text = text_of("%s; and %u more", longer, count - MAX_NAMED);
	release(longer);
	return text;
}

/* A process that was killed or called _exit, or still runs, has a trace up to that moment. */
static char *nothing_found(const struct verdict *verdict)
{
	const char *plural = verdict->files == 1 ? "" : "s";

	if (!verdict->unended)
		return text_of("check: nothing found in %u trace%s", verdict->files, plural);
	return text_of("check: nothing found in %u trace%s; %u without an end mark", verdict->files,
		       plural, verdict->unended);
}

int verdict_end(struct verdict *verdict, char **text)
{
	bool found = verdict->found_count, unknown = verdict->unknown_count;

	*text = NULL;
	if (found)
		*text = put_list(*text, "found", verdict->found, verdict->found_count);
	if (unknown)
		*text = put_list(*text, found ? "incomplete" : "cannot tell", verdict->unknown,
				 verdict->unknown_count);
	if (!*text)
		*text = nothing_found(verdict);
	release(verdict->found);
	release(verdict->unknown);
	return found ? STATUS_FOUND : unknown ? STATUS_UNKNOWN : STATUS_OK;
}
