/* SPDX-License-Identifier: MIT */
/* For tests in which a thread must get as far as it can, and no farther. */
#ifndef ASLEEP_H
#define ASLEEP_H

#define THREAD_GONE '\0'

/*
 * The state of this thread, of any process, as ps names it: 'R', 'S' and so on; THREAD_GONE if it
 * has ended. Signal handlers may call it.
 */
char thread_state(int tid);

/*
 * Returns when this thread, of any process, has slept for a while, or has ended; aborts the test if
 * that takes longer than PATIENCE_NS. `states` says which states count as sleep, as ps names them.
 * In "S" the thread waits for a lock or an event of the program. In "D" it waits for a lock of the
 * kernel, possibly just the process's memory map.
 */
void wait_until_asleep(int tid, const char *states);

#endif
