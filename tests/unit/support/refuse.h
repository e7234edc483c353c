/* SPDX-License-Identifier: MIT */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

/*
 * Installs a system call filter, as a sandbox does: from here on this system call fails with this
 * errno in this thread and in those that it starts. Returns false if no filter can be installed
 * here.
 */
bool refuse_system_call(unsigned number, unsigned error);

/* By a limit of the address space. Sanitizers map memory all the time. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_REFUSE_MEMORY 0
#else
#define CAN_REFUSE_MEMORY 1
#endif

#endif
