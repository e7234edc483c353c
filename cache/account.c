/* SPDX-License-Identifier: MIT */
/* Accounts for every pinned byte, of the process and of each GPU. */
#define _GNU_SOURCE
#include "cache/account.h"

#include <string.h>

#include "cache/base/lock.h"

struct pd_account pd_total, pd_devices[PD_MAX_DEVICES];
struct pd_counts pd_counts;
bool pd_untold_process;
uint64_t pd_untold_devices;

static void add_pin(struct pd_account *account, uint64_t bytes)
{
	account->pins++;
	account->regions++;
	account->bytes += bytes;
	if (account->regions > account->peak_regions)
		account->peak_regions = account->regions;
	if (account->bytes > account->peak_bytes)
		account->peak_bytes = account->bytes;
}

static void add_unpin(struct pd_account *account, uint64_t bytes, bool was_kept)
{
	account->unpins++;
	account->regions--;
	account->bytes -= bytes;
	if (was_kept) {
		account->kept_regions--;
		account->kept_bytes -= bytes;
	}
}

static void add_kept(struct pd_account *account, uint64_t bytes)
{
	account->kept_regions++;
	account->kept_bytes += bytes;
}

static void add_out(struct pd_account *account, bool evicted)
{
	if (evicted)
		account->evictions++;
	else
		account->invalidations++;
}

static bool has_account(int device)
{
	return device >= 0 && device < PD_MAX_DEVICES;
}

/*
 * The device's own account, or NULL. The caller changes it and the process's, and the page is told.
 */
static struct pd_account *changing(int device)
{
	pd_untold = true;
	if (!has_account(device))
		return NULL;
	pd_untold_devices |= 1ull << device;
	return &pd_devices[device];
}

static void process_changed(void)
{
	pd_untold = pd_untold_process = true;
}

void pd_account_pin(const struct pd_details *details)
{
	struct pd_account *own = changing(details->pin.device);

	add_pin(&pd_total, details->pin.length);
	if (own)
		add_pin(own, details->pin.length);
	pd_counts.fallbacks += details->pin.fell_back;
	pd_untold_process |= details->pin.fell_back;
}

void pd_account_unpin(const struct pd_details *details, bool was_kept)
{
	struct pd_account *own = changing(details->pin.device);

	add_unpin(&pd_total, details->pin.length, was_kept);
	if (own)
		add_unpin(own, details->pin.length, was_kept);
}

void pd_account_kept(const struct pd_details *details)
{
	struct pd_account *own = changing(details->pin.device);

	add_kept(&pd_total, details->pin.length);
	if (own)
		add_kept(own, details->pin.length);
}

/* The page is told with the change that follows at once: the region is unpinned, or it is kept. */
void pd_account_out(const struct pd_details *details, bool missed)
{
	bool evicted = details->reason == PINDOWN_REASON_EVICTED;

	pd_counts.missed_invalidations += missed;
	pd_untold_process |= missed;
	if (details->reason == PINDOWN_REASON_FLUSHED)
		return;
	add_out(&pd_total, evicted);
	if (has_account(details->pin.device))
		add_out(&pd_devices[details->pin.device], evicted);
}

void pd_account_pin_failure(void)
{
	pd_counts.pin_failures++;
	process_changed();
}

void pd_account_lost_race(void)
{
	pd_counts.lost_races++;
	process_changed();
}

void pd_account_trust(void)
{
	process_changed();
}

void pd_account_object_made(void)
{
	pd_counts.objects++;
	pd_counts.objects_made++;
	process_changed();
}

void pd_account_object_gone(bool revoked)
{
	pd_counts.objects--;
	pd_counts.objects_revoked += revoked;
	process_changed();
}

static void add_object_kept(struct pd_account *account, uint64_t bytes, bool kept)
{
	account->object_kept_regions += kept ? 1 : -1ull;
	account->object_kept_bytes += kept ? bytes : -bytes;
}

void pd_account_objects(struct pindown_region *region)
{
	const struct pd_details *details = pd_details_of(region);
	struct pd_account *own;
	bool kept =
		pd_brief_of(region)->state == PD_KEPT && pd_objects_of[pd_region_number(region)];

	if (kept == !!(details->flags & PD_REGION_OBJECTS))
		return;
	own = changing(details->pin.device);
	pd_region_set_flags(region, details->flags ^ PD_REGION_OBJECTS);
	add_object_kept(&pd_total, details->pin.length, kept);
	if (own)
		add_object_kept(own, details->pin.length, kept);
}

uint64_t pd_pinned_bytes(void)
{
	return pd_total.bytes;
}

uint64_t pd_pinned_regions(void)
{
	return pd_total.regions;
}

void pd_accounts_fork_child(void)
{
	memset(&pd_total, 0, sizeof(pd_total));
	memset(pd_devices, 0, sizeof(pd_devices));
	pd_untold = pd_untold_process = false;
	pd_untold_devices = 0;
	memset(&pd_counts, 0, sizeof(pd_counts));
}
