/* SPDX-License-Identifier: MIT */
/* Every pinned byte is accounted for, per process and per GPU. All under the lock. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>

#include "cache.h"
#include "config.h"
#include "live.h"
#include "object.h"

struct account {
	uint64_t pins, unpins, evictions, invalidations;
	uint64_t regions, bytes, kept_regions, kept_bytes, peak_regions, peak_bytes;
	uint64_t object_kept_regions, object_kept_bytes;
};

static struct account total, devices[PD_MAX_DEVICES];
static uint64_t pin_failures, lost_races, missed_invalidations;
static uint64_t objects, objects_made, objects_revoked;

static struct account *account_of(const struct pindown_region *region)
{
	int device = pd_details_of(region)->pin.device;

	return device >= 0 && device < PD_MAX_DEVICES ? &devices[device] : NULL;
}

static void add_pin(struct account *account, uint64_t bytes)
{
	account->pins++;
	account->regions++;
	account->bytes += bytes;
	if (account->regions > account->peak_regions)
		account->peak_regions = account->regions;
	if (account->bytes > account->peak_bytes)
		account->peak_bytes = account->bytes;
}

static void add_unpin(struct account *account, uint64_t bytes, bool was_kept)
{
	account->unpins++;
	account->regions--;
	account->bytes -= bytes;
	if (was_kept) {
		account->kept_regions--;
		account->kept_bytes -= bytes;
	}
}

static void add_kept(struct account *account, uint64_t bytes)
{
	account->kept_regions++;
	account->kept_bytes += bytes;
}

static void add_out(struct account *account, bool evicted)
{
	if (evicted)
		account->evictions++;
	else
		account->invalidations++;
}

/* To `pindown top`; region: whose device has changed, or NULL. */
static void publish(const struct pindown_region *region);

void pd_account_pin(const struct pindown_region *region)
{
	struct account *own = account_of(region);

	add_pin(&total, pd_details_of(region)->pin.length);
	if (own)
		add_pin(own, pd_details_of(region)->pin.length);
	publish(region);
}

void pd_account_unpin(const struct pindown_region *region, bool was_kept)
{
	struct account *own = account_of(region);

	add_unpin(&total, pd_details_of(region)->pin.length, was_kept);
	if (own)
		add_unpin(own, pd_details_of(region)->pin.length, was_kept);
	publish(region);
}

void pd_account_kept(const struct pindown_region *region)
{
	struct account *own = account_of(region);

	add_kept(&total, pd_details_of(region)->pin.length);
	if (own)
		add_kept(own, pd_details_of(region)->pin.length);
	publish(region);
}

void pd_account_out(const struct pindown_region *region, bool missed)
{
	struct account *own = account_of(region);

	missed_invalidations += missed;
	if (pd_details_of(region)->reason == PINDOWN_REASON_FLUSHED)
		return;
	add_out(&total, pd_details_of(region)->reason == PINDOWN_REASON_EVICTED);
	if (own)
		add_out(own, pd_details_of(region)->reason == PINDOWN_REASON_EVICTED);
	publish(region);
}

void pd_account_pin_failure(void)
{
	pin_failures++;
	publish(NULL);
}

void pd_account_lost_race(void)
{
	lost_races++;
	publish(NULL);
}

void pd_account_object_made(void)
{
	objects++;
	objects_made++;
	publish(NULL);
}

void pd_account_object_gone(bool revoked)
{
	objects--;
	objects_revoked += revoked;
	publish(NULL);
}

static void add_object_kept(struct account *account, uint64_t bytes, bool kept)
{
	account->object_kept_regions += kept ? 1 : -1ull;
	account->object_kept_bytes += kept ? bytes : -bytes;
}

void pd_account_objects(struct pindown_region *region)
{
	struct account *own = account_of(region);
	bool kept = region->state == PD_KEPT && pd_objects_of[pd_region_number(region)];

	if (kept == !!(pd_details_of(region)->flags & PD_REGION_OBJECTS))
		return;
	pd_region_set_flags(region, pd_details_of(region)->flags ^ PD_REGION_OBJECTS);
	add_object_kept(&total, pd_details_of(region)->pin.length, kept);
	if (own)
		add_object_kept(own, pd_details_of(region)->pin.length, kept);
	publish(region);
}

uint64_t pd_pinned_bytes(void)
{
	return total.bytes;
}

uint64_t pd_pinned_regions(void)
{
	return total.regions;
}

void pd_stats_fork_child(void)
{
	memset(&total, 0, sizeof(total));
	memset(devices, 0, sizeof(devices));
	pin_failures = lost_races = missed_invalidations = 0;
	objects = objects_made = objects_revoked = 0;
}

/* ---- for the caller ----------------------------------------------------------------------- */

