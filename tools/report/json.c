// SPDX-License-Identifier: MIT
/* pindown report --json: docs/manual/report-json.md describes the document. */
#include <stdlib.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/report/job.h"
#include "tools/report/report.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"
#include "tools/ui/json.h"

enum { SCHEMA = 1 };

static void put_null(const char *key)
{
	json_text(key, NULL);
}

static void put_address(const char *key, uint64_t address)
{
	char text[24];

	*put_hex(text, address) = '\0';
	json_text(key, text);
}

static void put_known(const char *key, uint64_t number, bool known)
{
	if (known)
		json_number(key, number);
	else
		put_null(key);
}

static void put_device(const char *key, int64_t device)
{
	put_known(key, (uint64_t)device, device >= 0);
}

static void put_gravity(enum gravity gravity)
{
	static const char *const names[] = {[FACT] = "fact", [NOTE] = "note", [WRONG] = "wrong"};

	json_text("gravity", names[gravity]);
}

static void begin(void)
{
	json_begin_object(NULL);
	json_number("pindown_report", SCHEMA);
}

/* ---- one report ----------------------------------------------------------------------------- */

static void put_problems(const struct amount *amounts)
{
	json_begin_object("problems");
	for (unsigned i = 0; i < ANSWERS; i++) {
		json_number(answer_words[i].key, amounts[i].count);
		if (answer_words[i].bytes_key)
			json_number(answer_words[i].bytes_key, amounts[i].bytes);
	}
	json_end_object();
}

static void put_answer(const struct tally *tally, enum answer answer)
{
	const struct answer_words *words = &answer_words[answer];
	const char *more = answer_more(tally, answer);

	json_begin_object(NULL);
	json_text("name", words->what);
	json_text("key", words->key);
	put_gravity(words->gravity);
	json_number("count", tally->answers.all[answer].count);
	json_text("more", *more ? more + strlen(": ") : "");
	json_text("none", report_none(tally, words->events));
	json_end_object();
}

static void put_answers(const struct tally *tally)
{
	json_begin_list("answers");
	for (unsigned i = 0; i < ANSWERS; i++)
		if (answer_is_shown(tally->answers.all, i))
			put_answer(tally, i);
	json_end_list();
	json_text("definitions", report_defines(tally) ? report_definitions : NULL);
}

static void put_allocations(const struct allocations *all)
{
	json_begin_object("allocated");
	json_number("peak_bytes", all->peak);
	json_number("peak_at_ns", all->peak_at);
	json_number("bytes", all->total);
	json_number("count", all->count);
	json_end_object();
	json_begin_list("allocation_sites");
	for (unsigned i = 0; i < all->site_count; i++) {
		const struct site_memory *site = &all->sites[i];

		json_begin_object(NULL);
		json_text("caller", site->caller);
		json_text("call", site->call);
		json_number("peak_bytes", site->at_peak);
		json_number("unfreed_bytes", site->unfreed);
		json_number("unfreed", site->unfreed_count);
		json_number("bytes", site->total);
		json_number("count", site->count);
		json_end_object();
	}
	json_end_list();
}

static void put_cache(const struct tally *tally)
{
	json_begin_object("cache");
	json_number("hits", tally->counters.hits);
	json_number("misses", tally->counters.misses);
	json_number("tag_checks", tally->counters.tag_checks);
	json_number("pins", tally->all.pins);
	json_number("unpins", tally->all.unpins);
	json_number("evictions", tally->all.evictions);
	json_number("invalidations", tally->all.invalidations);
	json_number("pin_ns", tally->all.ns);
	json_number("peak_bytes", tally->all.peak_bytes);
	json_number("peak_at_ns", tally->all.peak_at);
	json_number("peak_regions", tally->all.peak_regions);
	json_number("end_bytes", tally->all.bytes);
	json_number("kept_peak_bytes", tally->kept_peak);
	json_end_object();
}

static void put_process(const struct trace_file *file, const struct tally *tally)
{
	const struct amount *answers = tally->answers.of_file[file->index];
	const char *end = file->command + file->command_bytes;
	unsigned hint = 0;
	uint64_t last = trace_file_ns(file, file->last_ticks, &hint);

	json_begin_object(NULL);
	json_rank(file->rank);
	json_number("pid", file->header.pid);
	json_text("host", file->host);
	json_text("program", file->program);
	json_begin_list("command");
	for (const char *at = file->command; at < end; at += strlen(at) + 1)
		json_text(NULL, at);
	json_end_list();
	json_text("trace", file->name);
	json_number("began_ns", file->header.begin.realtime);
	json_number("traced_ns", last > file->first_ns ? last - file->first_ns : 0);
	json_bool("ended", file->header.end.ticks);
	json_bool("cut", file->cut);
	json_text("distrust", *file->distrust ? file->distrust : NULL);
	json_bool("bad", answers_are_bad(answers));
	json_number("peak_bytes", tally->history.processes[file->index].peak);
	put_problems(answers);
	json_end_object();
}

