/* SPDX-License-Identifier: MIT */
/* The statistics: for pindown_stats(), and for the page that `pindown top` reads. */
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>

#include "cache/show/account.h"
#include "cache/backend/backend.h"
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/notify.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/room/budget.h"
#include "cache/pindown.h"
#include "cache/retire/retired.h"
#include "cache/show/format.h"
#include "cache/show/page.h"
#include "cache/trust/trust.h"

/*
 * Into the page that `pindown top` reads, or into a copy for the caller. Release: a reader that
 * sees one of these in the page sees the odd number that was stored before (show/page.c).
 */
static void put(uint64_t *where, uint64_t value)
{
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
}

static void put32(uint32_t *where, uint32_t value)
{
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
}

_Static_assert(PDN_MAX_DEVICES <= PDN_TOP_DEVICES, "each has a place in the page");

static void fill_account(struct pindown_stats *stats, const struct pdn_account *account)
{
	put(&stats->pins, account->pins);
	put(&stats->unpins, account->unpins);
	put(&stats->evictions, account->evictions);
	put(&stats->invalidations, account->invalidations);
	put(&stats->regions, account->regions);
	put(&stats->bytes, account->bytes);
	put(&stats->peak_regions, account->peak_regions);
	put(&stats->peak_bytes, account->peak_bytes);
	put(&stats->kept_regions, account->kept_regions);
	put(&stats->kept_bytes, account->kept_bytes);
	put(&stats->object_kept_regions, account->object_kept_regions);
	put(&stats->object_kept_bytes, account->object_kept_bytes);
}

static uint64_t sum(size_t which)
{
	uint64_t own = *(uint64_t *)(void *)((char *)&pdn_anonymous.own_counters + which);

	return own + pdn_counter_sum((unsigned)which);
}

static void fill_process(struct pindown_stats *stats)
{
	put(&stats->dmabufs, pdn_dmabufs_open());
	put(&stats->pin_failures, pdn_counts.pin_failures);
	put(&stats->lost_races, pdn_counts.lost_races);
	put(&stats->missed_invalidations, pdn_counts.missed_invalidations);
	put(&stats->objects, pdn_counts.objects);
	put(&stats->objects_made, pdn_counts.objects_made);
	put(&stats->objects_revoked, pdn_counts.objects_revoked);
	put(&stats->fallbacks, pdn_counts.fallbacks);
	put(&stats->retired, pdn_counts.retired);
	put(&stats->retired_ranges, pdn_retired_ranges());
	put(&stats->retired_bytes, pdn_retired_bytes);
	put(&stats->retired_dropped, pdn_counts.retired_dropped);
	put(&stats->escapes, pdn_counts.escapes);
	put(&stats->unprotected, pdn_counts.unprotected);
	put(&stats->left_to_card, pdn_counts.left_to_card);
	put(&stats->exports_saved, pdn_counts.exports_saved);
	put32(&stats->intercepting, pdn_is_intercepting());
	put32(&stats->distrusted, pdn_is_distrusted());
}

static void fill_settings(struct pindown_stats *stats)
{
	put(&stats->max_bytes, pdn_config()->max_bytes);
	put(&stats->max_regions, pdn_max_regions());
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
	put(&stats->max_dmabufs, pdn_backend_pins_take_descriptors() ? pdn_dmabufs_max() : 0);
}

static void fill_counters(struct pindown_stats *stats)
{
	stats->hits = sum(offsetof(struct pdn_counters, hits));
	stats->misses = sum(offsetof(struct pdn_counters, misses));
	stats->tag_checks = sum(offsetof(struct pdn_counters, tag_checks));
}

/* Relaxed: pairs with pdn_count(); the sum need not be exact. */
static void add_counters(struct pdn_counters *sum, const struct pdn_counters *counters)
{
	sum->hits += __atomic_load_n(&counters->hits, __ATOMIC_RELAXED);
	sum->misses += __atomic_load_n(&counters->misses, __ATOMIC_RELAXED);
	sum->tag_checks += __atomic_load_n(&counters->tag_checks, __ATOMIC_RELAXED);
}

static void add_counters_of_threads(struct pdn_counters *sum)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk)))
		/* As in pdn_counter_sum(). */
		if (__atomic_load_n(&t->life, __ATOMIC_ACQUIRE) == pdn_thread_life &&
		    !__atomic_load_n(&t->in_page, __ATOMIC_RELAXED))
			add_counters(sum, __atomic_load_n(&t->counters, __ATOMIC_ACQUIRE));
}

/* The reader of the page adds the counts in its slots: these are the other threads'. */
static void fill_other_counters(struct pindown_stats *stats)
{
	struct pdn_counters sum = {0};

	add_counters(&sum, &pdn_anonymous.own_counters);
	add_counters(&sum, &pdn_thread_ended[false]);
	if (!pdn_top_counts_all())
		add_counters_of_threads(&sum);
	put(&stats->hits, sum.hits);
	put(&stats->misses, sum.misses);
	put(&stats->tag_checks, sum.tag_checks);
}

static const char *told_backend;

/* One is chosen at a device's first pin. Asking for the limit costs system calls. */
static void tell_backend(struct pindown_stats *stats)
{
	const char *backend = pdn_backend_name();

	if (backend == told_backend)
		return;
	fill_backend(stats, backend);
	fill_limit(stats);
	told_backend = backend;
}

static void tell(void)
{
	struct pdn_top_page *page = pdn_top_begin();

	pdn_stats_changed = false;
	if (!page)
		return;
	fill_account(&page->stats, &pdn_total);
	fill_process(&page->stats);
	fill_other_counters(&page->stats);
	tell_backend(&page->stats);
	for (unsigned device = 0; device < PDN_MAX_DEVICES; device++) {
		put(&page->devices[device].bytes, pdn_devices[device].bytes);
		put(&page->devices[device].regions, pdn_devices[device].regions);
	}
	pdn_top_end(page);
}

/* The page is new. */
static void publish(void)
{
	struct pdn_top_page *page = pdn_top_begin();

	fill_settings(&page->stats);
	pdn_top_end(page);
	told_backend = NULL;
	pdn_stats_changed = true;
}

PDN_NOTIFIED(untold, tell);
PDN_NOTIFIED(page_made, publish);

PDN_EXPORT int pindown_stats(struct pindown_stats *stats, size_t size, int device)
{
	PDN_UNCANCELLED;
	struct pindown_stats all;
	const struct pdn_account *account;
	const char *backend = pdn_backend_name();

	if (!stats || size == 0 || device < -1 || device >= PDN_MAX_DEVICES)
		return PINDOWN_ERR_INVALID;
	memset(&all, 0, sizeof(all));
	pdn_lock();
	account = device < 0 ? &pdn_total : &pdn_devices[device];
	fill_account(&all, account);
	if (device < 0) {
		fill_process(&all);
		fill_settings(&all);
		fill_counters(&all);
	}
	pdn_unlock();
	if (device < 0) {
		fill_backend(&all, backend);
		fill_limit(&all);
	}
	memset(stats, 0, size);
	memcpy(stats, &all, size < sizeof(all) ? size : sizeof(all));
	return PINDOWN_OK;
}
