/* SPDX-License-Identifier: MIT */
/*
 * Registrations that the program still holds on memory that ends. Each is an event in the trace,
 * with the code that made it and the code that ends the memory; a line names the first one's code.
 *
 * The objects that they hold are ENDING here, and only this thread changes that: all of a region
 * whose end is under way are this thread's. So their records stay, and their data, while their
 * consumer is asked without the lock. Threads that end the owner of such an object wait for this
 * one, as they do while it destroys the object. So do those that remove the consumer, and its
 * record stays in any case until its last object has ended.
 */
#define _GNU_SOURCE
#include <string.h>

#include "cache/show/account.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/objects/end.h"
#include "cache/objects/held.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/retire/retired.h"
#include "cache/trace/stack/modules.h"
#include "cache/trace/stack/stack.h"

void pdn_held_count(uint32_t consumer, struct pdn_held_objects *held)
{
	unsigned place = pdn_consumer_place(consumer);

	held->all++;
	if (held->of[place].count++ == 0)
		memcpy(held->of[place].name, pdn_consumer(consumer)->name, PDN_CONSUMER_NAME);
}

/* " by CODE", or nothing if it is not known. */
static void name_code(uint64_t pc, char *text, size_t capacity)
{
	memcpy(text, " by ", 5);
	if (!pdn_module_text(pc, text + 4, capacity - 4))
		text[0] = '\0';
}

static void warn_of_held(const struct pindown_region *region, const struct pdn_held_objects *held,
			 uint64_t made_at)
{
	char made[160], freed[160];
	uint64_t freed_at = 0;

	if (!pdn_logging(PDN_LOG_WARN))
		return;
	/* Not where the free was earlier, and the caller registers. */
	if (!(pdn_region_flags(region) & PDN_REGION_LEAVING))
		pdn_stack_callers(&freed_at, 1);
	name_code(made_at, made, sizeof(made));
	name_code(freed_at, freed, sizeof(freed));
	pdn_log(PDN_LOG_WARN,
		"%llu bytes of GPU memory at 0x%llx were freed%s%s while the program holds %u "
		"registration%s of them%s%s: they stay pinned until it deregisters them%s",
		(unsigned long long)(region->end - region->base), (unsigned long long)region->base,
		region->reason == PINDOWN_REASON_ORDERED ? " in stream order" : "", freed,
		held->all, held->all == 1 ? "" : "s",
		!made[0]	 ? ""
		: held->all == 1 ? ", made"
				 : ", one made",
		made,
		pdn_config()->held == PDN_HELD_RETIRE ? " (said once: pindown report names all)"
						      : "");
}

/*
 * The address may be handed out for other memory, and then a cache by address finds the old
 * registration. Not where the pool keeps the memory, so that it is the same.
 */
static bool is_unprotected(const struct pindown_region *region)
{
	void *pool = pdn_region_pool(region);

	return !pool || !pdn_pool_keeps || !pdn_pool_keeps(pool);
}

static bool said; /* the one line of PINDOWN_HELD=retire */

static bool line_is_due(const struct pindown_region *region)
{
	switch (pdn_config()->held) {
	case PDN_HELD_WARN:
		return true;
	case PDN_HELD_RETIRE:
		return !__atomic_load_n(&said, __ATOMIC_RELAXED) && is_unprotected(region) &&
		       !(pdn_region_flags(region) & PDN_REGION_ENDS_HELD) &&
		       !pdn_retire_is_pending(region);
	default:
		return false;
	}
}

static void count_unprotected(const struct pindown_region *region,
			      const struct pdn_held_objects *held, uint64_t made_at)
{
	if (!is_unprotected(region))
		return;
	pdn_lock();
	pdn_account_unprotected();
	pdn_unlock();
	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		warn_of_held(region, held, made_at);
}

static void not_retired(uint32_t region)
{
	bool held;

	pdn_lock();
	held = pdn_objects_hold(region);
	pdn_unlock();
	if (held)
		count_unprotected(&pdn_regions[region], &(struct pdn_held_objects){.all = 1}, 0);
}

PDN_NOTIFIED(address_not_retired, not_retired);

