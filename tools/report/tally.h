/* SPDX-License-Identifier: MIT */
/* The counts of `pindown report`, made in one pass through the events. */
#ifndef TALLY_H
#define TALLY_H

#include "tools/report/allocations.h"
#include "tools/report/answers.h"
#include "tools/report/history.h"
#include "tools/report/holders.h"
#include "tools/trace/reader.h"
#include "tools/trace/regions.h"
#include "tools/report/sites.h"
#include "tools/report/timeline.h"
#include "tools/report/verdict.h"

struct call_tally {
	const char *name;
	enum memory_call memory;
	uint64_t count, failed, ns, max_ns;
};

/* Counts for one device, or for all. */
struct pin_tally {
	uint64_t pins, failed, unpins, evictions, invalidations;
	uint64_t bytes, peak_bytes, regions, peak_regions, peak_at;
	uint64_t maps, maps_pcie; /* dma-bufs for registrations; of these: mapped over PCIe */
	uint64_t ns;		  /* in pins */
	bool seen;
};

/* A region that gets a line of its own. */
struct finding {
	struct region region;
	uint64_t until; /* when it was unpinned, in ns; UINT64_MAX: never */
};

struct findings {
	struct finding *list;
	unsigned count, capacity;
};

enum { DEVICES = 64, MAX_FINDINGS = 10000, MAX_WATCHED = 1000 };

/*
 * Regions that were freed in stream order while in use, and are still pinned. Counts those whose
 * memory was allocated again before the unpin. At most MAX_WATCHED regions are watched at a time.
 */
struct reused {
	struct {
		uint64_t addr, size, buffer_id;
		uint32_t file, number;
	} kept[MAX_WATCHED];
	unsigned kept_count;
	uint64_t count;
};

struct tally {
	uint64_t events, events_of[PDN_EVENTS];
	struct answers answers;
	struct call_tally *calls;
	unsigned call_count, call_capacity;
	unsigned **call_index; /* by file, by call number: index in `calls`, or ~0u */
	struct pin_tally all, device[DEVICES + 1]; /* the last: no known device */
	struct regions regions;
	/* freed: while in use; ordered: the same, in stream order; left: still pinned at the end */
	struct findings freed, ordered, missed, left;
	struct reused reused;
	uint64_t kept, kept_peak; /* bytes still pinned after their free */
	struct sites sites;
	struct history history; /* only with --html or --json */
	struct allocations allocations;
	/* bytes over time: for text, and for the history */
	struct timeline allocated, allocated_fine;
	/* Bits 1 << enum pdn_event: recorded by all files; by some. */
	uint64_t recorded, recorded_by_some;
	bool incomplete; /* events that were to be recorded are missing */
	struct holders holders;
	struct counters counters;
	/* pinned bytes over time: the maximum in each of `columns` equal parts of `span` */
	uint64_t *timeline;
	unsigned columns, column;
	uint64_t span;
};

/* `history`: the number of columns of the history; 0: none. */
struct tally *tally_make(struct reader *reader, unsigned columns, unsigned history);
void tally_free(struct tally *tally, const struct reader *reader);

#endif
