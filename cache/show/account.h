/* SPDX-License-Identifier: MIT */
/* The accounts: every pinned byte, of the process and of each GPU. All of it under the lock. */
#ifndef PDN_ACCOUNT_H
#define PDN_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/backend/backend.h"
#include "cache/hit/region.h"

/* Of the process, or of one device. stats.c reads them; they change below only. */
struct pdn_account {
	uint64_t pins, unpins, evictions, invalidations;
	uint64_t regions, bytes, kept_regions, kept_bytes, peak_regions, peak_bytes;
	uint64_t object_kept_regions, object_kept_bytes;
};
extern struct pdn_account pdn_total, pdn_devices[PDN_MAX_DEVICES];

/* Of the process only. */
extern struct pdn_counts {
	uint64_t pin_failures, lost_races, missed_invalidations, fallbacks, exports_saved;
	uint64_t objects, objects_made, objects_revoked;
	uint64_t retired, retired_dropped, escapes, unprotected; /* see retire/retired.h */
	uint64_t left_to_card; /* registrations of GPU memory that libibverbs makes */
} pdn_counts;

void pdn_account_pin(const struct pindown_region *region);
void pdn_account_unpin(const struct pindown_region *region, bool was_kept);
void pdn_account_out(const struct pindown_region *region, bool missed);
void pdn_account_kept(const struct pindown_region *region);
void pdn_account_pin_failure(void);
void pdn_account_export_saved(void);
void pdn_account_object_made(void);
void pdn_account_object_gone(bool revoked);
/* The consumer objects on a kept region may have changed. */
void pdn_account_objects(struct pindown_region *region);
void pdn_account_lost_race(void);
void pdn_account_left_to_card(void);
void pdn_account_unprotected(void);
/* Something of the whole process has changed: whether frees are seen, the retired addresses. */
void pdn_account_process(void);
uint64_t pdn_pinned_bytes(void);
uint64_t pdn_pinned_bytes_of(int device);
uint64_t pdn_pinned_regions(void);

#endif
