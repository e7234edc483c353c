/* SPDX-License-Identifier: MIT */
/*
 * dma-bufs that the program, or middleware in it, has made itself with cuMemGetHandleForAddressRange.
 * They keep their memory for as long as they are open or imported, like a pin, and nobody tells their
 * owner when the program frees it: a stale registration in the making. So they are remembered while a
 * trace is written, and a free that such a descriptor outlives is put down there.
 *
 * That a descriptor was closed is not watched. It is looked at when the memory ends: does its number
 * still stand for the same file? A duplicate of it is not found, nor, after it was closed, an import;
 * but for imports by watched verbs, which say so.
 *
 * All of these keep errno. Where no trace is written nothing is remembered, and a free costs nothing.
 */
#ifndef PD_EXPORTS_H
#define PD_EXPORTS_H

#include <stdint.h>

#include "cache/race.h"
#include "cache/pindown.h"

/* The program's call has just made this descriptor of [addr, addr + size). */
void pd_exported(uint64_t addr, uint64_t size, int fd, const void *caller);

/* `by` has imported the buffer that fd stands for, and holds it until it lets go. */
void pd_export_imported(int fd, const void *by);
void pd_export_let_go(const void *by);

/* Before the memory ends: put down which of them outlive it, and forget them. Lock not held. */
void pd_exports_end(const struct pd_scope *scope, enum pindown_reason reason);

void pd_exports_fork_child(void);

#endif
