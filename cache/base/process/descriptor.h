/* SPDX-License-Identifier: MIT */
/*
 * Our descriptors among the program's own. They are moved up, away from the low numbers that
 * programs count on; they are close-on-exec; and before one is used its identity is checked: after
 * a program has closed all descriptors, the number may be another file's.
 */
#ifndef PDN_DESCRIPTOR_H
#define PDN_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How many the process may have: the soft limit. It is the program's to change, not pindown's, as
 * the program and its children would see that. pindown takes the upper half of these at most: a
 * program that needs only the lower half never runs out of descriptors because of pindown. More
 * than half would gain little.
 */
uint64_t pdn_descriptor_limit(void);

/* Move a descriptor up. If there is no place there, it stays where it is, close-on-exec. */
int pdn_descriptor_move_up(int fd);

/* Another descriptor of the same file: a high number, close-on-exec; or a negative errno. */
int pdn_descriptor_duplicate(int fd);

/* One number for the file behind a descriptor, never 0; 0 when there is none. */
uint64_t pdn_descriptor_identity(int fd);

static inline bool pdn_descriptor_is(int fd, uint64_t identity)
{
	return fd >= 0 && pdn_descriptor_identity(fd) == identity;
}

/*
 * Does the parent of this process have the very same table of descriptors, not a copy of it? So it
 * is after clone(CLONE_FILES) without CLONE_VM. Async-signal-safe.
 */
bool pdn_descriptors_are_shared(void);

/* Can the process open nothing more? */
bool pdn_descriptors_exhausted(void);

void pdn_descriptor_close(int fd);

#endif