static void put_device_tally(const struct pin_tally *device, int16_t number)
{
	json_begin_object(NULL);
	put_device("device", number);
	json_number("pins", device->pins);
	json_number("failed", device->failed);
	json_number("unpins", device->unpins);
	json_number("evictions", device->evictions);
	json_number("invalidations", device->invalidations);
	json_number("pin_ns", device->ns);
	json_number("peak_bytes", device->peak_bytes);
	json_number("end_bytes", device->bytes);
	json_end_object();
}

static void put_calls(const struct tally *tally)
{
	json_begin_list("calls");
	for (unsigned i = 0; i < tally->call_count; i++) {
		const struct call_tally *call = &tally->calls[i];

		json_begin_object(NULL);
		json_text("call", call->name);
		json_number("count", call->count);
		json_number("failed", call->failed);
		json_number("ns", call->ns);
		json_number("max_ns", call->max_ns);
		json_end_object();
	}
	json_end_list();
}

static void put_sites(const struct sites *sites)
{
	json_begin_list("sites");
	for (unsigned i = 0; i < sites->count; i++) {
		const struct site *site = &sites->list[i];

		json_begin_object(NULL);
		json_text("caller", site->caller);
		json_text("call", site->what);
		json_number("count", site->count);
		json_number("failed", site->failed);
		json_number("ns", site->ns);
		json_number("bytes", site->bytes);
		json_end_object();
	}
	json_end_list();
}

static void put_stack(const char *key, const struct trace_file *file, uint32_t stack)
{
	enum { MAX_CHAIN = 48 };
	struct place places[MAX_CHAIN];
	unsigned count = stack ? symbols_chain(file, stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE];

	json_begin_list(key);
	for (unsigned i = 0; i < count; i++)
		json_text(NULL, place_text(&places[i], text));
	json_end_list();
}

/* The program or the library that a stack's caller is in. */
static void put_module(const char *key, const struct trace_file *file, uint32_t stack)
{
	const struct place *place = stack ? symbols_caller(file, stack) : NULL;
	const char *slash = place && place->module ? strrchr(place->module, '/') : NULL;

	json_text(key, slash ? slash + 1 : place ? place->module : NULL);
}

static void put_finding(const struct reader *reader, const struct finding *finding)
{
	const struct region *region = &finding->region;
	const struct trace_file *file = reader_file(reader, region->file);

	json_begin_object(NULL);
	json_rank(file->rank);
	json_number("pid", file->header.pid);
	put_address("addr", region->addr);
	json_number("size", region->size);
	put_device("device", region->device);
	json_number("pinned_at_ns", region->pinned_at);
	put_known("freed_at_ns", region->freed_at, region->freed);
	put_known("unpinned_at_ns", finding->until, finding->until != UINT64_MAX);
	put_stack("pinned_by", file, region->pin_stack);
	put_stack("freed_by", file, region->freed_stack);
	put_stack("unpinned_by", file, region->unpin_stack);
	json_end_object();
}

static void put_registrations(const struct reader *reader, const struct holders *holders)
{
	json_number("registration_count", holders->registrations_all);
	json_begin_list("registrations");
	for (unsigned i = 0; i < holders->registration_count; i++) {
		const struct registration *registration = &holders->registrations[i];
		const struct trace_file *file = reader_file(reader, registration->file);

		json_begin_object(NULL);
		json_rank(file->rank);
		json_number("pid", file->header.pid);
		put_address("addr", registration->addr);
		json_number("size", registration->size);
		json_number("freed_at_ns", registration->ts);
		json_text("fate", registration_fate(registration));
		put_module("registered_in", file, registration->made_by);
		put_stack("registered_by", file, registration->made_by);
		put_module("freed_in", file, registration->freed_by);
		put_stack("freed_by", file, registration->freed_by);
		json_end_object();
	}
	json_end_list();
}

static void put_exports(const struct reader *reader, const struct holders *holders)
{
	json_begin_list("exports");
	for (unsigned i = 0; i < holders->outlived_count; i++) {
		const struct outlived *outlived = &holders->outlived[i];
		const struct export *made = &outlived->made;
		const struct trace_file *file = reader_file(reader, made->file);

		json_begin_object(NULL);
		json_rank(file->rank);
		json_number("pid", file->header.pid);
		put_address("addr", outlived->addr);
		json_number("size", outlived->size);
		json_number("fd", outlived->fd);
		put_known("exported_at_ns", made->ts, made->tid);
		json_number("freed_at_ns", outlived->ts);
		json_text("state", outlived_state(outlived));
		put_module("exported_in", file, made->stack);
		put_stack("exported_by", file, made->stack);
		json_end_object();
	}
	json_end_list();
}

