/* SPDX-License-Identifier: MIT */
/* Child processes of pindown doctor --try, and memory that they share with their parent. */
#ifndef TRY_CHILD_H
#define TRY_CHILD_H

#include <sys/types.h>

#include "tools/doctor/try.h"

/* A child that holds the write end of a pipe, so that the other end tells when it is gone. */
struct child {
	pid_t pid;
	int gone;
};

/* In the child it returns true. */
bool child_start(struct child *child);

/*
 * Waits until the child ends; each stage of its `count` attempts may take `patience` seconds.
 * Returns the signal that ended the child, -1 if it exited, 0 if it had to be killed. A child that
 * hangs in the kernel can't be killed: it is left behind.
 */
int child_wait(struct child *child, unsigned patience, const struct attempt *attempts,
	       unsigned count);

/* Attempts that one child makes, one after another. */
struct series {
	unsigned count;
	void (*begin)(void); /* in the child, before the first */
	void (*make)(const void *what, unsigned number, struct attempt *attempt);
	const void *what;
};

/*
 * Makes them in a child; if that stops in one, another child makes the rest. The attempts are in
 * memory of child_memory().
 */
void child_make(const struct series *series, unsigned patience, struct attempt *attempts);

/* Memory that children write to and that starts as zeroes, for munmap(); NULL: there is none. */
void *child_memory(size_t bytes);

#endif
