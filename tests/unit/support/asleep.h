/* SPDX-License-Identifier: MIT */
/* For tests in which a thread is to come as far as it can, and no farther. */
#ifndef ASLEEP_H
#define ASLEEP_H

#define THREAD_GONE '\0'

/* What this thread of the process does, as ps names it: 'R', 'S' and so on. For signal handlers too. */
char thread_state(int tid);

/*
 * Returns when this thread of the process has slept for a while, or is gone. Which states are sleep, as ps names
 * them: in "S" it waits for a lock or an event of the program's; in "D" for one of the kernel's, which may be nothing
 * but its memory map.
 */
void wait_until_asleep(int tid, const char *states);

#endif
