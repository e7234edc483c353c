// SPDX-License-Identifier: MIT
/* pindown replay: computes what a trace would have cost under other budgets and policies. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/uses.h"
#include "tools/base/memory.h"
#include "tools/base/out.h"
#include "tools/base/texts.h"
#include "tools/replay/policy.h"
#include "tools/command.h"

static const char help[] =
	"usage: pindown replay [options] TRACE...\n"
	"\n"
	"Computes the cache's hit ratio and the time in pins that a traced run would\n"
	"have had with a smaller budget of pinned memory. The trace must contain hits:\n"
	"make it with pindown run --events=all --trace=FILE. TRACE is a file, or the\n"
	"name given to PINDOWN_TRACE: app.pdt stands for all app.<pid>.pdt, which then\n"
	"share one budget.\n"
	"\n"
	"  --max-bytes LIST  budgets in bytes, with an optional K, M, G or T, separated\n"
	"                    by commas (default: eighths of the most memory that was\n"
	"                    alive at once)\n"
	"  --policy LIST     eviction policies, separated by commas: lru, clock, s3fifo\n"
	"                    (default: all)\n"
	"  --ascii           draw the plot without block characters\n"
	"  --color WHEN      auto, always or never\n"
	"  --help            print this text\n"
	"\n"
	"Exit status: 0; 1 when a file could not be read completely or has no hits; 2\n"
	"for bad options.\n";

enum { MAX_BUDGETS = 32, BAR = 24 };

struct wishes {
	uint64_t budgets[MAX_BUDGETS];
	unsigned budget_count;
	unsigned policies; /* a bit for each */
	bool ascii;
};

/* ---- the replay ----------------------------------------------------------------------------- */

struct replay_result {
	uint64_t max_bytes;
	const char *policy;
	uint64_t gets, hits, evictions, pin_ns;
};

struct replay {
	const struct uses *uses;
	struct policy_state state;
	bool *registered;
	uint64_t bytes;
	struct replay_result *result;
};

static void evict_until_fits(struct replay *replay, const struct policy *policy, uint64_t bytes)
{
	while (replay->bytes + bytes > replay->state.max_bytes) {
		uint32_t victim = policy->evict(&replay->state);

		replay->registered[victim] = false;
		replay->bytes -= replay->state.members[victim].bytes;
		replay->result->evictions++;
	}
}

static void replay_get(struct replay *replay, const struct policy *policy, uint32_t which)
{
	const struct allocation *allocation = &replay->uses->allocations[which];

	replay->result->gets++;
	if (replay->registered[which]) {
		replay->result->hits++;
		policy->hit(&replay->state, which);
		return;
	}
	replay->result->pin_ns += allocation->pins ? allocation->pin_ns : replay->uses->mean_ns;
	/* An allocation larger than the whole budget is pinned for this use only. */
	if (allocation->bytes > replay->state.max_bytes)
		return;
	evict_until_fits(replay, policy, allocation->bytes);
	policy->insert(&replay->state, which);
	replay->registered[which] = true;
	replay->bytes += allocation->bytes;
}

static void replay_end(struct replay *replay, uint32_t which)
{
	if (replay->registered[which])
		replay->bytes -= replay->uses->allocations[which].bytes;
	replay->registered[which] = false;
	policy_end(&replay->state, which);
}

static struct replay_result replay(const struct uses *uses, const struct policy *policy,
				   uint64_t max_bytes)
{
	struct replay_result result = {.max_bytes = max_bytes, .policy = policy->name};
	struct replay replay = {.uses = uses, .result = &result};
	unsigned count = uses->allocation_count;

	replay.state.max_bytes = max_bytes;
	replay.state.members = allocate((count + 1) * sizeof(*replay.state.members));
	replay.registered = allocate(count + 1);
	for (unsigned i = 0; i < count; i++)
		replay.state.members[i].bytes = uses->allocations[i].bytes;
	for (unsigned i = 0; i < uses->use_count; i++) {
		const struct use *use = &uses->uses[i];

		if (use->kind == USE_GET)
			replay_get(&replay, policy, use->allocation);
		else
			replay_end(&replay, use->allocation);
	}
	release(replay.state.members);
	release(replay.registered);
	return result;
}

