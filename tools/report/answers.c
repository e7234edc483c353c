// SPDX-License-Identifier: MIT
#include "tools/report/answers.h"

#include <ctype.h>
#include <stdio.h>

#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/report/tally.h"

const struct answer_words answer_words[ANSWERS] = {
	[ANSWER_STALE] = {.what = "Stale registrations",
			  .key = "stale_registrations",
			  .gravity = WRONG,
			  .fault = {"stale registration", "stale registrations"},
			  .meaning = "freed while in use",
			  .events = EVENT_BIT(INVALIDATE)},
	[ANSWER_ORDERED] = {.what = "Freed in stream order",
			    .key = "freed_in_stream_order",
			    .gravity = NOTE,
			    .meaning = "while in use",
			    .events = EVENT_BIT(INVALIDATE),
			    .if_any = true},
	[ANSWER_HELD] = {.what = "Held registrations",
			 .key = "held_registrations",
			 .bytes_key = "held_bytes",
			 .gravity = WRONG,
			 .meaning = "not dropped before the free",
			 .events = EVENT_BIT(HELD)},
	/* An address that is not retired may be handed out again, to a cache that looks it up. */
	[ANSWER_REVOKED] = {.what = "Revoked registrations",
			    .key = "revoked_registrations",
			    .gravity = WRONG,
			    .fault = {"revoked registration", "revoked registrations"},
			    .meaning = "deregistered before a free",
			    .events = EVENT_BIT(HOLDER),
			    .if_any = true},
	[ANSWER_CURED] = {.what = "Cured registrations",
			  .key = "cured_registrations",
			  .meaning = "ended with the free, address kept from reuse",
			  .events = EVENT_BIT(RETIRE),
			  .if_any = true},
	[ANSWER_ESCAPED] = {.what = "Escaped addresses",
			    .key = "escaped_addresses",
			    .gravity = WRONG,
			    .fault = {"escaped address", "escaped addresses"},
			    .meaning = "reused while a registration was held",
			    .events = EVENT_BIT(RETIRE),
			    .if_any = true},
	[ANSWER_DROPPED] = {.what = "Dropped addresses",
			    .key = "dropped_addresses",
			    .gravity = WRONG,
			    .fault = {"dropped address", "dropped addresses"},
			    .meaning = "usable again while a registration was held",
			    .events = EVENT_BIT(RETIRE),
			    .if_any = true},
	[ANSWER_STILL_HELD] = {.what = "Cured, held at the end",
			       .key = "held_at_the_end",
			       .gravity = WRONG,
			       .fault = {"address held at the end", "addresses held at the end"},
			       .meaning = "addresses whose registration was not dropped",
			       .events = EVENT_BIT(RETIRE),
			       .if_any = true},
	[ANSWER_EXPORTS] = {.what = "Stale exports",
			    .key = "stale_exports",
			    .bytes_key = "stale_export_bytes",
			    .gravity = WRONG,
			    .fault = {"stale export", "stale exports"},
			    .meaning = "freed while its dma-buf was open",
			    .events = EVENT_BIT(OUTLIVED)},
	[ANSWER_EXPORTS_ORDERED] = {.what = "Exports in use",
				    .key = "exports_in_use",
				    .gravity = NOTE,
				    .meaning = "freed in stream order, dma-buf open",
				    .events = EVENT_BIT(OUTLIVED),
				    .if_any = true},
	[ANSWER_MISSED] = {.what = "Missed invalidations",
			   .key = "missed_invalidations",
			   .gravity = WRONG,
			   .fault = {"missed invalidation", "missed invalidations"},
			   .meaning = "frees that pindown noticed too late",
			   .events = EVENT_BIT(INVALIDATE)},
	[ANSWER_LEAKED] = {.what = "Leaked pins",
			   .key = "leaks",
			   .bytes_key = "leaked_bytes",
			   .gravity = WRONG,
			   .fault = {"leaked pin", "leaked pins"},
			   .meaning = "freed, but still pinned at the end",
			   .events = EVENT_BIT(PIN) | EVENT_BIT(UNPIN) | EVENT_BIT(INVALIDATE)},
	[ANSWER_LEFT] = {.what = "Still pinned at the end",
			 .key = "still_pinned",
			 .bytes_key = "still_pinned_bytes",
			 .gravity = NOTE,
			 .events = EVENT_BIT(PIN) | EVENT_BIT(UNPIN),
			 .is_size = true},
	[ANSWER_UNFREED] = {.what = "Unfreed at the end",
			    .key = "unfreed",
			    .bytes_key = "unfreed_bytes",
			    .gravity = NOTE,
			    .meaning = "never freed",
			    .events = EVENT_BIT(CALL),
			    .is_size = true},
	[ANSWER_FAILED_CALLS] = {.what = "Failed calls",
				 .key = "failed_calls",
				 .gravity = NOTE,
				 .events = EVENT_BIT(CALL)},
	[ANSWER_FAILED_PINS] = {.what = "Failed pins",
				.key = "failed_pins",
				.gravity = WRONG,
				.events = EVENT_BIT(PIN)},
	[ANSWER_ERRORS] = {.what = "Errors",
			   .key = "errors",
			   .gravity = WRONG,
			   .meaning = "see pindown dump --event error",
			   .events = EVENT_BIT(ERROR)},
	[ANSWER_LOST] = {.what = "Lost events",
			 .key = "lost_events",
			 .gravity = WRONG,
			 .meaning = "the trace had no space for them"},
};

