/* SPDX-License-Identifier: MIT */
/* Frees in threads that could get no record. */
#include "cache/base/process/held_signals.h"
#include "cache/base/thread/thread.h"

uint32_t pdn_thread_recordless;

/* This thread's. It may be cancelled in the driver's free, and may have got a record by then. */
static __thread int own_recordless __attribute__((tls_model("initial-exec")));

/*
 * Not interrupted in between: a signal handler could fork, and the child, which counts from 0
 * again, would count down what it has not counted, or never what it has. (An asynchronous
 * cancellation leaves one counted for good: pins wait for it, but none is overlooked.)
 */
uint32_t __attribute__((cold)) pdn_thread_count_recordless(int change, uint32_t life)
{
	sigset_t signals;
	uint32_t now;

	pdn_signals_hold(&signals);
	now = pdn_thread_life;
	if (!life || life == now) {
		if (change < 0)
			own_recordless += change;
		__atomic_fetch_add(&pdn_thread_recordless, (uint32_t)change, __ATOMIC_SEQ_CST);
		if (change > 0)
			own_recordless += change;
	}
	pdn_signals_let_in(&signals);
	return now;
}

void pdn_thread_drop_recordless(void)
{
	if (own_recordless)
		pdn_thread_count_recordless(-own_recordless, 0);
}

void pdn_thread_recordless_fork_child(void)
{
	pdn_thread_recordless = 0;
	own_recordless = 0;
}
