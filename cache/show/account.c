/* SPDX-License-Identifier: MIT */
/* Accounts for every pinned byte, of the process and of each GPU. */
#define _GNU_SOURCE
#include "cache/show/account.h"

#include "cache/base/thread/lock.h"

PDN_NOT_INHERITED struct pdn_account pdn_total, pdn_devices[PDN_MAX_DEVICES];
PDN_NOT_INHERITED struct pdn_counts pdn_counts;

static void add_pin(struct pdn_account *account, uint64_t bytes)
{
	account->pins++;
	account->regions++;
	account->bytes += bytes;
	if (account->regions > account->peak_regions)
		account->peak_regions = account->regions;
	if (account->bytes > account->peak_bytes)
		account->peak_bytes = account->bytes;
}

static void add_unpin(struct pdn_account *account, uint64_t bytes)
{
	account->unpins++;
	account->regions--;
	account->bytes -= bytes;
}

static void add_no_longer_kept(struct pdn_account *account, uint64_t bytes)
{
	account->kept_regions--;
	account->kept_bytes -= bytes;
}

static void add_kept(struct pdn_account *account, uint64_t bytes)
{
	account->kept_regions++;
	account->kept_bytes += bytes;
}

static void add_out(struct pdn_account *account, bool evicted)
{
	if (evicted)
		account->evictions++;
	else
		account->invalidations++;
}

static bool has_account(int device)
{
	return device >= 0 && device < PDN_MAX_DEVICES;
}

/*
 * The device's own account, or NULL. The caller changes it and the process's; the page shows that
 * later.
 */
static struct pdn_account *changing(int device)
{
	pdn_stats_changed = true;
	if (!has_account(device))
		return NULL;
	return &pdn_devices[device];
}

void pdn_account_export_saved(void)
{
	pdn_counts.exports_saved++;
	pdn_stats_changed = true;
}

void pdn_account_pin(const struct pindown_region *region)
{
	struct pdn_account *own = changing(region->device);
	uint64_t bytes = pdn_region_pin_length(region);

	add_pin(&pdn_total, bytes);
	if (own)
		add_pin(own, bytes);
	if (pdn_region_flags(region) & PDN_REGION_FELL_BACK)
		pdn_counts.fallbacks++;
}

void pdn_account_unpin(const struct pindown_region *region, bool was_kept)
{
	struct pdn_account *own = changing(region->device);
	uint64_t bytes = pdn_region_pin_length(region);

	add_unpin(&pdn_total, bytes);
	if (own)
		add_unpin(own, bytes);
	if (!was_kept)
		return;
	add_no_longer_kept(&pdn_total, bytes);
	if (own)
		add_no_longer_kept(own, bytes);
}

void pdn_account_kept(const struct pindown_region *region)
{
	struct pdn_account *own = changing(region->device);
	uint64_t bytes = pdn_region_pin_length(region);

	add_kept(&pdn_total, bytes);
	if (own)
		add_kept(own, bytes);
}

/* The page shows it with the next change: at once the region is unpinned or kept. */
void pdn_account_out(const struct pindown_region *region, bool missed)
{
	bool evicted = region->reason == PINDOWN_REASON_EVICTED;

	pdn_counts.missed_invalidations += missed;
	if (region->flags & PDN_REGION_REPLACED || region->reason == PINDOWN_REASON_FLUSHED)
		return;
	add_out(&pdn_total, evicted);
	if (has_account(region->device))
		add_out(&pdn_devices[region->device], evicted);
}

void pdn_account_pin_failure(void)
{
	pdn_counts.pin_failures++;
	pdn_stats_changed = true;
}

void pdn_account_lost_race(void)
{
	pdn_counts.lost_races++;
	pdn_stats_changed = true;
}

void pdn_account_unprotected(void)
{
	pdn_counts.unprotected++;
	pdn_stats_changed = true;
}

void pdn_account_left_to_card(void)
{
	pdn_counts.left_to_card++;
	pdn_stats_changed = true;
}

void pdn_account_process(void)
{
	pdn_stats_changed = true;
}

void pdn_account_object_made(void)
{
	pdn_counts.objects++;
	pdn_counts.objects_made++;
	pdn_stats_changed = true;
}

void pdn_account_object_gone(bool revoked)
{
	pdn_counts.objects--;
	pdn_counts.objects_revoked += revoked;
	pdn_stats_changed = true;
}

static void add_object_kept(struct pdn_account *account, uint64_t bytes, bool kept)
{
	account->object_kept_regions += kept ? 1 : -1ull;
	account->object_kept_bytes += kept ? bytes : -bytes;
}

void pdn_account_objects(struct pindown_region *region)
{
	uint64_t bytes = pdn_region_pin_length(region);
	struct pdn_account *own;
	bool kept = pdn_state_of(pdn_region_number(region)) == PDN_KEPT &&
		    pdn_objects_of[pdn_region_number(region)];

	if (kept == !!(region->flags & PDN_REGION_OBJECTS))
		return;
	own = changing(region->device);
	pdn_region_set_flags(region, region->flags ^ PDN_REGION_OBJECTS);
	add_object_kept(&pdn_total, bytes, kept);
	if (own)
		add_object_kept(own, bytes, kept);
}

uint64_t pdn_pinned_bytes_of(int device)
{
	return has_account(device) ? pdn_devices[device].bytes : 0;
}

uint64_t pdn_pinned_bytes(void)
{
	return pdn_total.bytes;
}

uint64_t pdn_pinned_regions(void)
{
	return pdn_total.regions;
}
