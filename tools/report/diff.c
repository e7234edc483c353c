// SPDX-License-Identifier: MIT
/* pindown report --diff: prints the changes from one run to another. */
#include <stdio.h>
#include <string.h>

#include "tools/report/report.h"

/* ---- figures -------------------------------------------------------------------------------- */

typedef struct out_text in_words(uint64_t value);

/* An increase is red and a decrease green if `is_bad`; otherwise the change has no colour. */
static void print_row(const char *what, uint64_t one, uint64_t other, in_words *words, bool is_bad)
{
	char change[64] = "";
	char *at = out_reserve();

	if (one == other)
		strcpy(change, "the same");
	else if (one)
		snprintf(change, sizeof(change), "%+.1f %%",
			 100.0 * ((double)other - (double)one) / (double)one);
	else
		strcpy(change, "new");
	at = put_left(put_text(at, "  "), what, 34);
	at = put_right(at, words(one).text, 13);
	at = put_right(at, words(other).text, 13);
	at = put_text(at, "  ");
	if (is_bad && one != other)
		at = put_text(at, other > one ? out_red() : out_green());
	at = put_right(at, change, 10);
	if (is_bad && one != other)
		at = put_text(at, out_plain());
	*at++ = '\n';
	out_commit(at);
}

static void print_head(const char *heading)
{
	report_heading(heading);
	out_print("  %s%34s%13s%13s  %10s%s\n", out_dim(), "", "before", "after", "change",
		  out_plain());
}

static void print_figures(const struct tally *one, const struct tally *other)
{
	const struct pin_tally *a = &one->all, *b = &other->all;

	print_head("Answers");
	for (unsigned i = 0; i < ANSWERS; i++)
		if (answer_is_shown(one->answers.all, i) || answer_is_shown(other->answers.all, i))
			print_row(answer_name(i), answer_figure(one->answers.all, i),
				  answer_figure(other->answers.all, i),
				  answer_words[i].is_size ? bytes_text : count_text,
				  answer_words[i].gravity != FACT);
	print_row("freed memory kept, maximum", one->kept_peak, other->kept_peak, bytes_text, true);
	print_row("allocated at the peak", one->allocations.peak, other->allocations.peak,
		  bytes_text, false);
	print_head("Registration cache");
	print_row("traced for", one->span, other->span, duration_text, false);
	print_row("hits", one->counters.hits, other->counters.hits, count_text, false);
	print_row("misses", one->counters.misses, other->counters.misses, count_text, true);
	print_row("pins", a->pins, b->pins, count_text, true);
	print_row("time in pins", a->ns, b->ns, duration_text, true);
	print_row("evictions", a->evictions, b->evictions, count_text, true);
	print_row("invalidations", a->invalidations, b->invalidations, count_text, false);
	print_row("pinned at the peak", a->peak_bytes, b->peak_bytes, bytes_text, false);
	print_row("regions at the peak", a->peak_regions, b->peak_regions, count_text, false);
}

/* ---- calls and call sites ------------------------------------------------------------------- */

static const struct call_tally *find_call(const struct tally *tally, const char *name)
{
	for (unsigned i = 0; i < tally->call_count; i++)
		if (strcmp(tally->calls[i].name, name) == 0)
			return &tally->calls[i];
	return NULL;
}

static void print_call(const char *name, const struct call_tally *one,
		       const struct call_tally *other)
{
	uint64_t before = one ? one->count : 0, after = other ? other->count : 0;

	if (before != after)
		print_row(strlen(name) < 100 ? name : "(name too long)", before, after, count_text,
			  false);
}

static void print_calls(const struct tally *one, const struct tally *other)
{
	print_head("Calls whose count changed");
	for (unsigned i = 0; i < one->call_count; i++)
		print_call(one->calls[i].name, &one->calls[i],
			   find_call(other, one->calls[i].name));
	for (unsigned i = 0; i < other->call_count; i++)
		if (!find_call(one, other->calls[i].name))
			print_call(other->calls[i].name, NULL, &other->calls[i]);
}

static const struct site *find_site(const struct sites *sites, const struct site *like)
{
	for (unsigned i = 0; i < sites->count; i++)
		if (strcmp(sites->list[i].caller, like->caller) == 0 &&
		    strcmp(sites->list[i].what, like->what) == 0)
			return &sites->list[i];
	return NULL;
}

static void print_site(const struct site *one, const struct site *other)
{
	const struct site *any = one ? one : other;
	char name[400];

	snprintf(name, sizeof(name), "%.60s < %.300s", any->what, any->caller);
	out_print("  %s\n", name);
	print_row("", one ? one->count : 0, other ? other->count : 0, count_text, false);
}

static void print_sites(const struct tally *one, const struct tally *other)
{
	enum { MAX_SITES = 50 };
	unsigned shown = 0;

	if (!one->sites.count || !other->sites.count)
		return;
	print_head("Call sites whose count changed");
	for (unsigned i = 0; i < one->sites.count && shown < MAX_SITES; i++) {
		const struct site *site = &one->sites.list[i],
				  *now = find_site(&other->sites, site);

		if (!now || now->count != site->count) {
			print_site(site, now);
			shown++;
		}
	}
	for (unsigned i = 0; i < other->sites.count && shown < MAX_SITES; i++)
		if (!find_site(&one->sites, &other->sites.list[i])) {
			print_site(NULL, &other->sites.list[i]);
			shown++;
		}
	if (shown == MAX_SITES)
		out_print("  only the first %u are shown\n", MAX_SITES);
}

void report_diff(const struct tally *one, const struct tally *other)
{
	print_figures(one, other);
	print_calls(one, other);
	print_sites(one, other);
}
