/* SPDX-License-Identifier: MIT */
/* Signals that wait while a thread's record changes hands. */
#ifndef PDN_HELD_SIGNALS_H
#define PDN_HELD_SIGNALS_H

#include <signal.h>

/*
 * While a record changes hands, no signal handler runs in its thread: it could fork, or take a
 * record itself. Nor is the thread cancelled. Signals that an instruction raises are let through,
 * as the system would end the process.
 */
void pdn_signals_hold(sigset_t *before);

/* As they were `before`. */
void pdn_signals_let_in(const sigset_t *before);

#endif