static void put_consumers(const struct holders *holders)
{
	json_begin_list("consumers");
	for (unsigned i = 0; i < holders->consumer_count; i++) {
		const struct consumer *consumer = &holders->consumers[i];

		json_begin_object(NULL);
		json_text("consumer", consumer->name);
		json_number("made", consumer->made);
		json_number("failed", consumer->failed);
		json_number("destroyed", consumer->destroyed);
		json_number("by_free", consumer->revoked);
		json_number("held", consumer->held);
		json_number("held_regions", consumer->held_regions);
		json_number("held_bytes", consumer->held_bytes);
		json_end_object();
	}
	json_end_list();
}

/* Without its end: a member may follow. */
static void begin_stack(const struct reader *reader, const struct stack_memory *stack,
			uint64_t bytes)
{
	const struct trace_file *file = reader_file(reader, stack->file);

	json_begin_object(NULL);
	json_rank(file->rank);
	json_number("pid", file->header.pid);
	json_text("call", trace_file_call(file, stack->call));
	json_number("bytes", bytes);
	put_stack("allocated_by", file, stack->stack);
}

static void put_allocation_stacks(const struct reader *reader, const struct allocations *all)
{
	unsigned count;
	const struct stack_memory **sorted = allocations_unfreed(all, &count);

	json_begin_list("unfreed_stacks");
	for (unsigned i = 0; i < count; i++) {
		begin_stack(reader, sorted[i], sorted[i]->unfreed);
		json_number("count", sorted[i]->unfreed_count);
		json_end_object();
	}
	json_end_list();
	release(sorted);
	json_begin_list("peak_stacks");
	for (unsigned i = 0; i < all->stack_count; i++) {
		if (!all->stacks[i].at_peak)
			continue;
		begin_stack(reader, &all->stacks[i], all->stacks[i].at_peak);
		json_end_object();
	}
	json_end_list();
}

static void put_findings(const char *key, const struct reader *reader,
			 const struct findings *findings)
{
	json_begin_list(key);
	for (unsigned i = 0; i < findings->count; i++)
		put_finding(reader, &findings->list[i]);
	json_end_list();
}

/* ---- over time ------------------------------------------------------------------------------ */

/* Only changes, as pairs of column and value. */
static void put_series(const char *key, const uint64_t *values, unsigned columns)
{
	json_begin_row(key);
	for (unsigned i = 0; i < columns; i++) {
		if (values[i] == (i ? values[i - 1] : 0))
			continue;
		json_number(NULL, i);
		json_number(NULL, values[i]);
	}
	json_end_row();
}

static void put_view(const struct view *view, unsigned columns)
{
	static const char *const names[SERIES] = {[SERIES_BYTES] = "pinned_bytes",
						  [SERIES_BAR] = "bar_bytes",
						  [SERIES_REGIONS] = "regions",
						  [SERIES_KEPT] = "kept_bytes"};

	json_begin_object(NULL);
	if (view->file == EVERY)
		json_text("process", "all");
	else
		json_number("process", (uint64_t)view->file);
	if (view->device == EVERY)
		json_text("device", "all");
	else
		put_device("device", view->device);
	for (unsigned i = 0; i < SERIES; i++)
		put_series(names[i], view->max[i], columns);
	json_end_object();
}

static void put_life(const struct life *life)
{
	json_begin_row(NULL);
	put_address(NULL, life->addr);
	json_number(NULL, life->size);
	json_number(NULL, life->file);
	put_device(NULL, life->device);
	json_number(NULL, life->from);
	json_number(NULL, life->to);
	put_known(NULL, life->freed_at, life->freed_at < life->to);
	json_end_row();
}

static void put_history(const struct tally *tally)
{
	const struct history *history = &tally->history;

	json_begin_object("history");
	json_number("columns", history->columns);
	put_series("allocated_bytes", tally->allocated_fine.max, history->columns);
	json_begin_list("views");
	for (unsigned i = 0; i < history->view_count; i++)
		put_view(&history->views[i], history->columns);
	json_end_list();
	json_bool("regions_cut", history->cut);
	json_begin_list("regions");
	for (unsigned i = 0; i < history->life_count; i++)
		put_life(&history->lives[i]);
	json_end_list();
	json_end_object();
}

/*
 * BAR1 of one GPU, as `pindown run` noted it (PINDOWNBAR1=BYTES). Not known where a trace does not
 * have it, or where those of several machines differ.
 */
