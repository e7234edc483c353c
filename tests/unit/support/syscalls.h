/* SPDX-License-Identifier: MIT */
/* For tests that act just before a system call of the cache, or instead of it. */
#ifndef SYSCALLS_H
#define SYSCALLS_H

#include <stdbool.h>

/*
 * The test's own function: called before each system call that the cache makes. True: the call is
 * not made, and the cache gets `result`, which is a negative errno where the call is to fail.
 */
bool play_syscall(long number, const long args[6], long *result);

/* Makes a call that is not played, with the kernel's own answer. */
long __real_pdn_system_call(long number, long a, long b, long c, long d, long e, long f);

#endif
