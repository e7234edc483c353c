// SPDX-License-Identifier: MIT
/* pindown top: prints the counters of all processes for Prometheus and the like. */
#include "tools/top/openmetrics.h"

#include <stddef.h>

#include "tools/base/out.h"

/* A family of samples, one for each process: a member of struct pindown_stats. */
static const struct metric {
	const char *name, *unit, *help;
	bool is_counter;
	size_t offset;
} metrics[] = {
#define GAUGE(name, unit, member, help)                                         \
	{                                                                       \
		name, unit, help, false, offsetof(struct pindown_stats, member) \
	}
#define COUNTER(name, member, help)                                            \
	{                                                                      \
		name, NULL, help, true, offsetof(struct pindown_stats, member) \
	}
	GAUGE("pindown_pinned_bytes", "bytes", bytes, "GPU memory that is pinned."),
	GAUGE("pindown_regions", NULL, regions, "Regions that are pinned."),
	GAUGE("pindown_kept_bytes", "bytes", kept_bytes,
	      "Pinned memory that the program has freed and that is still in use."),
	GAUGE("pindown_held_bytes", "bytes", object_kept_bytes,
	      "Pinned memory that the program has freed under a registration."),
	GAUGE("pindown_retired_ranges", NULL, retired_ranges,
	      "Freed addresses that are kept from reuse, as a registration of them is held."),
	GAUGE("pindown_retired_bytes", "bytes", retired_bytes,
	      "The address space of these, which takes no GPU memory."),
	COUNTER("pindown_hits", hits, "Hits of the registration cache."),
	COUNTER("pindown_misses", misses, "Misses of the registration cache."),
	COUNTER("pindown_missed_frees", missed_invalidations,
		"Frees noticed only after the driver had made them; anything above 0 is a bug."),
	COUNTER("pindown_evictions", evictions, "Regions unpinned to make room for others."),
	COUNTER("pindown_invalidations", invalidations, "Regions whose memory was freed."),
	COUNTER("pindown_pins", pins, "Regions that were pinned."),
	COUNTER("pindown_unpins", unpins, "Regions that were unpinned."),
	COUNTER("pindown_failed_pins", pin_failures, "Attempts to pin memory that failed."),
	COUNTER("pindown_revoked_registrations", objects_revoked,
		"Registrations that ended because their memory was freed."),
	COUNTER("pindown_retired", retired, "Freed addresses that were kept from reuse."),
	COUNTER("pindown_retired_dropped", retired_dropped,
		"Of these: given back while a registration was held."),
	COUNTER("pindown_escapes", escapes,
		"Freed addresses in use again while a registration was held; should be 0."),
	COUNTER("pindown_unprotected_frees", unprotected,
		"Frees under a registration that stays, with an address that may be used again."),
	COUNTER("pindown_left_to_card", left_to_card,
		"Registrations of GPU memory that were left to libibverbs."),
};

static uint64_t value_of(const struct process *process, const struct metric *metric)
{
	return *(const uint64_t *)(const void *)((const char *)&process->stats + metric->offset);
}

/* A label's value. Names of processes may have any bytes; those beyond ASCII become "?". */
static char *put_label(char *at, const char *name, const char *value)
{
	at = put_text(put_text(at, name), "=\"");
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			*at++ = '\\';
		*at++ = *value < ' ' || *value > '~' ? '?' : *value;
	}
	*at++ = '"';
	return at;
}

static char *put_number_label(char *at, const char *name, uint64_t value)
{
	at = put_decimal(put_text(put_text(at, name), "=\""), value);
	*at++ = '"';
	return at;
}

/* The labels that every sample of a process has, with an open brace before them. */
static char *put_labels(char *at, const struct process *process)
{
	*at++ = '{';
	at = put_number_label(at, "pid", process->pid);
	*at++ = ',';
	at = put_number_label(at, "uid", process->user);
	*at++ = ',';
	if (process->rank >= 0) {
		at = put_number_label(at, "rank", (uint64_t)process->rank);
		*at++ = ',';
	}
	return put_label(at, "command", process->command);
}

static void print_family(const char *name, const char *type, const char *unit, const char *help)
{
	out_print("# TYPE %s %s\n", name, type);
	if (unit)
		out_print("# UNIT %s %s\n", name, unit);
	out_print("# HELP %s %s\n", name, help);
}

static void print_metric(const struct processes *all, const struct metric *metric)
{
	print_family(metric->name, metric->is_counter ? "counter" : "gauge", metric->unit,
		     metric->help);
	for (unsigned i = 0; i < all->count; i++) {
		char *at = put_text(out_reserve(), metric->name);

		at = put_labels(put_text(at, metric->is_counter ? "_total" : ""), &all->list[i]);
		at = put_decimal(put_text(at, "} "), value_of(&all->list[i], metric));
		*at++ = '\n';
		out_commit(at);
	}
}

static void print_devices(const struct processes *all)
{
	static const char name[] = "pindown_device_pinned_bytes";

	print_family(name, "gauge", "bytes", "GPU memory that is pinned, by CUDA device.");
	for (unsigned i = 0; i < all->count; i++)
		for (unsigned d = 0; d < PDN_TOP_DEVICES; d++) {
			char *at;

			if (!all->list[i].device_bytes[d])
				continue;
			at = put_labels(put_text(out_reserve(), name), &all->list[i]);
			*at++ = ',';
			at = put_number_label(at, "device", d);
			at = put_decimal(put_text(at, "} "), all->list[i].device_bytes[d]);
			*at++ = '\n';
			out_commit(at);
		}
}

static void print_processes(const struct processes *all)
{
	print_family("pindown_process", "info", NULL, "How memory is pinned in a process.");
	for (unsigned i = 0; i < all->count; i++) {
		char *at =
			put_labels(put_text(out_reserve(), "pindown_process_info"), &all->list[i]);

		*at++ = ',';
		at = put_label(at, "backend", all->list[i].stats.backend);
		out_commit(put_text(at, "} 1\n"));
	}
}

void print_openmetrics(const struct processes *all)
{
	for (unsigned i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		print_metric(all, &metrics[i]);
	print_devices(all);
	print_processes(all);
	out_print("# EOF\n");
}
