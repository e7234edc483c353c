// SPDX-License-Identifier: MIT
/* Prints the program's allocations: over time, by call site, and those that were never freed. */
#include <string.h>

#include "tools/base/memory.h"
#include "tools/report/report.h"
#include "tools/trace/symbols.h"
#include "tools/ui/plot.h"

enum { PLOT_ROWS = 8 };

static void print_over_time(const struct tally *tally)
{
	const struct allocations *all = &tally->allocations;

	report_heading("Allocated bytes over time");
	out_print("  at the peak %s", bytes_text(all->peak).text);
	out_print(" (at %s), ", duration_text(all->peak_at).text);
	out_print("%s in ", bytes_text(all->total).text);
	out_print("%s allocations, ", count_text(all->count).text);
	out_print("%s unfreed\n", bytes_text(tally->answers.all[ANSWER_UNFREED].bytes).text);
	plot_bytes(tally->allocated.max, tally->columns, PLOT_ROWS, tally->span);
}

static void print_site(const struct site_memory *site)
{
	char *at = out_reserve();

	at = put_right(put_text(at, " "), bytes_text(site->at_peak).text, 9);
	at = put_right(at, bytes_text(site->unfreed).text, 10);
	at = put_right(at, bytes_text(site->total).text, 10);
	at = put_right(at, count_text(site->count).text, 10);
	at = put_text(at, "  ");
	if (site->caller)
		at = put_text(at, site->caller);
	else
		at = put_text(at, strlen(site->call) < 200 ? site->call : "(name too long)");
	*at++ = '\n';
	out_commit(at);
}

static void print_sites(const struct allocations *all, const struct report_wishes *wishes)
{
	unsigned shown = all->site_count;

	if (!wishes->all && shown > SHORT_LIST)
		shown = SHORT_LIST;
	report_heading("Allocated bytes by call site");
	out_print("  %s at peak   unfreed     total     count  allocated by%s\n", out_dim(),
		  out_plain());
	for (unsigned i = 0; i < shown; i++)
		print_site(&all->sites[i]);
	if (shown < all->site_count)
		out_print("  and %u more (--all shows them)\n", all->site_count - shown);
}

void report_memory(const struct tally *tally, const struct report_wishes *wishes)
{
	if (!tally->allocations.count)
		return;
	print_over_time(tally);
	print_sites(&tally->allocations, wishes);
}

/* ---- never freed ---------------------------------------------------------------------------- */

static void print_unfreed(const struct reader *reader, const struct stack_memory *stack)
{
	const struct trace_file *file = reader_file(reader, stack->file);
	const char *call = trace_file_call(file, stack->call);
	char *at = out_reserve();

	at = put_right(put_text(at, " "), bytes_text(stack->unfreed).text, 9);
	at = put_right(at, count_text(stack->unfreed_count).text, 10);
	at = put_decimal_right(at, reader_rank_or_pid(reader, file), 9);
	at = put_text(put_text(at, "  "), call && strlen(call) < 200 ? call : "(unknown)");
	*at++ = '\n';
	out_commit(at);
	report_who(file, "allocated by", stack->stack, false);
}

void report_unfreed(const struct reader *reader, const struct tally *tally,
		    const struct report_wishes *wishes)
{
	const struct allocations *all = &tally->allocations;
	unsigned count, shown;
	const struct stack_memory **sorted = allocations_unfreed(all, &count);

	shown = count;
	if (!wishes->all && shown > SHORT_LIST)
		shown = SHORT_LIST;
	if (count) {
		report_heading("Unfreed at the end: memory that no call freed");
		out_print("  %s   size     count     %s  call%s\n", out_dim(),
			  reader_shows_ranks(reader) ? "rank" : " pid", out_plain());
	}
	for (unsigned i = 0; i < shown; i++)
		print_unfreed(reader, sorted[i]);
	if (shown < count)
		out_print("  and %u more (--all shows them)\n", count - shown);
	if (all->unfreed.with_context)
		out_print("  %s of these allocations ended with the last context of their "
			  "process\n",
			  count_text(all->unfreed.with_context).text);
	release(sorted);
}
