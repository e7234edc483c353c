/* SPDX-License-Identifier: MIT */
/*
 * The trace file itself: its name, its descriptor and its space. For writer.c only.
 *
 * The descriptor is in the program's hands: a program that closes all of its descriptors closes
 * ours too, and the number may then be another file's. So it is checked before each use, and the
 * file is opened anew by name when it is gone.
 *
 * It is written by system calls alone: a full disk, a quota or RLIMIT_FSIZE makes lost events, and
 * a file that somebody makes shorter ends the trace. A mapping would make SIGBUS of both, which
 * nothing prevents: a copy-on-write file system needs new space for each page that it has written
 * back.
 *
 * Who calls what creates, claims or writes has blocked SIGXFSZ and cancellation. None of these
 * keeps errno.
 */
#ifndef PD_TRACE_FILE_H
#define PD_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/trace/format.h"

/*
 * Creates the file that `name` stands for, with unit 0. False when it can't, after one line that
 * says why.
 */
bool pd_trace_file_create(const char *name);

/* Writes its unit 0 for the first time. False when it can't: then it is dropped. */
bool pd_trace_file_begin(const struct pd_trace_header *header);

/* Takes back what was created, with one line that gives an errno as the reason. */
void pd_trace_file_drop(int error);

/* Which file it is. */
void pd_trace_file_identify(uint64_t *device, uint64_t *inode);

/* In a forked child: forget the parent's file, without touching it. */
void pd_trace_file_forget(void);

/*
 * Claims units of the file, which then reaches behind them; their offset, or 0: no room. Any
 * thread.
 */
uint64_t pd_trace_file_claim(unsigned units);

/* Writes what lies in claimed units, or in unit 0. False: no room, or it is cut. Any thread. */
bool pd_trace_file_write(const void *from, size_t bytes, uint64_t offset);

/* There was no room a moment ago: not to be asked for again now. */
bool pd_trace_file_is_full(void);

/* Somebody has made the file shorter: nothing more is written. One line has said so. */
bool pd_trace_file_is_cut(void);

#endif
