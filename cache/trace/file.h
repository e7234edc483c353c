/* SPDX-License-Identifier: MIT */
/*
 * The trace file itself: its name, its descriptor and its space. For the writer only.
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
 * A caller of a function that creates, claims or writes has blocked SIGXFSZ and cancellation.
 */
#ifndef PDN_TRACE_FILE_H
#define PDN_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/trace/format.h"

/*
 * Creates the file that `name` stands for, with unit 0, which begins with the header; NULL: there
 * was no memory for it. False if that fails, after a message that says why.
 */
bool pdn_trace_file_create(const char *name, const struct pdn_trace_header *header);

/* The file's device and inode numbers. */
void pdn_trace_file_identify(uint64_t *device, uint64_t *inode);

/* In a forked child: forget the parent's file, without touching it. */
void pdn_trace_file_forget(void);

/* Claims a unit of the file, which is extended. Its offset, or 0 if there is no room. Any thread. */
uint64_t pdn_trace_file_claim(void);

/* Writes into claimed units or unit 0. False: no room, or the file was truncated. Any thread. */
bool pdn_trace_file_write(const void *from, size_t bytes, uint64_t offset);

/* There was no room a moment ago; don't ask for more yet. */
bool pdn_trace_file_is_full(void);

/* The file was truncated: nothing more is written. A message has said so. */
bool pdn_trace_file_is_cut(void);

#endif
