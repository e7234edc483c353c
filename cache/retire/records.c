/* SPDX-License-Identifier: MIT */
/* The records of retired addresses: see records.h. */
#include "cache/base/process/process.h"
#include "cache/show/account.h"
#include "cache/retire/records.h"

struct pdn_range pdn_ranges[PDN_RANGES];
PDN_NOT_INHERITED uint32_t pdn_retired_count[PDN_RETIRED_STATES];
PDN_NOT_INHERITED uint64_t pdn_retired_bytes;

static PDN_NOT_INHERITED uint32_t used; /* records up to here were used once */
static PDN_NOT_INHERITED struct queue {
	uint32_t oldest, newest;
} queues[PDN_RETIRED_STATES];

/* Relaxed: the threads for which it matters hold the lock, or are to see it soon. */
static void count(uint32_t n, int change)
{
	enum pdn_retired_state state = pdn_ranges[n].state;

	__atomic_store_n(&pdn_retired_count[state], pdn_retired_count[state] + (uint32_t)change,
			 __ATOMIC_RELAXED);
	if (state == PDN_RETIRED_RESERVED || state == PDN_RETIRED_WATCHED)
		pdn_retired_bytes += pdn_range_size(&pdn_ranges[n]) * (uint64_t)change;
}

static void append(enum pdn_retired_state state, uint32_t n)
{
	struct queue *queue = &queues[state];

	pdn_ranges[n].state = state;
	pdn_ranges[n].older = queue->newest;
	pdn_ranges[n].newer = 0;
	*(queue->newest ? &pdn_ranges[queue->newest].newer : &queue->oldest) = n;
	queue->newest = n;
	count(n, 1);
}

static void take_out(uint32_t n)
{
	struct queue *queue = &queues[pdn_ranges[n].state];
	uint32_t older = pdn_ranges[n].older, newer = pdn_ranges[n].newer;

	*(older ? &pdn_ranges[older].newer : &queue->oldest) = newer;
	*(newer ? &pdn_ranges[newer].older : &queue->newest) = older;
	count(n, -1);
}

uint32_t pdn_range_new(struct pdn_range range)
{
	uint32_t n = queues[PDN_RETIRED_UNUSED].oldest;

	if (n)
		take_out(n);
	else if (used + 1 < PDN_RANGES)
		n = ++used;
	else
		return 0;
	range.turn = pdn_ranges[n].turn;
	pdn_ranges[n] = range;
	append(PDN_RETIRED_PENDING, n);
	return n;
}

void pdn_range_move(uint32_t n, enum pdn_retired_state to)
{
	take_out(n);
	append(to, n);
	if (to == PDN_RETIRED_UNUSED)
		pdn_ranges[n].turn++;
}

void pdn_range_reserved(uint32_t n, uint64_t begin)
{
	take_out(n);
	pdn_ranges[n].begin = begin;
	pdn_ranges[n].is_reserved = true;
	append(PDN_RETIRED_RESERVED, n);
}

uint32_t pdn_range_oldest(enum pdn_retired_state state)
{
	return queues[state].oldest;
}

void pdn_range_leave(uint32_t n)
{
	pdn_range_move(n, PDN_RETIRED_GOING);
	pdn_account_process();
}

/* The driver may hand it out while the program holds registrations of it, which are forgotten. */
void pdn_range_drop(uint32_t n)
{
	pdn_counts.retired_dropped++;
	pdn_range_leave(n);
	pdn_ranges[n].was_dropped = true;
	pdn_ranges[n].turn++;
}

struct pdn_trace_note pdn_range_note(const struct pdn_range *range, enum pdn_retire_outcome what)
{
	return (struct pdn_trace_note){
		.addr = range->addr,
		.size = range->end - range->addr,
		.pin_size = pdn_range_size(range),
		.buffer_id = range->buffer_id,
		.device = -1,
		.extra = what,
	};
}

void pdn_retired_trace(const struct pdn_trace_note *note, uint64_t at)
{
	uint64_t now;

	if (!pdn_tracing(PDN_EV_RETIRE))
		return;
	now = pdn_ticks();
	pdn_trace_note(PDN_EV_RETIRE, note, at ? at : now, now);
}

void pdn_range_trace(const struct pdn_range *range, enum pdn_retire_outcome what, uint64_t at)
{
	const struct pdn_trace_note note = pdn_range_note(range, what);

	pdn_retired_trace(&note, at);
}
