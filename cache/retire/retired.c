/* SPDX-License-Identifier: MIT */
/* Retired addresses: their records, and reserving and giving back what they stand for. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/account.h"
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/ending.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/retire/retired.h"
#include "cache/retire/turns.h"

/* The driver reserves whole blocks; smaller allocations share one. */
#define BLOCK	((uint64_t)2 << 20)
#define RECORDS (1u << 13) /* twice the ranges that may be reserved */
#define WAITING 64u
#define AT_ONCE 4 /* ranges that one call of the program gives back */

PDN_WEAK_EVENT(address_retired, (uint32_t region));
PDN_WEAK_EVENT(address_not_retired, (uint32_t region));

uint32_t pdn_retired_most = 4096;
uint64_t pdn_retired_most_bytes = (uint64_t)4 << 40;
uint32_t pdn_retired_pending, pdn_retired_ranges, pdn_retired_going;
uint64_t pdn_retired_bytes;

struct range {
	uint64_t addr, buffer_id; /* of the memory that was freed */
	uint64_t begin, end;	  /* the whole blocks around it */
	uint32_t holders;	  /* registrations that the program has not dropped yet */
	uint32_t regions;	  /* PENDING: windows share a record */
	uint32_t turn;		  /* how often the record was used: part of a range's number */
	uint32_t tid;		  /* PENDING: of the thread that frees; others: 0 */
	uint32_t region;	  /* PENDING: whose objects end */
	uint32_t older, newer;	  /* in its queue */
	bool is_shared;		  /* the block may have other memory: PDN_RETIRES_AFTER */
	bool was_dropped;	  /* GOING: it is still held */
};

/* All under the lock. A free record is in no queue but `unused`; [0] is never used. */
static struct range ranges[RECORDS];
static uint32_t used; /* records up to here were used once */
static struct queue {
	uint32_t oldest, newest;
} unused, pending, reserved, going;

/* Regions of which the program holds registrations, in blocks with other memory. */
static struct {
	uint32_t region;
	uint64_t begin, end, buffer_id; /* of whole blocks */
} waiting[WAITING];
static unsigned next_waiting;

static void append(struct queue *queue, uint32_t n)
{
	ranges[n].older = queue->newest;
	ranges[n].newer = 0;
	*(queue->newest ? &ranges[queue->newest].newer : &queue->oldest) = n;
	queue->newest = n;
}

static void take_out(struct queue *queue, uint32_t n)
{
	uint32_t older = ranges[n].older, newer = ranges[n].newer;

	*(older ? &ranges[older].newer : &queue->oldest) = newer;
	*(newer ? &ranges[newer].older : &queue->newest) = older;
}

/* Relaxed: the threads for which it matters hold the lock, or are to see it soon. */
static void count(uint32_t *which, uint32_t change)
{
	__atomic_store_n(which, *which + change, __ATOMIC_RELAXED);
}

static void free_record(uint32_t n)
{
	ranges[n].turn++;
	append(&unused, n);
}

static uint64_t size_of(const struct range *range)
{
	return range->end - range->begin;
}

/* ---- the trace ------------------------------------------------------------------------------ */