/* ---- output --------------------------------------------------------------------------------- */

static char *put_bar(char *at, double share)
{
	static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	unsigned filled = (unsigned)(share * BAR * 8 + 0.5);

	for (unsigned i = 0; i < filled / 8; i++)
		at = put_text(at, out.utf8 ? "█" : "#");
	return out.utf8 ? put_text(at, eighths[filled % 8]) : at;
}

static void print_result(const struct replay_result *result, bool first)
{
	double share = result->gets ? (double)result->hits / (double)result->gets : 0;
	char text[32], *at = out_reserve();

	at = put_text(at, "  ");
	at = put_left(at, first ? bytes_text(result->max_bytes).text : "", 12);
	at = put_left(at, result->policy, 8);
	snprintf(text, sizeof(text), "%.2f %%", 100 * share);
	at = put_right(at, text, 10);
	at = put_right(at, count_text(result->gets - result->hits).text, 12);
	at = put_right(at, count_text(result->evictions).text, 12);
	at = put_right(at, duration_text(result->pin_ns).text, 12);
	at = put_text(put_text(at, "  "), out_green());
	at = put_bar(at, share);
	at = put_text(at, out_plain());
	*at++ = '\n';
	out_commit(at);
}

static void print_head(const struct uses *uses)
{
	out_print("%s gets of ", count_text(uses->gets).text);
	out_print("%s allocations, ", count_text(uses->allocation_count).text);
	out_print("%s alive at once; ", bytes_text(uses->peak_bytes).text);
	out_print("hit ratio of the traced run %.2f %%\n\n",
		  100.0 * (double)uses->hits / (double)uses->gets);
	out_print("  %sbudget      policy   hit ratio        pins   evictions    pin time  hit "
		  "ratio%s\n",
		  out_dim(), out_plain());
}

/* The default: eighths of the most memory that was alive at once. */
static void choose_budgets(const struct uses *uses, struct wishes *wishes)
{
	const uint64_t page = 65536;

	if (wishes->budget_count)
		return;
	for (unsigned i = 1; i <= 8; i++)
		wishes->budgets[wishes->budget_count++] =
			(uses->peak_bytes / 8 * i + page - 1) / page * page;
}

static unsigned count_larger(const struct uses *uses, uint64_t budget)
{
	unsigned count = 0;

	for (unsigned i = 0; i < uses->allocation_count; i++)
		count += uses->allocations[i].bytes > budget;
	return count;
}

/* A budget that an allocation alone exceeds can't keep it, whatever the policy. */
static void explain_small_budgets(const struct uses *uses, const struct wishes *wishes)
{
	bool any = false;

	for (unsigned i = 0; i < wishes->budget_count; i++) {
		unsigned larger = count_larger(uses, wishes->budgets[i]);
		char *text;

		if (!larger)
			continue;
		text = text_of("%s is too small for %u allocation%s: each use of %s is a pin, "
			       "whatever the policy",
			       bytes_text(wishes->budgets[i]).text, larger, larger == 1 ? "" : "s",
			       larger == 1 ? "it" : "them");
		out_print(any ? "  " : "\n  ");
		out_wrapped(2, 4, text);
		release(text);
		any = true;
	}
}

static void print(const struct uses *uses, struct wishes *wishes)
{
	choose_budgets(uses, wishes);
	print_head(uses);
	for (unsigned i = 0; i < wishes->budget_count; i++) {
		bool first = true;

		for (unsigned p = 0; p < policy_count; p++)
			if (wishes->policies & 1u << p) {
				struct replay_result result =
					replay(uses, policies[p], wishes->budgets[i]);

				print_result(&result, first);
				first = false;
			}
	}
	explain_small_budgets(uses, wishes);
	out_flush();
}