static void trace_held(const struct pindown_region *region, const char *consumer, uint32_t count)
{
	struct pdn_trace_note note = {
		.name = consumer,
		.extra = count,
		.reason = region->reason,
		.flags = PDN_TRACE_IN_USE,
	};

	pdn_consumer_trace(PDN_EV_HELD, region, &note, 0);
}

void pdn_held_report(const struct pindown_region *region, const struct pdn_held_objects *held,
		     uint64_t made_at)
{
	enum pindown_reason reason = region->reason;

	/* Its memory lives on: see pdn_end_replaced(). */
	if (reason == PINDOWN_REASON_EVICTED)
		return;
	for (unsigned i = 0; i < PDN_CONSUMERS; i++)
		if (held->of[i].count)
			trace_held(region, held->of[i].name, held->of[i].count);
	if (reason == PINDOWN_REASON_FLUSHED)
		return;
	if (pdn_config()->held == PDN_HELD_WARN)
		warn_of_held(region, held, made_at);
	else if (pdn_config()->held == PDN_HELD_RETIRE &&
		 (held->outlast || !pdn_retire_is_pending(region)))
		count_unprotected(region, held, made_at);
}

/* ---- who holds it ---------------------------------------------------------------------------- */

struct search {
	uint32_t region;
	const struct pdn_scope *scope; /* the memory that ends; NULL: all of the region's */
	uint32_t free_stack;	       /* of the code that ends the memory */
	uint16_t reason;
	uint64_t caller; /* of the first holder that is known by its return address; or 0 */
};

/* The first object that ends with the region, or the one after it; 0: no more. */
static uint32_t next_ending(uint32_t region, uint32_t last)
{
	uint32_t n;

	pdn_lock();
	n = last ? pdn_objects[last].next : pdn_first_object(region);
	while (n && pdn_objects[n].state != PDN_OBJECT_ENDING)
		n = pdn_objects[n].next;
	pdn_unlock();
	return n;
}

/* Acquire: of an object that is ending, the region is its own. */
static bool is_wanted(void *arg, const struct pindown_object *object)
{
	const struct search *s = arg;

	return __atomic_load_n(&object->state, __ATOMIC_ACQUIRE) == PDN_OBJECT_ENDING &&
	       __atomic_load_n(&object->region, __ATOMIC_RELAXED) == s->region;
}

static struct pdn_client *consumer_of(uint32_t number)
{
	return pdn_consumer(pdn_objects[number].consumer);
}

/* Each consumer of a held object is asked once. */
static void search(struct search *s, bool (*found)(void *arg, const struct pdn_holder *holder))
{
	const struct pdn_holder_search search = {is_wanted, found, s};
	uint32_t asked = 0; /* a bit for each consumer's place */

	for (uint32_t n = 0; (n = next_ending(s->region, n));)
		pdn_objects[n].is_named = false;
	for (uint32_t n = 0; (n = next_ending(s->region, n));) {
		uint32_t bit = 1u << pdn_consumer_place(pdn_objects[n].consumer);

		if (asked & bit || !consumer_of(n)->holders || !pdn_object_is_held(n))
			continue;
		asked |= bit;
		pdn_consumer_name_holders(consumer_of(n), &search);
	}
}
_Static_assert(PDN_CONSUMERS <= 32, "a bit for each");

/* Does any of the holder's memory end? */
static bool ends_in_part(const struct pdn_scope *scope, const struct pdn_holder *holder)
{
	return !scope || (holder->addr < scope->end && scope->begin < holder->addr + holder->size);
}

static bool ends(uint32_t number, const struct pdn_scope *scope)
{
	bool result;

	pdn_lock();
	result = pdn_object_ends_held(&pdn_objects[number]) ||
		 pdn_object_is_revoked_in_part(&pdn_objects[number], scope);
	pdn_unlock();
	return result;
}

static bool is_traced(void)
{
	return pdn_tracing(PDN_EV_HOLDER);
}