static void put_bar1(const struct reader *reader)
{
	uint64_t capacity = 0;

	for (unsigned i = 0; i < reader_files(reader); i++) {
		const char *text = trace_file_variable(reader_file(reader, i), "PINDOWNBAR1=");
		uint64_t bytes = text ? strtoull(text, NULL, 10) : 0;

		if (!bytes || (capacity && bytes != capacity)) {
			capacity = 0;
			break;
		}
		capacity = bytes;
	}
	put_known("bar1_bytes", capacity, capacity);
}

/* ---- the whole ------------------------------------------------------------------------------ */

void report_json(const struct reader *reader, const struct tally *tally)
{
	begin();
	json_number("span_ns", tally->span);
	json_bool("bad", answers_are_bad(tally->answers.all));
	json_bool("incomplete", tally->incomplete);
	json_begin_list("recorded");
	for (unsigned i = 0; i < PDN_EV_LOST; i++)
		if (tally->recorded >> i & 1)
			json_text(NULL, pdn_event_names[i]);
	json_end_list();
	put_answers(tally);
	put_problems(tally->answers.all);
	put_allocations(&tally->allocations);
	put_cache(tally);
	put_bar1(reader);
	json_begin_list("processes");
	for (unsigned i = 0; i < reader_files(reader); i++)
		put_process(reader_file(reader, i), tally);
	json_end_list();
	json_begin_list("devices");
	for (unsigned i = 0; i <= DEVICES; i++)
		if (tally->device[i].seen)
			put_device_tally(&tally->device[i], i < DEVICES ? (int16_t)i : -1);
	json_end_list();
	put_findings("stale", reader, &tally->freed);
	put_findings("ordered", reader, &tally->ordered);
	put_findings("missed", reader, &tally->missed);
	put_findings("left", reader, &tally->left);
	put_registrations(reader, &tally->holders);
	put_exports(reader, &tally->holders);
	put_consumers(&tally->holders);
	put_allocation_stacks(reader, &tally->allocations);
	put_history(tally);
	put_calls(tally);
	put_sites(&tally->sites);
	json_end_object();
}

/* ---- a job ---------------------------------------------------------------------------------- */

static void put_name(const struct job_process *process)
{
	json_rank(process->rank);
	json_number("pid", process->pid);
	json_text("host", process->host);
	json_text("trace", process->trace);
}

static void put_spread(const struct job *job, enum job_figure figure)
{
	const struct job_spread *spread = &job->spreads[figure];
	struct job_words words = job_words(figure);

	json_begin_object(NULL);
	json_text("figure", words.key);
	json_text("name", words.what);
	json_text("unit", words.unit == 'b' ? "bytes" : words.unit == 'n' ? "ns" : NULL);
	put_gravity(words.gravity);
	json_bool("shown", job_is_shown(job, figure));
	json_number("total", spread->total);
	json_number("median", spread->median);
	json_number("processes", spread->processes);
	json_number("unknown", spread->unknown);
	json_number("most", spread->most ? spread->most->figures[figure] : 0);
	if (spread->most) {
		json_begin_object("by");
		put_name(spread->most);
		json_end_object();
	} else {
		put_null("by");
	}
	json_end_object();
}

static void put_job_process(const struct job_process *process)
{
	json_begin_object(NULL);
	put_name(process);
	json_bool("bad", process->bad);
	json_number("traced_ns", process->span);
	json_number("hits", process->hits);
	json_number("pins", process->pins);
	for (unsigned i = 0; i < JOB_FIGURES; i++)
		json_number(job_words(i).key, process->figures[i]);
	json_end_object();
}

void job_json(const struct job *job)
{
	bool bad = false;

	for (unsigned i = 0; i < job->count; i++)
		bad |= job->processes[i].bad;
	begin();
	json_bool("bad", bad);
	json_begin_object("job");
	json_text("folder", job->folder);
	json_number("traces", job->count);
	json_number("unreadable", job->unreadable);
	json_number("hosts", job->host_count);
	json_number("ranks", job->ranks);
	json_number("ranks_with_several_traces", job->repeated);
	json_begin_list("missing_ranks");
	for (unsigned i = 0; i < job->missing_count; i++)
		json_number(NULL, (uint64_t)job->missing[i]);
	json_end_list();
	json_end_object();
	json_begin_list("outliers");
	for (unsigned i = 0; i < JOB_FIGURES; i++)
		put_spread(job, i);
	json_end_list();
	json_begin_list("processes");
	for (unsigned i = 0; i < job->count; i++)
		put_job_process(&job->processes[i]);
	json_end_list();
	json_end_object();
}
