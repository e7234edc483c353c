/* SPDX-License-Identifier: MIT */
/* Accounts for every pinned byte, of the process and of each GPU. */
#define _GNU_SOURCE
#include "cache/account.h"

#include <string.h>

#include "cache/base/lock.h"

struct pdn_account pdn_total, pdn_devices[PDN_MAX_DEVICES];
struct pdn_counts pdn_counts;
bool pdn_untold_process;
uint64_t pdn_untold_devices;

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

static void add_unpins(struct pdn_account *account, uint32_t count, uint64_t bytes)
{
	account->unpins += count;
	account->regions -= count;
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

static void add_outs(struct pdn_account *account, uint32_t count, bool evicted)
{
	if (evicted)
		account->evictions += count;
	else
		account->invalidations += count;
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
	pdn_untold_devices |= 1ull << device;
	return &pdn_devices[device];
}

static void process_changed(void)
{
	pdn_stats_changed = pdn_untold_process = true;
}

void pdn_account_export_saved(void)
{
	pdn_counts.exports_saved++;
	process_changed();
}

void pdn_account_pin(const struct pindown_region *region)
{
	struct pdn_account *own = changing(region->device);
	uint64_t bytes = pdn_region_pin_length(region);

	/* The first one of a device chooses a backend for it. */
	if (!own || !own->pins)
		pdn_untold_process = true;
	add_pin(&pdn_total, bytes);
	if (own)
		add_pin(own, bytes);
	if (pdn_region_flags(region) & PDN_REGION_FELL_BACK) {
		pdn_counts.fallbacks++;
		pdn_untold_process = true;
	}
}

void pdn_account_unpins(int device, uint32_t count, uint64_t bytes)
{
	struct pdn_account *own = changing(device);

	add_unpins(&pdn_total, count, bytes);
	if (own)
		add_unpins(own, count, bytes);
}

void pdn_account_unpin(const struct pindown_region *region, bool was_kept)
{
	uint64_t bytes = pdn_region_pin_length(region);

	pdn_account_unpins(region->device, 1, bytes);
	if (!was_kept)
		return;
	pdn_untold_process = true;
	add_no_longer_kept(&pdn_total, bytes);
	if (has_account(region->device))
		add_no_longer_kept(&pdn_devices[region->device], bytes);
}

void pdn_account_kept(const struct pindown_region *region)
{
	struct pdn_account *own = changing(region->device);
	uint64_t bytes = pdn_region_pin_length(region);

	pdn_untold_process = true;
	add_kept(&pdn_total, bytes);
	if (own)
		add_kept(own, bytes);
}

/* The page shows it with the next change: at once the region is unpinned or kept. */
void pdn_account_outs(int device, uint32_t count, enum pindown_reason reason)
{
	bool evicted = reason == PINDOWN_REASON_EVICTED;

	if (reason == PINDOWN_REASON_FLUSHED)
		return;
	add_outs(&pdn_total, count, evicted);
	if (has_account(device))
		add_outs(&pdn_devices[device], count, evicted);
}

void pdn_account_out(const struct pindown_region *region, bool missed)
{
	pdn_counts.missed_invalidations += missed;
	pdn_untold_process |= missed;
	if (!(region->flags & PDN_REGION_REPLACED))
		pdn_account_outs(region->device, 1, (enum pindown_reason)region->reason);
}

void pdn_account_pin_failure(void)
{
	pdn_counts.pin_failures++;
	process_changed();
}

void pdn_account_lost_race(void)
{
	pdn_counts.lost_races++;
	process_changed();
}

void pdn_account_unprotected(void)
{
	pdn_counts.unprotected++;
	process_changed();
}

void pdn_account_left_to_card(void)
{
	pdn_counts.left_to_card++;
	process_changed();
}

void pdn_account_process(void)
{
	process_changed();
}

void pdn_account_object_made(void)
{
	pdn_counts.objects++;
	pdn_counts.objects_made++;
	process_changed();
}

void pdn_account_object_gone(bool revoked)
{
	pdn_counts.objects--;
	pdn_counts.objects_revoked += revoked;
	process_changed();
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
	pdn_untold_process = true;
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

void pdn_accounts_fork_child(void)
{
	memset(&pdn_total, 0, sizeof(pdn_total));
	memset(pdn_devices, 0, sizeof(pdn_devices));
	pdn_stats_changed = pdn_untold_process = false;
	pdn_untold_devices = 0;
	memset(&pdn_counts, 0, sizeof(pdn_counts));
}
