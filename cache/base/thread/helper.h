/* SPDX-License-Identifier: MIT */
/* Threads of pindown's own, which sleep until something outside of the process asks for them. */
#ifndef PDN_HELPER_H
#define PDN_HELPER_H

#include <stdbool.h>

/*
 * Starts one, detached, named "pindown". It blocks all signals: the program's are for the program's
 * own threads. Its stack is as large as theirs: the thread-local data of all libraries is in there,
 * and callbacks run on it. false: there is no room for a thread. Keeps errno.
 */
bool pdn_helper_start(void *(*run)(void *), void *arg);

#endif