/* ---- options -------------------------------------------------------------------------------- */

static bool parse_bytes(const char *text, size_t length, uint64_t *bytes)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;

	if (length == 0 || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*bytes = strtoull(text, &end, 10);
	if (errno)
		return false;
	if (end < text + length && (unit = strchr(units, *end)) != NULL && *unit) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);

		if (*bytes > UINT64_MAX >> shift)
			return false;
		*bytes <<= shift;
		end++;
	}
	return end == text + length && *bytes;
}

static struct wishes wishes;

static bool take_budgets(const char *text)
{
	for (;; text++) {
		size_t length = strcspn(text, ",");

		if (wishes.budget_count == MAX_BUDGETS) {
			complain("--max-bytes: at most %d budgets", MAX_BUDGETS);
			return false;
		}
		if (!parse_bytes(text, length, &wishes.budgets[wishes.budget_count])) {
			complain("--max-bytes %.*s: must be numbers of bytes, with an optional K, "
				 "M, G or T, separated by commas",
				 (int)(length < 100 ? length : 100), text);
			return false;
		}
		wishes.budget_count++;
		text += length;
		if (!*text)
			return true;
	}
}

static bool take_policies(const char *text)
{
	for (;; text++) {
		size_t length = strcspn(text, ",");
		unsigned p = 0;

		while (p < policy_count &&
		       (strncmp(policies[p]->name, text, length) != 0 || policies[p]->name[length]))
			p++;
		if (p == policy_count) {
			complain("--policy %.*s: must be some of lru, clock, s3fifo, separated by "
				 "commas",
				 (int)(length < 100 ? length : 100), text);
			return false;
		}
		wishes.policies |= 1u << p;
		text += length;
		if (!*text)
			return true;
	}
}

static const struct setting settings[] = {
	{"max-bytes", .take = take_budgets},
	{"policy", .take = take_policies},
	{"ascii", .flag = &wishes.ascii},
	{.name = NULL},
};

/*
 * ---- the command -------------------------------------------------------------------------------
 */

/* A trace without its hits would show a cache that never hits. */
static bool has_gets(const struct reader *reader)
{
	for (unsigned i = 0; i < reader_files(reader); i++) {
		const struct trace_file *file = reader_file(reader, i);

		if (!(file->header.event_mask & 1u << PDN_EV_PIN)) {
			complain("%s: the trace has no pins: make it with pindown run "
				 "--events=all",
				 file->name);
			return false;
		}

		if (file->counters.hits && !(file->header.event_mask & 1u << PDN_EV_HIT)) {
			complain("%s: the trace counts hits but does not contain them: make it "
				 "with pindown run --events=all",
				 file->name);
			return false;
		}
	}
	return true;
}

static int run(int argc, char **argv)
{
	struct reader *reader;
	int status = STATUS_OK;
	struct uses *uses;

	reader = reader_open(argv, (unsigned)argc);
	if (!reader)
		return STATUS_DAMAGED;
	if (!has_gets(reader)) {
		reader_close(reader);
		return STATUS_DAMAGED;
	}
	if (wishes.ascii)
		out.utf8 = false;
	if (!wishes.policies)
		wishes.policies = ~0u;
	uses = uses_make(reader);
	if (!uses->gets) {
		complain("%s: nothing was pinned, so there is nothing to replay", argv[0]);
		status = STATUS_DAMAGED;
	} else {
		print(uses, &wishes);
		status = reader_damaged(reader) ? STATUS_DAMAGED : STATUS_OK;
	}
	reader_complain(reader);
	uses_free(uses);
	reader_close(reader);
	return status;
}

const struct command command_replay = {
	"replay",  "compute a trace's costs with other budgets", help, settings, ARGUMENTS_TRACES,
	.run = run};
