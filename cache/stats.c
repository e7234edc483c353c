/* SPDX-License-Identifier: MIT */
/* Every pinned byte is accounted for, per process and per GPU. All under the lock. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>

#include "cache/cache.h"
#include "cache/base/cancel.h"
#include "cache/backend/backend.h"
#include "cache/base/config.h"
#include "cache/region_dmabuf.h"
#include "cache/top/page.h"
#include "cache/objects/object.h"

struct account {
	uint64_t pins, unpins, evictions, invalidations;
	uint64_t regions, bytes, kept_regions, kept_bytes, peak_regions, peak_bytes;
	uint64_t object_kept_regions, object_kept_bytes;
};

static struct account total, devices[PD_MAX_DEVICES];
static uint64_t pin_failures, lost_races, missed_invalidations, fallbacks;
static uint64_t objects, objects_made, objects_revoked;

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

/* What the page for `pindown top` does not say yet: it will when the lock is let go. Lock held. */
static bool untold_process;	/* what is counted for the process as a whole */
static uint64_t untold_devices; /* one bit for each */

static bool has_account(int device)
{
	return device >= 0 && device < PD_MAX_DEVICES;
}

/* The device's own account, or NULL; what changes in it, and in the process's, is to be told. */
static struct account *changing(int device)
{
	pd_untold = true;
	if (!has_account(device))
		return NULL;
	untold_devices |= 1ull << device;
	return &devices[device];
}

static void process_changed(void)
{
	pd_untold = untold_process = true;
}

void pd_account_pin(const struct pd_details *details)
{
	struct account *own = changing(details->pin.device);

	add_pin(&total, details->pin.length);
	if (own)
		add_pin(own, details->pin.length);
	fallbacks += details->pin.fell_back;
	untold_process |= details->pin.fell_back;
}

void pd_account_unpin(const struct pd_details *details, bool was_kept)
{
	struct account *own = changing(details->pin.device);

	add_unpin(&total, details->pin.length, was_kept);
	if (own)
		add_unpin(own, details->pin.length, was_kept);
}

void pd_account_kept(const struct pd_details *details)
{
	struct account *own = changing(details->pin.device);

	add_kept(&total, details->pin.length);
	if (own)
		add_kept(own, details->pin.length);
}

/* To be told with what follows at once: it is unpinned, or it is kept. */
void pd_account_out(const struct pd_details *details, bool missed)
{
	bool evicted = details->reason == PINDOWN_REASON_EVICTED;

	missed_invalidations += missed;
	untold_process |= missed;
	if (details->reason == PINDOWN_REASON_FLUSHED)
		return;
	add_out(&total, evicted);
	if (has_account(details->pin.device))
		add_out(&devices[details->pin.device], evicted);
}

void pd_account_pin_failure(void)
{
	pin_failures++;
	process_changed();
}

void pd_account_lost_race(void)
{
	lost_races++;
	process_changed();
}

void pd_account_trust(void)
{
	process_changed();
}

void pd_account_object_made(void)
{
	objects++;
	objects_made++;
	process_changed();
}

void pd_account_object_gone(bool revoked)
{
	objects--;
	objects_revoked += revoked;
	process_changed();
}

static void add_object_kept(struct account *account, uint64_t bytes, bool kept)
{
	account->object_kept_regions += kept ? 1 : -1ull;
	account->object_kept_bytes += kept ? bytes : -bytes;
}

void pd_account_objects(struct pindown_region *region)
{
	const struct pd_details *details = pd_details_of(region);
	struct account *own;
	bool kept =
		pd_brief_of(region)->state == PD_KEPT && pd_objects_of[pd_region_number(region)];

	if (kept == !!(details->flags & PD_REGION_OBJECTS))
		return;
	own = changing(details->pin.device);
	pd_region_set_flags(region, details->flags ^ PD_REGION_OBJECTS);
	add_object_kept(&total, details->pin.length, kept);
	if (own)
		add_object_kept(own, details->pin.length, kept);
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
	pd_untold = untold_process = false;
	untold_devices = 0;
	pin_failures = lost_races = missed_invalidations = fallbacks = 0;
	objects = objects_made = objects_revoked = 0;
}

/* ---- for the caller ----------------------------------------------------------------------- */

/*
 * Into the page that `pindown top` reads, or into a copy for the caller. Release: who sees one of
 * these in the page sees the odd number that was stored before (top/page.c).
 */
static inline __attribute__((always_inline)) void put(uint64_t *where, uint64_t value)
{
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
}

static inline void put32(uint32_t *where, uint32_t value)
{
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
}

static void fill_account(struct pindown_stats *stats, const struct account *account)
{
	put(&stats->pins, account->pins);
	put(&stats->unpins, account->unpins);
	put(&stats->evictions, account->evictions);
	put(&stats->invalidations, account->invalidations);
	put(&stats->regions, account->regions);
	put(&stats->bytes, account->bytes);
	put(&stats->kept_regions, account->kept_regions);
	put(&stats->kept_bytes, account->kept_bytes);
	put(&stats->peak_regions, account->peak_regions);
	put(&stats->peak_bytes, account->peak_bytes);
	put(&stats->object_kept_regions, account->object_kept_regions);
	put(&stats->object_kept_bytes, account->object_kept_bytes);
}

