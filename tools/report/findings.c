// SPDX-License-Identifier: MIT
/* pindown report: prints the answers and the regions behind them. */
#include <stdio.h>
#include <string.h>

#include "tools/report/report.h"
#include "tools/trace/symbols.h"

void report_heading(const char *text)
{
	out_print("\n%s%s%s\n", out_bold(), text, out_plain());
}

/* ---- a line each ---------------------------------------------------------------------------- */

static void print_line(const char *what, enum gravity gravity, const char *text)
{
	char *at = out_reserve();

	at = put_left(put_text(at, "  "), what, 26);
	if (gravity != FACT)
		at = put_text(at, gravity == WRONG ? out_red() : out_yellow());
	at = put_text(at, text);
	at = put_text(at, gravity != FACT ? out_plain() : "");
	*at++ = '\n';
	out_commit(at);
}

static void print_answer(const struct tally *tally, enum answer answer)
{
	const struct answer_words *words = &answer_words[answer];
	const char *none = report_none(tally, words->events);
	uint64_t count = tally->answers.all[answer].count;
	char text[400];

	if (count) {
		snprintf(text, sizeof(text), "%s%s", count_text(count).text,
			 answer_more(tally, answer));
		print_line(words->what, words->gravity, text);
	} else if (none) {
		print_line(words->what, NOTE, none);
	} else {
		snprintf(text, sizeof(text), "%snone%s", out_green(), out_plain());
		print_line(words->what, FACT, text);
	}
}

static void print_costs(const struct tally *tally)
{
	uint64_t hits = tally->counters.hits, gets = hits + tally->counters.misses;
	const struct pin_tally *all = &tally->all;
	char text[PLACE_TEXT_SIZE + 200];

	if (gets) {
		snprintf(text, sizeof(text), "%.2f %% of %s gets",
			 100.0 * (double)hits / (double)gets, count_text(gets).text);
		print_line("Hit ratio", FACT, text);
	}
	if (all->pins + all->failed) {
		snprintf(text, sizeof(text), "%s in %s pins", duration_text(all->ns).text,
			 count_text(all->pins + all->failed).text);
		print_line("Time in pins", FACT, text);
	}
	if (all->evictions) {
		snprintf(text, sizeof(text), "%s: regions unpinned to make space for others",
			 count_text(all->evictions).text);
		print_line("Evictions", NOTE, text);
	}
	if (tally->sites.count) {
		const struct site *site = &tally->sites.list[0];

		const char *many = site->count == 1 ? "" : "s";

		if (strcmp(site->what, "pin") == 0)
			snprintf(text, sizeof(text), "%s: %s in %s pin%s", site->caller,
				 duration_text(site->ns).text, count_text(site->count).text, many);
		else
			snprintf(text, sizeof(text), "%s: %s in %s call%s of %s", site->caller,
				 duration_text(site->ns).text, count_text(site->count).text, many,
				 site->what);
		print_line("Hottest call site", FACT, text);
	}
}

const char report_definitions[] =
	"Stale: a region of the cache was in use, by pindown_get or a registration, when "
	"its memory was freed. Held: of these, registrations (an ibv_mr) that the program "
	"had not dropped; PINDOWN_HELD decides about them. Cured: not dropped either, but it "
	"ended with the free, and nobody got its address while the program held it. A region "
	"that pindown_get holds stays pinned until pindown_put in any case.";

/* They are easily confused, so they are told apart where one of them occurs. */
bool report_defines(const struct tally *tally)
{
	const struct amount *all = tally->answers.all;

	return all[ANSWER_STALE].count || all[ANSWER_HELD].count || all[ANSWER_ORDERED].count ||
	       all[ANSWER_CURED].count;
}

static void print_definitions(void)
{
	enum { COLUMNS = 78 };
	const char *at = report_definitions;

	out_print("\n");
	while (*at) {
		size_t length = strlen(at);

		if (length > COLUMNS)
			for (length = COLUMNS; at[length] != ' ';)
				length--;
		out_print("  %s%.*s%s\n", out_dim(), (int)length, at, out_plain());
		at += length + (at[length] == ' ');
	}
}

void report_answers(const struct tally *tally)
{
	report_heading("Answers");
	for (unsigned i = 0; i < ANSWERS; i++)
		if (answer_is_shown(tally->answers.all, i))
			print_answer(tally, i);
	print_costs(tally);
	if (report_defines(tally))
		print_definitions();
}

/* ---- lists of regions ----------------------------------------------------------------------- */

void report_who(const struct trace_file *file, const char *what, uint32_t stack, bool as_above)
{
	enum { MAX_CHAIN = 8 };
	struct place places[MAX_CHAIN];
	unsigned count = stack ? symbols_chain(file, stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE];

	if (count && as_above) {
		out_print("      %s%-11s  as above%s\n", out_dim(), what, out_plain());
		return;
	}
	for (unsigned i = 0; i < count; i++)
		out_print("      %s%-11s%s  %s\n", out_dim(), i ? "" : what, out_plain(),
			  place_text(&places[i], text));
}

