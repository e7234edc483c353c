/* SPDX-License-Identifier: MIT */
/* May the address of memory that is about to be freed be retired? */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/environment/log.h"
#include "cache/end/work.h"
#include "cache/hit/region.h"
#include "cache/retire/records.h"

/*
 * Some drivers reserve nothing, or not where they are asked to. The first free finds out. Another
 * thread may be faster to take the place that is tried, but not each time. Relaxed: threads that
 * ask at the same time both ask the driver.
 */
#define MOST_PROBES 16
enum { UNKNOWN, YES, NO };
static uint32_t reserves;

static void say_it_does_not(void)
{
	pdn_log(PDN_LOG_WARN, "this driver does not reserve addresses as it is asked to "
			      "(cuMemAddressReserve): registrations that the program holds when it "
			      "frees their memory are kept, as with PINDOWN_HELD=keep");
}

static void find_out(void)
{
	enum pdn_reserved answer = PDN_ELSEWHERE;
	uint32_t unknown = UNKNOWN, found;

	for (unsigned i = 0; i < MOST_PROBES && answer == PDN_ELSEWHERE; i++)
		answer = pdn_driver_try_to_reserve(PDN_BLOCK);
	found = answer == PDN_RESERVED ? YES : NO;
	if (__atomic_compare_exchange_n(&reserves, &unknown, found, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED) &&
	    found == NO)
		say_it_does_not();
}

static bool can_reserve(void)
{
	if (__atomic_load_n(&reserves, __ATOMIC_RELAXED) == UNKNOWN)
		find_out();
	return __atomic_load_n(&reserves, __ATOMIC_RELAXED) == YES;
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
	    __atomic_exchange_n(&reserves, NO, __ATOMIC_RELAXED) != NO)
		say_it_does_not();
}
