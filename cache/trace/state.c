// SPDX-License-Identifier: MIT
/* The state of the trace, and working on it undisturbed by signals and cancellation. */
#define _GNU_SOURCE
#include "cache/trace/state.h"

#include <pthread.h>

#include "cache/base/visible.h"
#include "cache/trace/journal.h"
#include "cache/trace/writer.h"

PDN_AT_LOAD struct pdn_trace pdn_trace;
uint32_t pdn_trace_mask;

void pdn_trace_stop(void)
{
	__atomic_store_n(&pdn_trace_mask, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&pdn_trace.state, PDN_TRACE_OFF, __ATOMIC_RELEASE);
	pdn_journal_end();
}

void pdn_alone_begin(struct pdn_shield *alone)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&all, own[i]);
	pdn_shield_up(alone);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
}

void pdn_alone_end(struct pdn_shield *alone)
{
	pdn_shield_down(alone);
}