static void trace_holder(const struct search *s, uint32_t number, const struct pdn_holder *holder)
{
	struct pdn_trace_note note = {
		.name = consumer_of(number)->name,
		.number = number,
		.extra = pdn_objects[number].key.owner,
		.key = pdn_objects[number].key.word[0],
		.addr = holder->addr,
		.size = holder->size,
		.origin = holder->caller && is_traced() ? pdn_trace_origin(holder->caller) : 0,
		.stack = s->free_stack,
		.reason = s->reason,
		.flags = ends(number, s->scope) ? PDN_TRACE_REVOKED : 0,
	};

	pdn_consumer_trace(PDN_EV_HOLDER, &pdn_regions[s->region], &note, 0);
}

/* It is revoked with the last of its memory, and named then. */
static bool ends_later(const struct pindown_object *object)
{
	return pdn_config()->held == PDN_HELD_REVOKE && object->outlives;
}

/* A consumer has found a registration of the program's that holds a wanted object. */
static bool name_one(void *arg, const struct pdn_holder *holder)
{
	struct search *s = arg;
	uint32_t number = pdn_object_number(holder->object);

	pdn_objects[number].is_named = true;
	if (holder->was_named || !ends_in_part(s->scope, holder) ||
	    (s->scope && ends_later(&pdn_objects[number])))
		return false;
	if (!s->caller && pdn_trace_is_address(holder->caller))
		s->caller = holder->caller;
	trace_holder(s, number, holder);
	return true;
}

/* Mappings are no smaller; of more bytes it is not asked whether they have ended earlier. */
#define MAPPING	   ((uint64_t)2 << 20)
#define MOST_ASKED 4096

/*
 * Lock not held. Is there memory in [begin, end)? The parts that have ended before may be all of
 * it. Where another thread is just ending some, there is.
 */
static bool any_lives(uint64_t begin, uint64_t end)
{
	struct pdn_flight flight;
	bool lives;

	if (begin >= end)
		return false;
	lives = pdn_flight_begin(&flight, begin, end) & PDN_GUARDED ||
		(end - begin) / MAPPING > MOST_ASKED;
	for (uint64_t at = begin; at < end && !lives; at = (at / MAPPING + 1) * MAPPING)
		lives = pdn_driver_has_memory(at);
	pdn_flight_end_unlocked(&flight);
	return lives;
}

static bool ask_one(void *arg, const struct pdn_holder *holder)
{
	const struct search *s = arg;
	struct pindown_object *object = &pdn_objects[pdn_object_number(holder->object)];
	const struct pdn_scope *scope = s->scope;
	const uint64_t begin = holder->addr, end = holder->addr + holder->size;

	if (!object->is_named) /* the first one of the object */
		object->is_touched = object->outlives = false;
	object->is_named = true;
	object->is_touched |= ends_in_part(s->scope, holder);
	object->outlives |= any_lives(begin, end < scope->begin ? end : scope->begin) ||
			    any_lives(begin > scope->end ? begin : scope->end, end);
	return false;
}

/*
 * An object of a consumer that names no registrations ends with any part of its region. Of one
 * whose registration is just being made, it is not known yet what it is asked for.
 */
void pdn_objects_ask_holders(uint32_t region, const struct pdn_scope *scope)
{
	struct search s = {.region = region, .scope = scope};

	search(&s, ask_one);
	for (uint32_t n = 0; (n = next_ending(region, n));)
		if (consumer_of(n)->holders && !pdn_objects[n].is_named && pdn_object_is_held(n))
			pdn_objects[n].outlives = true;
}

/* An object whose consumer names no registration is named by itself. */
uint64_t pdn_objects_name_holders(uint32_t region, enum pindown_reason reason,
				  const struct pdn_scope *scope)
{
	struct search s = {.region = region, .scope = scope, .reason = (uint16_t)reason};
	const struct pdn_holder unknown = {0};

	if ((!is_traced() && !line_is_due(&pdn_regions[region])) ||
	    reason == PINDOWN_REASON_EVICTED || reason == PINDOWN_REASON_FLUSHED)
		return 0;
	s.free_stack = is_traced() ? pdn_trace_stack(true) : 0;
	search(&s, name_one);
	for (uint32_t n = 0; (n = next_ending(region, n));)
		if (!pdn_objects[n].is_named && pdn_object_is_held(n))
			trace_holder(&s, n, &unknown);
	return s.caller;
}
