/* SPDX-License-Identifier: MIT */
/* The records of retired addresses, a queue for each state (retired.h). All is under the lock. */
#ifndef PDN_RETIRE_RECORDS_H
#define PDN_RETIRE_RECORDS_H

#include "cache/retire/retired.h"

#define PDN_RANGES (1u << 13)	       /* twice what may be retired at a time */
#define PDN_BLOCK  ((uint64_t)2 << 20) /* the driver reserves whole ones */

struct pdn_range {
	uint64_t addr, buffer_id;     /* of the memory that was freed */
	uint64_t begin, end;	      /* the whole blocks around it */
	uint32_t holders;	      /* registrations that the program has not dropped yet */
	uint32_t regions;	      /* PENDING: windows share a record */
	uint32_t turn;		      /* how often the record was used: part of a range's number */
	uint32_t tid;		      /* PENDING: of the thread that frees */
	uint32_t region;	      /* PENDING: whose objects end */
	uint32_t older, newer;	      /* in its queue */
	enum pdn_retired_state state; /* which queue that is */
	uint8_t tries;		      /* WATCHED: how often it was to be reserved */
	bool is_reserved;	      /* by the driver */
	bool is_shared;		      /* the block may have other memory: PDN_RETIRES_AFTER */
	bool was_dropped;	      /* GOING: it is still held */
};

/* [0] is never used: 0 is no range. */
extern PDN_HIDDEN struct pdn_range pdn_ranges[PDN_RANGES];

/* A range in state PENDING; 0: there is no record. */
uint32_t pdn_range_new(struct pdn_range range);

/* It becomes the newest one of that state. Its number ends with UNUSED. */
void pdn_range_move(uint32_t n, enum pdn_retired_state to);

/* It is reserved, from here. */
void pdn_range_reserved(uint32_t n, uint64_t begin);

/* The oldest of a state; the next one is its `newer`. 0: there is none. */
uint32_t pdn_range_oldest(enum pdn_retired_state state);

static inline uint64_t pdn_range_size(const struct pdn_range *range)
{
	return range->end - range->begin;
}

static inline bool pdn_range_meets(const struct pdn_range *range, uint64_t begin, uint64_t end)
{
	return begin < range->end && range->begin < end;
}

/* RESERVED or WATCHED: nobody needs it any more, or somebody does who must not wait for that. */
void pdn_range_leave(uint32_t n);
void pdn_range_drop(uint32_t n);

struct pdn_trace_note pdn_range_note(const struct pdn_range *range, enum pdn_retire_outcome what);

/* Lock not held. */
void pdn_range_trace(const struct pdn_range *range, enum pdn_retire_outcome what, uint64_t at);

/* Lock not held: possible.c. The driver has reserved an address behind a free, or has not. */
void pdn_retire_worked(void);
void pdn_retire_failed(void);

#endif
