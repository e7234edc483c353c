/* SPDX-License-Identifier: MIT */
#ifndef REFUSE_H
#define REFUSE_H

#include <stdbool.h>

/*
 * A system call filter, as a sandbox installs one: from here on this system call answers so (an
 * errno) in this thread and in those that it starts. false: no filter can be installed here.
 */
bool refuse_system_call(unsigned number, unsigned error);

#endif
