/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of ours among the program's own. They are moved up, away from the low numbers that
 * programs count on; they are close-on-exec; and before one is used it is compared with what it was: a
 * program that closes all descriptors may have somebody else's under our number by then.
 *
 * errno may change; callers keep it.
 */
#ifndef PD_DESCRIPTOR_H
#define PD_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How many the process may have: the soft limit, which is the program's to change and not ours, as
 * it and its children would see that. We take the upper half of these at most: a program that gets
 * along with the lower half never runs out of descriptors for our sake. More than half would gain
 * little.
 */
uint64_t pd_descriptor_limit(void);

/* Move a descriptor up. If there is no place there, it stays where it is, close-on-exec. */
int pd_descriptor_move_up(int fd);

/* One number for the file behind a descriptor, never 0; 0 when there is none. */
uint64_t pd_descriptor_identity(int fd);

static inline bool pd_descriptor_is(int fd, uint64_t identity)
{
	return fd >= 0 && pd_descriptor_identity(fd) == identity;
}

/* Can the process open nothing more? */
bool pd_descriptors_exhausted(void);

/* Not close(): that is a cancellation point, and this runs inside the program's cuMemFree(). */
void pd_descriptor_close(int fd);

#endif
