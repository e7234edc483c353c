/* SPDX-License-Identifier: MIT */
/*
 * The trace file itself: its name, its descriptor and its space.
 *
 * A program that closes all of its descriptors closes the trace's too, and the number can then
 * belong to another file. So the descriptor is checked before each use, and the file is opened
 * again by name if the descriptor is gone.
 *
 * The file is written by system calls alone: a full disk, a quota or RLIMIT_FSIZE then loses
 * events, and truncating the file ends the trace. With a mapping both would raise SIGBUS, which
 * can't be prevented: a copy-on-write file system needs new space for each page that it has written
 * back.
 *
 * A caller of a function that creates, claims or writes is alone: see below.
 */
#ifndef PDN_TRACE_FILE_H
#define PDN_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/environment/log.h"
#include "cache/trace/format.h"

enum pdn_trace_state { PDN_TRACE_UNTRIED, PDN_TRACE_OPENING, PDN_TRACE_OPEN, PDN_TRACE_OFF };

/*
 * The state is stored with release when all else is set up, and loaded with acquire before all else
 * is used. From PDN_TRACE_UNTRIED on it changes by compare-and-swap, so that one thread opens.
 */
struct pdn_trace {
	int state;			 /* enum pdn_trace_state */
	struct pdn_trace_header *header; /* in the journal */
	bool ended;			 /* closed: events are written one by one */
};
extern __attribute__((visibility("hidden"))) struct pdn_trace pdn_trace;

/*
 * Between this and pdn_shield_down() a thread may write to the file or change its place in it: no
 * call in a signal handler, no jump out of one and no cancellation can find that half done, and the
 * program never sees SIGXFSZ, nor another errno. Signals that a thread causes itself stay
 * unblocked: blocked, they would kill it.
 */
void pdn_alone_begin(struct pdn_shield *alone);

/*
 * Creates the file that `name` stands for, with unit 0, which begins with the header; NULL: there
 * was no memory for it. False if that fails, after a message that says why.
 */
bool pdn_trace_file_create(const char *name, const struct pdn_trace_header *header);

/* In a forked child: forget the parent's file, without touching it. */
void pdn_trace_file_forget(void);

/* Extends the file by a unit. Returns its offset, or 0 if there is no room. Any thread. */
uint64_t pdn_trace_file_claim(void);

/*
 * Writes into claimed units or unit 0. False: no room, or the file was truncated, which ends the
 * trace. Any thread.
 */
bool pdn_trace_file_write(const void *from, size_t bytes, uint64_t offset);

/* There was no room a moment ago; don't ask for more yet. */
bool pdn_trace_file_is_full(void);

/* The path of the file being written, or NULL. Don't call it while the trace is being opened. */
const char *pdn_trace_file_name(void);

#endif
