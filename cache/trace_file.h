/* SPDX-License-Identifier: MIT */
/*
 * The trace file itself: its name, its descriptor and its space. For trace.c only.
 *
 * The descriptor is in the program's hands: a program that closes all of its descriptors closes
 * ours too, and the number may then be another file's. So it is checked before each use, and the
 * file is opened anew by name when it is gone.
 *
 * Space is really allocated before it is mapped: a full disk, a quota or RLIMIT_FSIZE makes lost
 * events, never a SIGBUS or SIGXFSZ.
 *
 * Mappings are made by bare system calls: memory hooks of other libraries in the process (UCX,
 * libfabric) watch mmap and munmap and take locks there that our caller may hold.
 */
#ifndef PD_TRACE_FILE_H
#define PD_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace_format.h"

/*
 * Creates the file that `name` stands for and maps its unit 0, all zero. NULL when it can't, after
 * one line that says why.
 */
struct pd_trace_header *pd_trace_file_create(const char *name);

/* In a forked child: forget the parent's file, without touching it. */
void pd_trace_file_forget(void);

/* Allocates units in the file; their offset, or 0 when there is no room. Any thread. */
uint64_t pd_trace_file_claim(unsigned units);

/*
 * Maps units that were claimed, writable, at `window` (where an own mapping is replaced), or with
 * NULL anywhere. NULL when it can't; an own mapping at `window` may then be gone.
 */
void *pd_trace_file_map(void *window, uint64_t offset, unsigned units);

/* Address space for a thread's chunks, without access. NULL when there is none. */
void *pd_trace_window(size_t bytes);
void pd_trace_unmap(void *address, size_t bytes);

/* The path of the file that is written, or NULL. Not to be asked while it is being opened. */
const char *pd_trace_file_name(void);

#endif
