/* SPDX-License-Identifier: MIT */
/* Signals that wait while a thread's record changes hands. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>

#include "cache/base/process/held_signals.h"

void pdn_signals_hold(sigset_t *before)
{
	static const int raised[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (unsigned i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		sigdelset(&all, raised[i]);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

void pdn_signals_let_in(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}
