/* SPDX-License-Identifier: MIT */
/* May the address of memory that is about to be freed be retired? */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/log.h"
#include "cache/ending.h"
#include "cache/race.h"
#include "cache/region.h"
#include "cache/retire/records.h"

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
	answer = pdn_driver_try_to_reserve(PDN_BLOCK);
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

/* Relaxed, as a few more or fewer do not matter. */
static uint32_t failed_in_a_row;

void pdn_retire_worked(void)
{
	__atomic_store_n(&failed_in_a_row, 0, __ATOMIC_RELAXED);
}

/* One too many in a row: then there is no use in it. */
void pdn_retire_failed(void)
{
	if (__atomic_add_fetch(&failed_in_a_row, 1, __ATOMIC_RELAXED) >= MOST_PROBES &&
	    __atomic_exchange_n(&probes, NO, __ATOMIC_RELAXED) != NO)
		say_it_does_not();
}
