// SPDX-License-Identifier: MIT
/* Prints the program's allocations: over time, by call site, and those that were never freed. */
#include <string.h>

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
	out_print("%s unfreed at the end\n", bytes_text(all->unfreed.bytes).text);
	plot_bytes(tally->allocated.max[SERIES_ALLOCATED], tally->columns, PLOT_ROWS, tally->span);
}

static void print_site(const struct site_memory *site)
{
	char *at = out_reserve();

	at = put_right(put_text(at, "  "), bytes_text(site->at_peak).text, 9);
	at = put_right(at, bytes_text(site->unfreed).text, 11);
	at = put_right(at, count_text(site->unfreed_count).text, 9);
	at = put_right(at, bytes_text(site->total).text, 11);
	at = put_right(at, count_text(site->count).text, 9);
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
	out_print("  %s  at peak    unfreed    count      total    count  allocated by%s\n",
		  out_dim(), out_plain());
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