static uint64_t sum(size_t which)
{
	uint64_t own = *(uint64_t *)(void *)((char *)&pd_anonymous.own_counters + which);

	return own + pd_counter_sum((unsigned)which);
}

static void fill_process(struct pindown_stats *stats)
{
	put(&stats->pin_failures, pin_failures);
	put(&stats->lost_races, lost_races);
	put(&stats->missed_invalidations, missed_invalidations);
	put(&stats->objects, objects);
	put(&stats->objects_made, objects_made);
	put(&stats->objects_revoked, objects_revoked);
	put(&stats->fallbacks, fallbacks);
	put32(&stats->intercepting, pd_is_intercepting());
	put32(&stats->distrusted, pd_is_distrusted());
}

static void fill_settings(struct pindown_stats *stats)
{
	put(&stats->max_bytes, pd_config()->max_bytes);
	put(&stats->max_regions, pd_max_regions());
}

static void fill_backend(struct pindown_stats *stats, const char *name)
{
	uint64_t words[sizeof(stats->backend) / 8] = {0};

	strncpy((char *)words, name, sizeof(words) - 1);
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		put((uint64_t *)(void *)stats->backend + i, words[i]);
}

/* Asks the system. */
static void fill_limit(struct pindown_stats *stats)
{
	put(&stats->max_dmabufs, pd_backend_pins_take_descriptors() ? pd_dmabufs_most() : 0);
}

static void fill_counters(struct pindown_stats *stats)
{
	stats->hits = sum(offsetof(struct pd_counters, hits));
	stats->misses = sum(offsetof(struct pd_counters, misses));
	stats->tag_checks = sum(offsetof(struct pd_counters, tag_checks));
}

/* What the page's slots count, its reader adds: these are the other threads'. */
static void fill_other_counters(struct pindown_stats *stats)
{
	const struct pd_counters *nobodys = &pd_anonymous.own_counters;
	uint64_t hits = __atomic_load_n(&nobodys->hits, __ATOMIC_RELAXED);
	uint64_t misses = __atomic_load_n(&nobodys->misses, __ATOMIC_RELAXED);
	uint64_t tag_checks = __atomic_load_n(&nobodys->tag_checks, __ATOMIC_RELAXED);

	for (struct pd_thread *t = pd_live_counts_all() ? NULL : pd_threads(); t; t = t->next) {
		/*
		 * Acquire: as in pd_counter_sum(); relaxed, as there: any number of late will do.
		 */
		const struct pd_counters *counters =
			__atomic_load_n(&t->counters, __ATOMIC_ACQUIRE);

		if (pd_live_counts(counters))
			continue;
		hits += __atomic_load_n(&counters->hits, __ATOMIC_RELAXED);
		misses += __atomic_load_n(&counters->misses, __ATOMIC_RELAXED);
		tag_checks += __atomic_load_n(&counters->tag_checks, __ATOMIC_RELAXED);
	}
	put(&stats->hits, hits);
	put(&stats->misses, misses);
	put(&stats->tag_checks, tag_checks);
}

/* What does not change at a pin: asking for it would cost system calls. */
static const char *told_backend;

static void tell(void)
{
	struct pindown_stats *stats = pd_live_begin();
	const char *backend;
	uint64_t told = untold_devices;
	bool process = untold_process;

	pd_untold = untold_process = false;
	untold_devices = 0;
	if (!stats)
		return;
	backend = pd_backend_name(); /* one is chosen at the first pin */
	fill_account(stats, &total);
	if (process)
		fill_process(stats);
	fill_other_counters(stats);
	put(&stats->dmabufs, pd_dmabufs_open());
	if (backend != told_backend) {
		fill_backend(stats, backend);
		fill_limit(stats);
	}
	told_backend = backend;
	for (; told; told &= told - 1) {
		unsigned device = (unsigned)__builtin_ctzll(told);

		pd_live_put_device(device, devices[device].bytes, devices[device].regions);
	}
	pd_live_end();
}

/* The page is new. */
static void publish(void)
{
	fill_settings(pd_live_begin());
	pd_live_end();
	told_backend = NULL;
	process_changed();
}

PD_NOTIFIED(untold, tell);
PD_NOTIFIED(page_made, publish);

PD_EXPORT int pindown_stats(struct pindown_stats *stats, size_t size, int device)
{
	PD_UNCANCELLED;
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
		put(&all.dmabufs, pd_dmabufs_open());
	}
	pd_unlock();
	if (device < 0) {
		fill_backend(&all, backend);
		fill_limit(&all);
	}
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
		.flags = (uint16_t)(flags | (pd_region_flags(region) & PD_REGION_VOLATILE
						     ? PD_TRACE_VOLATILE
						     : 0)),
	};

	pd_trace_region(event, &what, begin, end);
}
