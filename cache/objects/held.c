/* SPDX-License-Identifier: MIT */
/* Reports registrations that the program still holds when their memory has ended. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/show/account.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/objects/held.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/retire/retired.h"
#include "cache/trace/stack/modules.h"
#include "cache/trace/stack/stack.h"

void pdn_held_count(uint32_t consumer, struct pdn_held_objects *held)
{
	unsigned place = (consumer - 1) % PDN_CONSUMERS;

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

bool pdn_held_line_is_due(const struct pindown_region *region)
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

void pdn_held_report(const struct pindown_region *region, const struct pdn_held_objects *held,
		     uint64_t made_at)
{
	enum pindown_reason reason = region->reason;

	/* Its memory lives on: see pdn_end_replaced(). */
	if (reason == PINDOWN_REASON_EVICTED)
		return;
	for (unsigned i = 0; i < PDN_CONSUMERS; i++)
		if (held->of[i].count)
			pdn_trace_held(region, held->of[i].name, held->of[i].count);
	if (reason == PINDOWN_REASON_FLUSHED)
		return;
	if (pdn_config()->held == PDN_HELD_WARN)
		warn_of_held(region, held, made_at);
	else if (pdn_config()->held == PDN_HELD_RETIRE &&
		 (held->outlast || !pdn_retire_is_pending(region)))
		count_unprotected(region, held, made_at);
}
