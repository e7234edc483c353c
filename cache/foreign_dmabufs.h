/* SPDX-License-Identifier: MIT */
/*
 * Dma-bufs that the program, or middleware in it, has made itself with
 * cuMemGetHandleForAddressRange. They keep their memory for as long as they are open or imported,
 * like a pin, and their owner is not notified when the program frees it: that will be a stale
 * registration. So they are remembered while a trace is written, and the trace records each free
 * that such a descriptor outlives.
 *
 * The closing of a descriptor is not watched. At the end of the memory the descriptor is looked at:
 * does its number still stand for the same file? A duplicate of it is not found, nor, after it was
 * closed, an import; except for imports by watched verbs, which say so.
 *
 * All of these keep errno. Where no trace is written nothing is remembered, and a free costs
 * nothing.
 */
#ifndef PDN_EXPORTS_H
#define PDN_EXPORTS_H

#include <stdint.h>

#include "cache/race.h"
#include "cache/pindown.h"

/* The program's call has just made this descriptor of [addr, addr + size). */
void pdn_exported(uint64_t addr, uint64_t size, int fd, const void *caller);

/* `by` has imported the buffer that fd stands for, and holds it until it lets go. */
void pdn_export_imported(int fd, const void *by);
void pdn_export_let_go(const void *by);

/* Before the memory ends: record which of them outlive it, and forget them. Lock not held. */
void pdn_exports_end(const struct pdn_scope *scope, enum pindown_reason reason);

void pdn_exports_fork_child(void);

#endif
