/* SPDX-License-Identifier: MIT */
/* For tests that act just before a system call of the cache, or instead of it. */
#ifndef SYSCALLS_H
#define SYSCALLS_H

#include <stdbool.h>

/*
 * The test's own function: called before each system call that the cache makes by syscall(). True:
 * the call is not made, and the cache gets `result`, with errno as it is then.
 */
bool play_syscall(long number, const long args[6], long *result);

/* Makes a call that is not played. */
long __real_syscall(long number, ...);

#endif