static void fill_account(struct pindown_stats *stats, const struct account *account)
{
	stats->pins = account->pins;
	stats->unpins = account->unpins;
	stats->evictions = account->evictions;
	stats->invalidations = account->invalidations;
	stats->regions = account->regions;
	stats->bytes = account->bytes;
	stats->kept_regions = account->kept_regions;
	stats->kept_bytes = account->kept_bytes;
	stats->peak_regions = account->peak_regions;
	stats->peak_bytes = account->peak_bytes;
	stats->object_kept_regions = account->object_kept_regions;
	stats->object_kept_bytes = account->object_kept_bytes;
}

static uint64_t sum(size_t which)
{
	uint64_t own = *(uint64_t *)(void *)((char *)&pd_anonymous.own_counters + which);

	return own + pd_counter_sum((unsigned)which);
}

static void fill_process(struct pindown_stats *stats)
{
	stats->pin_failures = pin_failures;
	stats->lost_races = lost_races;
	stats->missed_invalidations = missed_invalidations;
	stats->objects = objects;
	stats->objects_made = objects_made;
	stats->objects_revoked = objects_revoked;
}

static void fill_settings(struct pindown_stats *stats)
{
	stats->max_bytes = pd_config()->max_bytes;
	stats->max_regions = pd_max_regions();
	stats->intercepting = pd_intercepting;
}

static void fill_counters(struct pindown_stats *stats)
{
	stats->hits = sum(offsetof(struct pd_counters, hits));
	stats->misses = sum(offsetof(struct pd_counters, misses));
	stats->tag_checks = sum(offsetof(struct pd_counters, tag_checks));
}

static void add_counters(struct pd_counters *to, const struct pd_counters *counters)
{
	to->hits += __atomic_load_n(&counters->hits, __ATOMIC_RELAXED);
	to->misses += __atomic_load_n(&counters->misses, __ATOMIC_RELAXED);
	to->tag_checks += __atomic_load_n(&counters->tag_checks, __ATOMIC_RELAXED);
}

/* What the page's slots count, its reader adds: these are the other threads'. */
static void fill_other_counters(struct pindown_stats *stats)
{
	struct pd_counters all = {.hits = 0};

	add_counters(&all, &pd_anonymous.own_counters);
	for (struct pd_thread *t = pd_threads(); t; t = t->next) {
		const struct pd_counters *counters =
			__atomic_load_n(&t->counters, __ATOMIC_ACQUIRE);

		if (!pd_live_counts(counters))
			add_counters(&all, counters);
	}
	stats->hits = all.hits;
	stats->misses = all.misses;
	stats->tag_checks = all.tag_checks;
}

/* At each pin: what does not change is filled in once, and asking for it would cost system calls. */
static struct pindown_stats published;

static void publish(const struct pindown_region *region)
{
	const struct account *own = region ? account_of(region) : NULL;

	if (!pd_live_is_open())
		return;
	fill_account(&published, &total);
	fill_process(&published);
	fill_other_counters(&published);
	strncpy(published.backend, pd_backend_name(), sizeof(published.backend) - 1);
	pd_live_publish(&published);
	if (own)
		pd_live_publish_device((unsigned)(own - devices), own->bytes, own->regions);
}

void pd_stats_publish(void)
{
	fill_settings(&published);
	publish(NULL);
}

PD_EXPORT int pindown_stats(struct pindown_stats *stats, size_t size, int device)
{
	struct pindown_stats all;
	const char *backend = pd_backend_name();

	if (!stats || size == 0 || device < -1 || device >= PD_MAX_DEVICES)
		return PINDOWN_ERR_INVALID;
	memset(&all, 0, sizeof(all));
	pd_lock();
	fill_account(&all, device < 0 ? &total : &devices[device]);
	if (device < 0) {
		fill_process(&all);
		fill_settings(&all);
		fill_counters(&all);
	}
	pd_unlock();
	if (device < 0)
		strncpy(all.backend, backend, sizeof(all.backend) - 1);
	memset(stats, 0, size);
	memcpy(stats, &all, size < sizeof(all) ? size : sizeof(all));
	return PINDOWN_OK;
}

void pd_trace_about(enum pd_event event, const struct pindown_region *region, int result,
		    unsigned flags, uint64_t begin, uint64_t end)
{
	struct pd_trace_region what = {
		.addr = region->base,
		.size = region->end - region->base,
		.pin_addr = pd_details_of(region)->pin.base,
		.pin_size = pd_details_of(region)->pin.length,
		.buffer_id = pd_details_of(region)->buffer_id,
		.context = (uintptr_t)pd_details_of(region)->context,
		.region = pd_region_number(region),
		.device = pd_details_of(region)->pin.device,
		.result = result,
		.reason = pd_details_of(region)->reason,
		.flags = (uint16_t)(flags | (pd_details_of(region)->flags & PD_REGION_VOLATILE
						     ? PD_TRACE_VOLATILE
						     : 0)),
	};

	pd_trace_region(event, &what, begin, end);
}
