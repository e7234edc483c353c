/* SPDX-License-Identifier: MIT */
/* Waiting until announcements of regions are over. */
#include "cache/base/thread/lock.h"
#include "cache/base/process/process.h"
#include "cache/base/thread/thread.h"
#include "cache/hit/announced.h"
#include "cache/hit/region.h"

/*
 * A thread with an announcement of its own was cancelled in a hit, and ends the region in a
 * clean-up handler: it does not wait for itself. In a child that a signal handler forked just here
 * the other threads are gone; so are their announcements, once this thread has let go of the lock.
 */
void pdn_wait_for_reader(const struct pdn_thread *thread, uint32_t number)
{
	struct pdn_backoff rest = {0};

	while (__atomic_load_n(&thread->announced, __ATOMIC_ACQUIRE) == number &&
	       thread != pdn_self_tls && pdn_process_is_known())
		pdn_backoff(&rest);
}

/*
 * After the barrier, each hit that has loaded a live state is announced. The acquire pairs with the
 * release at the end of hold_if(): a hit that has ended has counted its hold. The state is this
 * thread's own store.
 */
void __attribute__((noinline)) pdn_announced_of_others_pass(void)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk))) {
		uint32_t number = __atomic_load_n(&t->announced, __ATOMIC_SEQ_CST);

		if (!number ||
		    __atomic_load_n(&pdn_briefs[number].state, __ATOMIC_RELAXED) != PDN_DYING)
			continue;
		/* A few instructions, unless that thread has lost its processor in between. */
		pdn_wait_for_reader(t, number);
	}
}

static bool compares(const struct pdn_thread *thread, uint32_t number)
{
	uint32_t comparing = __atomic_load_n(&thread->comparing, __ATOMIC_ACQUIRE);

	return comparing && (comparing == number || number == PDN_ANY_REGION);
}

static uint32_t who_compares(uint32_t number)
{
	struct pdn_walk walk = PDN_WALK;
	const struct pdn_thread *t;

	while ((t = pdn_walk_next(&walk)))
		if (compares(t, number) && t != pdn_self_tls)
			return t->tid;
	return 0;
}

/* An answer takes less than a microsecond as a rule, and its thread wakes nobody. */
void __attribute__((cold)) pdn_comparisons_pass(uint32_t number)
{
	struct pdn_backoff rest = {0};
	uint64_t deadline;
	uint32_t other;

	do {
		deadline = pdn_race_deadline();
		while ((other = who_compares(number)) != 0 && pdn_process_is_known() &&
		       pdn_deadline(0) < deadline)
			pdn_backoff(&rest);
	} while (other && pdn_process_is_known() && pdn_free_waits_on(other, "comparison"));
}
