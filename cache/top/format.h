/* SPDX-License-Identifier: MIT */
/*
 * The page that a process publishes for `pindown top`. It is shared memory of System V, which
 * nobody can make shorter: of a file that is mapped a later store may be a SIGBUS. It goes with the
 * process.
 *
 * A file pindown.<pid>.<start> in /dev/shm, or else in $XDG_RUNTIME_DIR, says where the page is. It
 * is the head of the page as it was in the beginning. <start> is the process's start time as in
 * /proc/<pid>/stat. A process that is killed leaves the file behind; the start time tells.
 *
 * Everything is in the machine's byte order; a reader and a writer are on one machine.
 */
#ifndef PD_LIVE_FORMAT_H
#define PD_LIVE_FORMAT_H

#include <stdint.h>

#include "cache/pindown.h"

#define PD_LIVE_MAGIC	"pdlive2"
#define PD_LIVE_PREFIX	"pindown."
#define PD_LIVE_BYTES	16384u
#define PD_LIVE_DEVICES 64u

/* One for each thread that counts, on a line of the processor's cache of its own. */
struct pd_live_slot {
	uint64_t hits, misses, tag_checks, spare[5]; /* struct pd_counters */
};

struct pd_live {
	char magic[8];
	uint32_t stats_size, slots;
	uint32_t pid, sequence; /* sequence: odd while the statistics are being written */
	uint64_t start;
	uint64_t pid_namespace;		/* inode of /proc/self/ns/pid */
	uint64_t exe_device, exe_inode; /* of /proc/self/exe: after an exec the page is void */
	uint64_t began;			/* seconds since 1970 */
	/*
	 * As of the last change of what is pinned; hits, misses and tag_checks there are those of threads
	 * that have no slot.
	 */
	union {
		struct pindown_stats stats;
		char room[512];
	};
	struct {
		uint64_t bytes, regions;
	} devices[PD_LIVE_DEVICES];
	char trace[2048]; /* the trace, which then has the threads' counters; "" without one */
	int32_t segment;  /* the number of the shared memory that the page is in */
	int32_t spare;
};

#define PD_LIVE_SLOTS_AT 4096u
#define PD_LIVE_SLOTS	 ((PD_LIVE_BYTES - PD_LIVE_SLOTS_AT) / sizeof(struct pd_live_slot))

_Static_assert(sizeof(struct pd_live) <= PD_LIVE_SLOTS_AT, "the head has a page");
_Static_assert(sizeof(struct pd_live_slot) == 64, "a slot has a cache line");
_Static_assert(sizeof(struct pindown_stats) <= 512, "the statistics have room");

#endif
