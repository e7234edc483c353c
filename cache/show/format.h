/* SPDX-License-Identifier: MIT */
/*
 * The page that a process publishes for `pindown top`. It is System V shared memory, which can't be
 * truncated: a store to a mapped file that was truncated would raise SIGBUS. It goes away with the
 * process.
 *
 * A file pindown.<pid>.<start> in /dev/shm, or else in $XDG_RUNTIME_DIR, says where the page is: it
 * is a copy of the page's head as it was first written. <start> is the process's start time as in
 * /proc/<pid>/stat. A killed process leaves the file behind; the start time tells it from a later
 * process with the same number. It is a time in the process's time namespace: in another one /proc
 * shows another time for the same process.
 *
 * Everything is in the machine's byte order, since reader and writer run on one machine.
 */
#ifndef PDN_LIVE_FORMAT_H
#define PDN_LIVE_FORMAT_H

#include <stdint.h>

#include "cache/pindown.h"

#define PDN_TOP_FAMILY	"pdlive" /* of each release; what follows these letters may change */
#define PDN_TOP_MAGIC	PDN_TOP_FAMILY "3"
#define PDN_TOP_PREFIX	"pindown."
#define PDN_TOP_BYTES	16384u
#define PDN_TOP_DEVICES 64u

/* The counters of one thread, on a cache line of their own. */
struct pdn_top_slot {
	uint64_t hits, misses, tag_checks, spare[5]; /* struct pdn_counters */
};

/*
 * Between `pindown quiesce` and the process. The tool writes `wanted` alone, by a system call, and
 * wakes who sleeps there; the process writes the rest, `answered` last.
 */
#define PDN_TOP_NAMED	 16u
#define PDN_LEFT_TRACE	 1u /* the trace: its file and its shared memory */
#define PDN_LEFT_DEVICE	 2u /* the descriptor of /dev/pindown */
#define PDN_LEFT_SEGMENT 4u /* this page: there is no memory for a copy */
struct pdn_top_quiesce {
	uint32_t wanted;   /* how often it was wanted */
	uint32_t answered; /* up to which of them */
	uint32_t listens;  /* 1: a thread waits for it (PINDOWN_QUIESCE) */
	uint32_t left;	   /* PDN_LEFT_* */
	uint64_t ended;	   /* regions */
	uint64_t held, held_bytes;
	struct {
		uint64_t base, length;
	} named[PDN_TOP_NAMED]; /* the first of those that are held */
};

struct pdn_top_page {
	char magic[8];
	uint32_t stats_size, slots;
	uint32_t pid, sequence; /* sequence: odd while the statistics are being written */
	uint64_t start;
	uint64_t pid_namespace;		/* inode of /proc/self/ns/pid */
	uint64_t exe_device, exe_inode; /* of /proc/self/exe: after an exec the page is void */
	uint64_t began;			/* seconds since 1970 */
	/*
	 * Stored at each change of what is pinned. Its hits, misses and tag_checks are those of the
	 * threads without a slot.
	 */
	union {
		struct pindown_stats stats;
		char room[512];
	};
	struct {
		uint64_t bytes, regions;
	} devices[PDN_TOP_DEVICES];
	char trace[2040]; /* path of the trace, which then has the threads' counters; "": none */
	uint64_t time_namespace; /* inode of /proc/self/ns/time; 0: there is none */
	int32_t segment;	 /* id of the shared memory segment that the page is in */
	int32_t rank;		 /* in its job, or PDN_NO_RANK (cache/base/environment/rank.h) */
	struct pdn_top_quiesce quiesce;
};

#define PDN_TOP_SLOTS_AT 4096u
#define PDN_TOP_SLOTS	 ((PDN_TOP_BYTES - PDN_TOP_SLOTS_AT) / sizeof(struct pdn_top_slot))

_Static_assert(sizeof(struct pdn_top_page) <= PDN_TOP_SLOTS_AT, "the head fits before the slots");
_Static_assert(sizeof(struct pdn_top_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct pindown_stats) <= 512, "the statistics fit in `room`");

#endif