static struct pdn_trace_note note_of(const struct range *range, enum pdn_retire_outcome outcome)
{
	return (struct pdn_trace_note){
		.addr = range->addr,
		.size = range->end - range->addr,
		.pin_size = size_of(range),
		.buffer_id = range->buffer_id,
		.device = -1,
		.extra = outcome,
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

static void trace(const struct range *range, enum pdn_retire_outcome outcome, uint64_t at)
{
	const struct pdn_trace_note note = note_of(range, outcome);

	pdn_retired_trace(&note, at);
}

/* ---- may this be retired? ------------------------------------------------------------------- */

/*
 * Some drivers reserve nothing, or not where they are asked to. The first free finds out, or the
 * first ones that fail in a row. Relaxed: threads that ask at the same time both ask the driver.
 */
#define MOST_PROBES 16
enum { NO = MOST_PROBES, YES };
static uint32_t probes;

static void say_it_does_not(void)
{
	pdn_log(PDN_LOG_WARN, "this driver does not reserve addresses as it is asked to "
			      "(cuMemAddressReserve): registrations that the program holds when it "
			      "frees their memory are kept, as with PINDOWN_HELD=keep");
}

static bool can_reserve(void)
{
	uint32_t before = __atomic_load_n(&probes, __ATOMIC_RELAXED), known = before;
	enum pdn_reserved answer;

	if (known >= NO)
		return known == YES;
	answer = pdn_driver_try_to_reserve(BLOCK);
	if (answer == PDN_RESERVED)
		known = YES;
	else
		known = answer == PDN_REFUSED ? NO : known + 1;
	/* YES stays, whatever other threads find out: in theirs somebody was faster. */
	if (known == YES)
		__atomic_store_n(&probes, known, __ATOMIC_RELAXED);
	else if (!__atomic_compare_exchange_n(&probes, &before, known, false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED))
		return before == YES;
	if (known == NO)
		say_it_does_not();
	return known == YES;
}

bool pdn_retire_possible(uint64_t addr)
{
	PDN_UNCANCELLED;
	int saved = errno;
	bool possible = pdn_config()->held == PDN_HELD_RETIRE && pdn_driver_has_context() &&
			pdn_free_is_sure && pdn_free_is_sure(addr) && can_reserve();

	errno = saved;
	return possible;
}

bool pdn_region_may_retire(uint32_t region, uint64_t begin)
{
	const unsigned other = PDN_REGION_SPANS | PDN_REGION_PIECE | PDN_REGION_VOLATILE;
	const struct pdn_memory memory = pdn_memory_of(&pdn_regions[region]);

	return memory.context && memory.context != PDN_ANY_CONTEXT && memory.base == begin &&
	       !(pdn_regions[region].flags & other);
}

/* Lock held. PENDING, of this thread's free of this address; 0: there is none. */
static uint32_t find_own(uint64_t addr)
{
	uint32_t me = pdn_my_tid(), n = pending.oldest;

	while (n && (ranges[n].tid != me || ranges[n].addr != addr))
		n = ranges[n].newer;
	return n;
}

/* ---- pending -------------------------------------------------------------------------------- */

static uint32_t new_record(void)
{
	uint32_t n = unused.oldest;

	if (n)
		take_out(&unused, n);
	else if (used + 1 < RECORDS)
		n = ++used;
	return n;
}

/* This thread's, of the region's memory; 0: there is none. Windows of one allocation share it. */
static uint32_t find_pending(uint32_t region)
{
	const uint64_t base = pdn_memory_of(&pdn_regions[region]).base;
	uint32_t me = pdn_my_tid(), n = pending.oldest;

	while (n && (ranges[n].tid != me || (ranges[n].region != region && ranges[n].addr != base)))
		n = ranges[n].newer;
	return n;
}

enum pdn_retires pdn_retire_begin(uint32_t region)
{
	const struct pdn_memory memory = pdn_memory_of(&pdn_regions[region]);
	uint32_t n = find_pending(region);

	if (!n && (n = new_record()) != 0) {
		ranges[n] = (struct range){
			.addr = memory.base,
			.begin = memory.base & -BLOCK,
			.end = (memory.end + BLOCK - 1) & -BLOCK,
			.buffer_id = pdn_regions[region].buffer_id,
			.turn = ranges[n].turn,
			.tid = pdn_my_tid(),
			.region = region,
			.is_shared = memory.base % BLOCK || memory.end - memory.base < BLOCK,
		};
		append(&pending, n);
		count(&pdn_retired_pending, 1);
		__atomic_store_n(&pdn_turns_are_taken, true, __ATOMIC_RELAXED);
	}
	if (!n)
		return PDN_RETIRES_NOT;
	ranges[n].regions++;
	return ranges[n].is_shared ? PDN_RETIRES_AFTER : PDN_RETIRES_BEFORE;
}

bool pdn_retire_is_pending(const struct pindown_region *region)
{
	bool is;

	pdn_lock();
	is = find_pending(pdn_region_number(region)) != 0;
	pdn_unlock();
	return is;
}

static void end_pending(uint32_t n)
{
	take_out(&pending, n);
	count(&pdn_retired_pending, -1u);
	ranges[n].tid = 0;
}

void pdn_retire_cancel(uint32_t region)
{
	uint32_t n = find_pending(region);

	if (n && --ranges[n].regions == 0 && !ranges[n].holders) {
		end_pending(n);
		free_record(n);
	}
}

void pdn_retired_drop_own(void)
{
	uint32_t me = pdn_my_tid();

	for (uint32_t n = pending.oldest, newer; n; n = newer) {
		newer = ranges[n].newer;
		if (ranges[n].tid == me) {
			end_pending(n);
			free_record(n);
		}
	}
}

/* ---- holders -------------------------------------------------------------------------------- */

uint32_t pdn_retired_hold(uint32_t region)
{
	uint32_t n = pending.oldest ? find_pending(region) : 0;

	if (!n)
		return 0;
	ranges[n].holders++;
	return ranges[n].turn * RECORDS + n;
}

/* Lock held. */
static void leave_reserved(uint32_t n)
{
	take_out(&reserved, n);
	count(&pdn_retired_ranges, -1u);
	pdn_retired_bytes -= size_of(&ranges[n]);
	append(&going, n);
	count(&pdn_retired_going, 1);
	pdn_account_process();
}

/* The number of a record that has been used again is no range's. PENDING: its thread looks. */
bool pdn_retired_let_go(uint32_t number, struct pdn_trace_note *released)
{
	uint32_t n = number % RECORDS;

	if (!n || number / RECORDS != ranges[n].turn % (UINT32_MAX / RECORDS + 1) ||
	    --ranges[n].holders || ranges[n].tid)
		return false;
	*released = note_of(&ranges[n], PDN_RETIRE_RELEASED);
	leave_reserved(n);
	return true;
}

/* ---- reserving ------------------------------------------------------------------------------ */

/* Lock held. The driver may hand it out while the program holds registrations of it. */
static void drop(uint32_t n)
{
	pdn_counts.retired_dropped++;
	leave_reserved(n);
	ranges[n].was_dropped = true;
	ranges[n].turn++; /* its holders are forgotten */
}

/* Lock held. true: there were too many. */
static bool enter_reserved(uint32_t n)
{
	bool too_many = false;

	append(&reserved, n);
	count(&pdn_retired_ranges, 1);
	pdn_retired_bytes += size_of(&ranges[n]);
	pdn_counts.retired++;
	if (!ranges[n].holders)
		leave_reserved(n);
	while (pdn_retired_ranges > pdn_retired_most ||
	       (pdn_retired_bytes > pdn_retired_most_bytes && pdn_retired_ranges > 1)) {
		drop(reserved.oldest);
		too_many = true;
	}
	pdn_account_process();
	return too_many;
}

/*
 * The address is somebody else's, and its registrations have ended. If the old memory is still
 * there, the free has failed. Others may be freeing what is there now, which is unknown then.
 */
static bool has_escaped(const struct range *range)
{
	const struct pdn_memory memory = {
		.base = range->addr, .end = range->end, .context = PDN_ANY_CONTEXT};

	return !range->is_shared && range->holders &&
	       pdn_compare_memory(&memory, range->buffer_id, 0) != PDN_TRUE;
}

/* Lock held. Is it still the region that has waited? Buffer ids are used once. */
static bool is_kept_with(uint32_t region, uint64_t buffer_id)
{
	return region && pdn_briefs[region].state == PDN_KEPT &&
	       pdn_regions[region].buffer_id == buffer_id;
}

static void wait_for_block(const struct range *range)
{
	waiting[next_waiting].region = range->region;
	waiting[next_waiting].begin = range->begin;
	waiting[next_waiting].end = range->end;
	waiting[next_waiting].buffer_id = range->buffer_id;
	next_waiting = (next_waiting + 1) % WAITING;
}

/* Lock held. The next region that has waited for only these blocks; 0: there is none. */
static uint32_t take_waiting(uint64_t begin, uint64_t end)
{
	for (unsigned i = 0; i < WAITING; i++) {
		uint32_t region = waiting[i].region;

		if (!region || waiting[i].begin < begin || waiting[i].end > end)
			continue;
		waiting[i].region = 0;
		if (is_kept_with(region, waiting[i].buffer_id))
			return region;
	}
	return 0;
}

/* Lock not held. The block is reserved: what was kept in it ends now. */
static void end_kept_in(uint32_t n, const struct range *range)
{
	uint32_t region;

	pdn_lock();
	region = is_kept_with(range->region, range->buffer_id) ? range->region : 0;
	while (region || (region = take_waiting(range->begin, range->end)) != 0) {
		ranges[n].region = region; /* for pdn_retired_hold() */
		PDN_NOTIFY(address_retired, region);
		region = 0;
	}
	pdn_unlock();
}

/* Lock not held. This thread's next one at the address, as a copy; 0: there is none. */
static uint32_t next_pending(uint64_t addr, struct range *copy)
{
	uint32_t n;

	pdn_lock();
	n = find_own(addr);
	if (n)
		*copy = ranges[n];
	pdn_unlock();
	return n;
}

bool pdn_retired_begins_window(uint64_t addr)
{
	PDN_UNCANCELLED;
	struct range range;

	if (!next_pending(addr, &range))
		return false;
	pdn_retiring_begins();
	return true;
}

/* Lock held. Was it one too many in a row? Then there is no use in retiring. */
static uint32_t escapes_in_a_row; /* under the lock */
static bool is_in_vain(void)
{
	return ++escapes_in_a_row >= MOST_PROBES &&
	       __atomic_exchange_n(&probes, NO, __ATOMIC_RELAXED) != NO;
}

static void say_too_many(void)
{
	static bool said;

	pdn_log_once(&said, PDN_LOG_WARN,
		     "the program holds registrations of more freed memory than pindown keeps the "
		     "addresses of (%u ranges, %llu GiB): the driver may use again those that it "
		     "freed first",
		     pdn_retired_most, (unsigned long long)(pdn_retired_most_bytes >> 30));
}

/* Lock held. false: a signal handler has forked, and this is the child. */
static bool is_still_pending(uint32_t n)
{
	return ranges[n].tid != 0;
}

/* Lock not held. */
static void settle_reserved(uint32_t n, const struct range *range)
{
	/* Before another thread can drop the last registration. */
	uint64_t at = pdn_tracing(PDN_EV_RETIRE) ? pdn_ticks() : 0;
	bool held, too_many;

	if (range->is_shared)
		end_kept_in(n, range);
	pdn_lock();
	if (!is_still_pending(n)) {
		pdn_unlock();
		return;
	}
	end_pending(n);
	escapes_in_a_row = 0;
	held = ranges[n].holders;
	ranges[n].begin = range->begin;
	too_many = enter_reserved(n);
	pdn_unlock();
	trace(range, PDN_RETIRE_RESERVED, at);
	if (!held)
		trace(range, PDN_RETIRE_RELEASED, 0);
	if (too_many)
		say_too_many();
}

/* Lock not held. What was to end behind the free stays; what has ended before has escaped. */
static void settle_failed(uint32_t n, const struct range *range)
{
	bool escaped = has_escaped(range), stays, in_vain;

	pdn_lock();
	if (!is_still_pending(n)) {
		pdn_unlock();
		return;
	}
	end_pending(n);
	stays = range->is_shared && is_kept_with(range->region, range->buffer_id) &&
		pdn_regions[range->region].flags & PDN_REGION_OBJECTS;
	if (stays)
		wait_for_block(range);
	pdn_counts.escapes += escaped;
	in_vain = escaped && is_in_vain();
	pdn_account_process();
	free_record(n);
	pdn_unlock();
	if (in_vain)
		say_it_does_not();
	if (stays)
		PDN_NOTIFY(address_not_retired, range->region);
	if (escaped)
		trace(range, PDN_RETIRE_ESCAPED, 0);
}

static void reserve_after_free(uint64_t addr)
{
	PDN_UNCANCELLED;
	int saved = errno;
	struct range range;
	uint32_t n;

	while ((n = next_pending(addr, &range)) != 0) {
		PDN_POINT(RETIRE_RESERVING, range.addr);
		if (pdn_driver_reserve(&range.begin, range.end,
				       range.is_shared ? 1 : PDN_MOST_TRIES) == PDN_RESERVED)
			settle_reserved(n, &range);
		else
			settle_failed(n, &range);
	}
	pdn_retiring_ended();
	pdn_retired_give_back();
	errno = saved;
}

PDN_NOTIFIED(retiring_free_ended, reserve_after_free);

/* ---- giving back ---------------------------------------------------------------------------- */

/* Lock not held. The oldest that is going; 0: there is none. It is in no queue then. */
static uint32_t take_going(void)
{
	uint32_t n;

	pdn_lock();
	n = going.oldest;
	if (n) {
		take_out(&going, n);
		count(&pdn_retired_going, -1u);
	}
	pdn_unlock();
	return n;
}

void __attribute__((cold)) pdn_retired_give_back_some(void)
{
	PDN_UNCANCELLED;
	int saved = errno;
	uint32_t n;

	for (int i = 0; i < AT_ONCE && (n = take_going()) != 0; i++) {
		pdn_driver_unreserve(ranges[n].begin, size_of(&ranges[n]));
		trace(&ranges[n],
		      ranges[n].was_dropped ? PDN_RETIRE_DROPPED : PDN_RETIRE_GIVEN_BACK, 0);
		pdn_lock();
		free_record(n);
		pdn_unlock();
	}
	errno = saved;
}

/* Lock held. The next reserved one in [begin, end); 0: there is none. */
static uint32_t find_reserved(uint64_t begin, uint64_t end)
{
	uint32_t n = reserved.oldest;

	while (n && (ranges[n].end <= begin || end <= ranges[n].begin))
		n = ranges[n].newer;
	return n;
}

/* Cold: a program that asks for an address asks seldom, and no such range is there as a rule. */
void __attribute__((cold)) pdn_retired_yield(uint64_t addr, uint64_t length)
{
	PDN_UNCANCELLED;
	uint32_t n;

	if (!__atomic_load_n(&pdn_retired_ranges, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&pdn_retired_going, __ATOMIC_RELAXED))
		return;
	pdn_lock();
	while ((n = find_reserved(addr, addr + length)) != 0)
		drop(n);
	pdn_unlock();
	while (__atomic_load_n(&pdn_retired_going, __ATOMIC_RELAXED))
		pdn_retired_give_back_some();
}

/* The reservations are the parent's. */
void pdn_retired_fork_child(void)
{
	for (uint32_t n = pending.oldest; n; n = ranges[n].newer)
		ranges[n].tid = 0;
	unused = pending = reserved = going = (struct queue){0};
	used = 0;
	for (unsigned i = 0; i < WAITING; i++)
		waiting[i].region = 0;
	pdn_retired_pending = pdn_retired_ranges = pdn_retired_going = 0;
	pdn_retired_bytes = 0;
}