/* `above`: the finding of the row before, or NULL. */
static void print_finding(const struct reader *reader, const struct finding *finding,
			  const struct finding *above, bool freed)
{
	const struct region *region = &finding->region;
	const struct region *other =
		above && above->region.file == region->file ? &above->region : NULL;
	const struct trace_file *file = reader_file(reader, region->file);
	char *at = out_reserve();
	char number[24];

	*put_hex(number, region->addr) = '\0';
	at = put_left(put_text(at, "  "), number, 15);
	at = put_right(at, bytes_text(region->size).text, 9);
	at = put_decimal_right(at, region->number, 8);
	if (region->device >= 0)
		at = put_decimal_right(at, (uint64_t)region->device, 7);
	else
		at = put_right(at, "-", 7);
	at = put_right(at, duration_text(region->pinned_at).text, 10);
	at = put_right(at, region->freed ? duration_text(region->freed_at).text : "-", 10);
	if (freed)
		at = put_right(at,
			       finding->until == UINT64_MAX ? "never"
							    : duration_text(finding->until).text,
			       10);
	if (reader_files(reader) > 1)
		at = put_decimal_right(at, reader_rank_or_pid(reader, file), 8);
	*at++ = '\n';
	out_commit(at);
	report_who(file, "pinned by", region->pin_stack,
		   other && other->pin_stack == region->pin_stack);
	report_who(file, "freed by", region->freed_stack,
		   other && other->freed_stack == region->freed_stack);
	if (freed)
		report_who(file, "unpinned by", region->unpin_stack,
			   other && other->unpin_stack == region->unpin_stack);
}

static void print_findings(const struct reader *reader, const struct findings *findings,
			   uint64_t count, const char *heading, bool freed,
			   const struct report_wishes *wishes)
{
	unsigned shown = findings->count;

	if (!shown)
		return;
	if (!wishes->all && shown > SHORT_LIST)
		shown = SHORT_LIST;
	report_heading(heading);
	out_print("  %saddress             size  region device pinned at  freed at%s%s%s\n",
		  out_dim(), freed ? "  unpinned" : "", reader_process_title(reader), out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_finding(reader, &findings->list[i], i ? &findings->list[i - 1] : NULL, freed);
	if (shown < count)
		out_print("  and %s more%s\n", count_text(count - shown).text,
			  wishes->all ? "" : " (--all shows them)");
}

void report_regions(const struct reader *reader, const struct tally *tally,
		    const struct report_wishes *wishes)
{
	const struct amount *all = tally->answers.all;

	print_findings(reader, &tally->freed, all[ANSWER_STALE].count,
		       "Stale registrations: memory that was freed while in use", true, wishes);
	print_findings(reader, &tally->ordered, all[ANSWER_ORDERED].count,
		       "Freed in stream order while in use", true, wishes);
	print_findings(reader, &tally->missed, all[ANSWER_MISSED].count, "Missed invalidations",
		       true, wishes);
	print_findings(reader, &tally->left, all[ANSWER_LEFT].count, "Still pinned at the end",
		       false, wishes);
}

/* ---- call sites ----------------------------------------------------------------------------- */

static void print_site(const struct site *site)
{
	char *at = out_reserve();

	at = put_right(put_text(at, " "), duration_text(site->ns).text, 8);
	at = put_right(at, count_text(site->count).text, 10);
	at = put_right(at, duration_text(site->ns / site->count).text, 8);
	at = put_text(at, "  ");
	at = put_left(at, strlen(site->what) < 200 ? site->what : "(name too long)", 22);
	at = put_text(put_text(at, " "), site->caller);
	*at++ = '\n';
	out_commit(at);
}

static bool has_stacks(const struct reader *reader)
{
	for (unsigned i = 0; i < reader_files(reader); i++)
		if (reader_file(reader, i)->stack_count)
			return true;
	return false;
}

void report_sites(const struct reader *reader, const struct tally *tally,
		  const struct report_wishes *wishes)
{
	unsigned count = tally->sites.count, shown = count;

	if (!count && has_stacks(reader))
		return;
	report_heading("Call sites");
	if (!count) {
		out_print(
			"  not recorded: the trace has no call stacks, which pindown run --trace\n"
			"  records, and PINDOWN_TRACE_STACKS=16 with a plain LD_PRELOAD\n");
		return;
	}
	if (!wishes->all && shown > SHORT_LIST)
		shown = SHORT_LIST;
	out_print("  %s  total     count    mean  call                   called by%s\n", out_dim(),
		  out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_site(&tally->sites.list[i]);
	if (shown < count)
		out_print("  and %u more (--all shows them)\n", count - shown);
}
