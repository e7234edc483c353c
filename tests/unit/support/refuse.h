/* SPDX-License-Identifier: MIT */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

#include "tests/unit/support/sanitizers.h"

/*
 * Installs a system call filter, as a sandbox does: from here on this system call fails with this
 * errno in this thread and in those that it starts. Returns false if no filter can be installed
 * here.
 */
bool refuse_system_call(unsigned number, unsigned error);

/* By a limit of the address space. Sanitizers map memory all the time. */
#define CAN_REFUSE_MEMORY (!UNDER_SANITIZER)

#endif
