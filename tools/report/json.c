// SPDX-License-Identifier: MIT
/* pindown report --json: docs/manual/report-json.md describes the document. */
#include <string.h>

#include "tools/base/memory.h"
#include "tools/report/job.h"
#include "tools/report/report.h"
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

static void put_device(int16_t device)
{
	if (device < 0)
		put_null("device");
	else
		json_number("device", (uint64_t)device);
}

static void begin(void)
{
	json_begin_object(NULL);
	json_number("pindown_report", SCHEMA);
}

/* ---- one report ----------------------------------------------------------------------------- */

static void put_problems(const struct tally *tally)
{
	json_begin_object("problems");
	for (unsigned i = 0; i < ANSWERS; i++) {
		json_number(answer_words[i].key, tally->answers.all[i].count);
		if (answer_words[i].bytes_key)
			json_number(answer_words[i].bytes_key, tally->answers.all[i].bytes);
	}
	json_end_object();
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

static void put_process(const struct trace_file *file)
{
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
	json_end_object();
}

static void put_device_tally(const struct pin_tally *device, int16_t number)
{
	json_begin_object(NULL);
	put_device(number);
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
	enum { MAX_CHAIN = 16 };
	struct place places[MAX_CHAIN];
	unsigned count = stack ? symbols_chain(file, stack, places, MAX_CHAIN) : 0;
	char text[PLACE_TEXT_SIZE];

	json_begin_list(key);
	for (unsigned i = 0; i < count; i++)
		json_text(NULL, place_text(&places[i], text));
	json_end_list();
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
	put_device(region->device);
	json_number("pinned_at_ns", region->pinned_at);
	if (region->freed)
		json_number("freed_at_ns", region->freed_at);
	else
		put_null("freed_at_ns");
	if (finding->until != UINT64_MAX)
		json_number("unpinned_at_ns", finding->until);
	else
		put_null("unpinned_at_ns");
	put_stack("pinned_by", file, region->pin_stack);
	put_stack("freed_by", file, region->freed_stack);
	put_stack("unpinned_by", file, region->unpin_stack);
	json_end_object();
}

static void put_registrations(const struct reader *reader, const struct holders *holders)
{
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
		put_stack("registered_by", file, registration->made_by);
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
		if (made->tid)
			json_number("exported_at_ns", made->ts);
		else
			put_null("exported_at_ns");
		json_number("freed_at_ns", outlived->ts);
		json_text("state", outlived_state(outlived));
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

static void put_unfreed(const struct reader *reader, const struct allocations *all)
{
	unsigned count;
	const struct stack_memory **sorted = allocations_unfreed(all, &count);

	json_begin_list("unfreed_stacks");
	for (unsigned i = 0; i < count; i++) {
		const struct trace_file *file = reader_file(reader, sorted[i]->file);

		json_begin_object(NULL);
		json_rank(file->rank);
		json_number("pid", file->header.pid);
		json_text("call", trace_file_call(file, sorted[i]->call));
		json_number("bytes", sorted[i]->unfreed);
		json_number("count", sorted[i]->unfreed_count);
		put_stack("allocated_by", file, sorted[i]->stack);
		json_end_object();
	}
	json_end_list();
	release(sorted);
}

static void put_findings(const char *key, const struct reader *reader,
			 const struct findings *findings)
{
	json_begin_list(key);
	for (unsigned i = 0; i < findings->count; i++)
		put_finding(reader, &findings->list[i]);
	json_end_list();
}

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
	put_problems(tally);
	put_allocations(&tally->allocations);
	put_cache(tally);
	json_begin_list("processes");
	for (unsigned i = 0; i < reader_files(reader); i++)
		put_process(reader_file(reader, i));
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
	put_unfreed(reader, &tally->allocations);
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

static void put_spread(enum job_figure figure, const struct job_spread *spread)
{
	json_begin_object(NULL);
	json_text("figure", job_words(figure).key);
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
		put_spread(i, &job->spreads[i]);
	json_end_list();
	json_begin_list("processes");
	for (unsigned i = 0; i < job->count; i++)
		put_job_process(&job->processes[i]);
	json_end_list();
	json_end_object();
}
