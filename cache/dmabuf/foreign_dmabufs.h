/* SPDX-License-Identifier: MIT */
/*
 * Dma-bufs that the program, or middleware in it, has made itself with
 * cuMemGetHandleForAddressRange. Each is remembered with the memory that it stands for, whether or
 * not a trace is written, for two purposes:
 *
 *	- A registration by such a descriptor is of GPU memory, and can be served from the cache
 *	  (hook/verbs): pdn_export_find() says which memory it is.
 *	- The dma-buf keeps its memory for as long as it is open or imported, like a pin, and its
 *	  owner is not notified when the program frees the memory: that will be a stale
 *	  registration. The trace records each free that such a dma-buf outlives.
 *
 * A dma-buf is known by its inode, not by the number of its descriptor: so a duplicate is the same
 * dma-buf, also one that was received in a message, and a number that another file has taken is
 * not. It is forgotten when its memory ends. The closing of descriptors is not watched: as their
 * number grows, those are forgotten that this process has no descriptor of and no known import. A
 * dma-buf that is only in another process, or on its way in a message, at that moment is forgotten
 * too, and then is like one that was never known.
 *
 * At the end of the memory the first descriptor is looked at: does its number still stand for the
 * same file? A duplicate of it is not found then, nor, after it was closed, an import; except for
 * imports by watched verbs, which say so.
 *
 * All of these keep errno. Where nothing was exported, a free costs nothing.
 */
#ifndef PDN_FOREIGN_DMABUFS_H
#define PDN_FOREIGN_DMABUFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/end/guard.h"

/*
 * Around the program's call that exports [addr, addr + size). Before it: which memory is there? One
 * number; 0: unknown. After it: the call has made this descriptor, with these flags. If other
 * memory is there by then, which of the two was exported is not known.
 */
uint64_t pdn_export_begins(uint64_t addr, uint64_t size);
void pdn_exported(uint64_t addr, uint64_t size, uint64_t flags, int fd, uint64_t before,
		  const void *caller);

/* A part of a dma-buf, as memory. */
struct pdn_exported {
	uint64_t addr;		  /* where the part begins */
	struct pdn_memory memory; /* the allocation; the part may reach beyond either end */
	uint64_t buffer_id, mappings_hash; /* of the allocation: see struct pdn_allocation */
	uint64_t flags;			   /* of the export */
	uint32_t past;			   /* pdn_past_ended, when it was found */
};

/*
 * Which memory are `length` bytes at this offset of the descriptor's dma-buf? false: the descriptor
 * is not known, it has no such part, or its memory has ended. The buffer id is compared: the driver
 * has this memory there at the moment of the call. Lock not held.
 */
bool pdn_export_find(int fd, uint64_t offset, uint64_t length, struct pdn_exported *part);

/*
 * Does the driver still have that memory there, or other memory with this buffer id? No, too, if
 * another thread is just freeing it: then the driver is not asked.
 */
bool pdn_export_is_still_there(const struct pdn_exported *part);
bool pdn_buffer_is_still_there(uint64_t addr, uint64_t buffer_id);
bool pdn_region_is_still_there(const struct pindown_region *region);

/*
 * A duplicate of the descriptor, if it still stands for that part; negative: it does not, or there
 * is no descriptor free. The program's other threads may give its number to another file between
 * two looks at it, but not the duplicate's, which they do not know. To be closed without delay.
 */
int pdn_export_open(int fd, uint64_t offset, uint64_t length, const struct pdn_exported *part);
void pdn_export_close(int fd);

/*
 * `by` has imported the buffer that fd stands for, and holds it until it lets go. The trace names
 * the caller if the memory ends before that; NULL: it is not known.
 */
void pdn_export_imported(int fd, const void *by, const void *caller);
void pdn_export_let_go(const void *by);

/* False: the scope ends no memory of any of them. Costs little. */
bool pdn_exports_may_be_in(const struct pdn_scope *scope);

/* Before the memory ends: record which of them outlive it, and forget them. Lock not held. */
void pdn_exports_end(const struct pdn_scope *scope, enum pindown_reason reason);

#endif
