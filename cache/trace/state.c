// SPDX-License-Identifier: MIT
/* The state of the trace, and working on it undisturbed by signals and cancellation. */
#define _GNU_SOURCE
#include "cache/trace/state.h"

#include <pthread.h>

#include "cache/trace/journal.h"
#include "cache/trace/writer.h"

struct pd_trace pd_trace;
uint32_t pd_trace_mask;

void pd_trace_stop(void)
{
	__atomic_store_n(&pd_trace_mask, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&pd_trace.state, PD_TRACE_OFF, __ATOMIC_RELEASE);
	pd_journal_end();
}

void pd_alone_begin(struct pd_alone *alone)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&all, own[i]);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &alone->cancel);
	pthread_sigmask(SIG_BLOCK, &all, &alone->mask);
}

void pd_alone_end(const struct pd_alone *alone)
{
	pthread_sigmask(SIG_SETMASK, &alone->mask, NULL);
	pthread_setcancelstate(alone->cancel, NULL);
}
