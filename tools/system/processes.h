/* SPDX-License-Identifier: MIT */
/* The processes that run under libpindown.so, by the pages that they publish. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cache/show/format.h"

struct process {
	uint32_t pid;
	uint64_t start;
	uid_t user;
	char command[64];
	struct pindown_stats stats; /* hits, misses and tag_checks are complete sums here */
	uint64_t device_bytes[PDN_TOP_DEVICES];
	uint64_t began;
	int32_t rank;	 /* in its job; negative: unknown */
	int32_t segment; /* the shared memory of its page */
	bool traced;
	/* The values of the previous processes_read(), and the times of both calls (ns). */
	struct pindown_stats before;
	uint64_t seen_at, seen_before;
};

struct processes {
	struct process *list;
	unsigned count, capacity;
	unsigned others; /* processes whose pages are those of another release: not in the list */
};

/*
 * Reads the pages of all processes, in the order of their pids. A process that was in `*all` before
 * keeps its former values. Removes files that killed processes have left, where permitted.
 */
void processes_read(struct processes *all);

/* Is it among them? false after one line that says why it may not be. */
bool processes_have(const struct processes *all, uint32_t pid);

/* The numbers in these texts; false after one line about one that is none. */
bool processes_parse(char **texts, uint32_t *pids, unsigned count);

/* The process that has started this one, or has taken it over; 0: there is none. */
uint32_t process_parent(uint32_t pid);

/* All words of its command line, without control characters, for release(). */
char *process_command_line(const struct process *process);
void processes_free(struct processes *all);

#endif
