/* SPDX-License-Identifier: MIT */
/* How each question to libcuda about memory that may be freed begins; race.h says why. */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/barrier.h"
#include "cache/base/test_point.h"
#include "cache/base/thread.h"
#include "cache/race.h"

bool pdn_question_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	bool alone;

	pdn_flight_begin(flight, begin, end);
	PDN_POINT(QUESTION_BEGUN, begin);
	/*
	 * Not earlier: which barriers there are is found out when the first thread gets its record,
	 * as this one has by now.
	 */
	if (!pdn_barrier_is_registered())
		pdn_barrier_register();
	/* Pairs with pdn_guard_up()'s publish. */
	alone = pdn_heavy_barrier_after_change();
	pdn_barrier_report();
	return pdn_guard_any(alone);
}

enum pdn_truth __attribute__((cold))
pdn_compare_memory(const struct pdn_memory *memory, uint64_t buffer_id, uint64_t others)
{
	enum pdn_truth answer = PDN_UNKNOWN;
	struct pdn_flight flight;
	int saved = errno;

	if (!pdn_question_begin(&flight, memory->base, memory->end) ||
	    !(pdn_guard_on(memory) & PDN_GUARDED))
		answer = pdn_driver_compare(memory->base, memory->end, buffer_id, others);
	pdn_flight_end_unlocked(&flight);
	errno = saved;
	return answer;
}
