/* SPDX-License-Identifier: MIT */
/* The accounts: every pinned byte, of the process and of each GPU. All of it under the lock. */
#ifndef PD_ACCOUNT_H
#define PD_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/backend/backend.h"
#include "cache/region.h"

/* Of the process, or of one device. stats.c reads them; they change below only. */
struct pd_account {
	uint64_t pins, unpins, evictions, invalidations;
	uint64_t regions, bytes, kept_regions, kept_bytes, peak_regions, peak_bytes;
	uint64_t object_kept_regions, object_kept_bytes;
};
extern struct pd_account pd_total, pd_devices[PD_MAX_DEVICES];

/* Of the process only. */
extern struct pd_counts {
	uint64_t pin_failures, lost_races, missed_invalidations, fallbacks;
	uint64_t objects, objects_made, objects_revoked;
} pd_counts;

/*
 * With pd_untold (base/lock.h): the page for `pindown top` does not have the latest pd_counts; nor
 * the accounts of these devices, one bit for each.
 */
extern bool pd_untold_process;
extern uint64_t pd_untold_devices;

void pd_account_pin(const struct pd_details *details);
void pd_account_unpin(const struct pd_details *details, bool was_kept);
void pd_account_out(const struct pd_details *details, bool missed);
void pd_account_kept(const struct pd_details *details);
void pd_account_pin_failure(void);
void pd_account_object_made(void);
void pd_account_object_gone(bool revoked);
/* The consumer objects on a kept region may have changed. */
void pd_account_objects(struct pindown_region *region);
void pd_account_lost_race(void);
void pd_account_trust(void); /* pd_is_intercepting() or pd_is_distrusted() has changed */
uint64_t pd_pinned_bytes(void);
uint64_t pd_pinned_regions(void);
void pd_accounts_fork_child(void);

#endif
