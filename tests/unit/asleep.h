/* SPDX-License-Identifier: MIT */
/* For tests in which a thread is to come as far as it can, and no farther. */
#ifndef ASLEEP_H
#define ASLEEP_H

/*
 * Returns when this thread of the process has slept for a while, as it does for a lock, for an event or in
 * the kernel, or when it is gone.
 */
void wait_until_asleep(int tid);

#endif