/* ---- counting ------------------------------------------------------------------------------- */

void answers_begin(struct answers *answers, unsigned files)
{
	answers->of_file = allocate(((size_t)files + 1) * sizeof(*answers->of_file));
}

void answers_free(struct answers *answers)
{
	release(answers->of_file);
}

static void change(uint64_t *number, int64_t by)
{
	*number = by < 0 && *number < (uint64_t)-by ? 0 : *number + (uint64_t)by;
}

void answers_add(struct answers *answers, uint32_t file, enum answer answer, int64_t count,
		 int64_t bytes)
{
	change(&answers->all[answer].count, count);
	change(&answers->all[answer].bytes, bytes);
	change(&answers->of_file[file][answer].count, count);
	change(&answers->of_file[file][answer].bytes, bytes);
}

uint64_t answer_figure(const struct amount *amounts, enum answer answer)
{
	return answer_words[answer].is_size ? amounts[answer].bytes : amounts[answer].count;
}

bool answers_are_bad(const struct amount *amounts)
{
	for (unsigned i = 0; i < ANSWERS; i++)
		if (answer_words[i].fault[0] && amounts[i].count)
			return true;
	return false;
}

bool answer_is_shown(const struct amount *amounts, enum answer answer)
{
	return amounts[answer].count || !answer_words[answer].if_any;
}

/* ---- words ---------------------------------------------------------------------------------- */

const char *small_name(const char *what)
{
	static char name[40];

	snprintf(name, sizeof(name), "%s", what);
	name[0] = (char)tolower((unsigned char)name[0]);
	return name;
}

const char *answer_name(enum answer answer)
{
	return small_name(answer_words[answer].what);
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

/* What only some answers have: a text that begins with what divides it from the rest, or "". */
static void put_details(const struct tally *tally, enum answer answer, char *text, size_t size)
{
	*text = '\0';
	switch (answer) {
	case ANSWER_STALE:
		snprintf(text, size, "; up to %s kept for %s", bytes_text(tally->kept_peak).text,
			 duration_text(longest_kept(&tally->freed, tally->span)).text);
		break;
	case ANSWER_ORDERED: /* the trace does not show whether it was used after the free ran */
		snprintf(text, size, ", for up to %s%s%s%s",
			 duration_text(longest_kept(&tally->ordered, tally->span)).text,
			 tally->reused.count ? "; " : "",
			 tally->reused.count ? count_text(tally->reused.count).text : "",
			 tally->reused.count ? " reused meanwhile" : "");
		break;
	case ANSWER_UNFREED:
		if (tally->allocations.unfreed.cut_off)
			snprintf(text, size, "; %s in a trace without end mark",
				 count_text(tally->allocations.unfreed.cut_off).text);
		break;
	default:
		break;
	}
}

const char *answer_more(const struct tally *tally, enum answer answer)
{
	const struct answer_words *words = &answer_words[answer];
	const char *meaning = words->meaning;
	static char text[300];
	char bytes[40] = "", details[160];

	if (words->bytes_key)
		snprintf(bytes, sizeof(bytes), "%s%s", words->is_size ? ", " : "; ",
			 bytes_text(tally->answers.all[answer].bytes).text);
	put_details(tally, answer, details, sizeof(details));
	snprintf(text, sizeof(text), "%s%s%s%s%s", words->is_size ? bytes : "", meaning ? ": " : "",
		 meaning ? meaning : "", words->is_size ? "" : bytes, details);
	return text;
}

const char *report_none(const struct tally *tally, uint64_t events)
{
	if ((tally->recorded & events) == events)
		return tally->incomplete ? "none in what was recorded" : NULL;
	return (tally->recorded_by_some & events) == events ? "not recorded in every process"
							    : "not recorded";
}
