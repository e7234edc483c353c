/* SPDX-License-Identifier: MIT */
/*
 * Device addresses and the memory behind them.
 *
 * cuInit reserves one big range of addresses without access, for all devices and all kinds of
 * memory: the host can't touch device memory through a device pointer, as on a machine with a GPU.
 * (Managed and page-locked host memory is mapped into its place there, and can be touched.) The
 * range is divided into slots of 2 MiB. A block covers whole slots: it is one allocation, or many
 * small ones packed at 512-byte steps, or one mapping of the program (cuMemMap). The program's
 * reservations begin in the upper half of the range, or where the program asks for them: memory
 * that was freed, whose address is then not handed out again.
 *
 * All functions need the API lock.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "store.h"

#define SIM_UNIT   512u
#define SIM_CHUNK  (32ull << 20) /* the unit in which pools grow */
#define SIM_VACANT 64u		 /* the ranges of addresses that a pool keeps without memory */

enum sim_kind {
	SIM_LINEAR,	 /* cuMemAlloc, cuMemAllocPitch */
	SIM_POOL,	 /* cuMemAllocAsync, cuMemAllocFromPoolAsync */
	SIM_MAPPED,	 /* cuMemMap */
	SIM_MANAGED,	 /* cuMemAllocManaged */
	SIM_HOST,	 /* cuMemAllocHost, cuMemHostAlloc */
	SIM_IPC,	 /* cuIpcOpenMemHandle */
	SIM_EXTERNAL,	 /* cuExternalMemoryGetMappedBuffer */
	SIM_GRAPHICS,	 /* cuGraphicsMapResources */
	SIM_GLOBAL,	 /* a variable of a module */
	SIM_GRAPH,	 /* owned by a graph: the driver gives no information about it */
	SIM_REGISTERED,	 /* cuMemHostRegister */
	SIM_POOL_IMPORT, /* cuMemPoolImportPointer */
};

struct sim_context;
struct sim_pool;
struct sim_block;

struct sim_alloc {
	uint64_t addr, size;
	uint64_t id; /* never used twice in a process */
	enum sim_kind kind;
	int device;
	bool sync_memops;
	bool pending;		     /* freed in a stream that nobody has waited for */
	uint32_t flags;		     /* meaning depends on the kind */
	unsigned opened;	     /* IPC: the number of opens */
	struct sim_context *context; /* owner; NULL: outlives contexts */
	struct sim_pool *pool;
	struct sim_block *block;
	void *owner;		       /* meaning depends on the kind */
	uint64_t record;	       /* where its struct sim_record is, 0: never shared */
	struct sim_alloc *prev, *next; /* of the context */
};

/* Many allocations in one block. */
struct sim_packing {
	unsigned units, free_units;
	unsigned last_unit, last_units; /* those freed last */
	uint64_t *used;			/* a bit for each unit */
	uint64_t *starts;		/* a bit where an allocation begins */
	struct sim_alloc **alloc;	/* at its first unit */
};

struct sim_block {
	uint64_t base, size; /* whole slots */
	int device;
	struct sim_extent *extent; /* NULL: host memory at the same address, or nothing */
	uint64_t extent_offset;
	struct sim_alloc *whole;     /* one allocation */
	struct sim_packing *packing; /* or many */
	struct sim_heap *heap;
	struct sim_block *prev, *next; /* of the heap */
};

/*
 * The source of allocations: a context's own memory, or a pool. A heap with `keep` keeps empty
 * blocks until it is trimmed.
 */
struct sim_heap {
	int device;
	bool keep;
	bool hidden;		 /* can't be exported: variables of modules */
	uint64_t home;		 /* a slot that is its own; 0: there is none */
	uint64_t chunk;		 /* bytes of a packed block; 0: 2 MiB */
	struct sim_block *small; /* packed blocks */
	struct sim_block *last;	 /* the block of the last allocation or free */
	struct sim_block *idle;	 /* whole blocks without an allocation, newest first */
	/* With `keep`: addresses of blocks whose memory was given back. They stay the heap's. */
	struct {
		uint64_t base, size;
	} vacant[SIM_VACANT];
	unsigned next_vacant;
	uint64_t reserved, used; /* bytes of blocks, of allocations */
	uint64_t reserved_high, used_high;
};

/* An allocation that belongs to no context yet. NULL: out of memory. */
struct sim_alloc *sim_heap_alloc(struct sim_heap *heap, uint64_t size, enum sim_kind kind);
void sim_heap_free(struct sim_heap *heap, struct sim_alloc *alloc);
/* Frees empty blocks until at most `keep` bytes are reserved. */
void sim_heap_trim(struct sim_heap *heap, uint64_t keep);
/* Frees all of them, and their addresses. */
void sim_heap_end(struct sim_heap *heap);

/* A record, with a new id, for an allocation that another file backs. */
struct sim_alloc *sim_alloc_new(enum sim_kind kind, uint64_t addr, uint64_t size, int device);
void sim_alloc_delete(struct sim_alloc *alloc);
void sim_alloc_to_context(struct sim_alloc *alloc, struct sim_context *context);
/* A new id for memory that was mapped again. */
uint64_t sim_next_id(void);

/*
 * Takes whole slots of addresses for memory: those freed last, or some in or behind the chunk of a
 * context's home (0: in any). Returns 0 when there is no space.
 */
uint64_t sim_addresses_take(uint64_t size, uint64_t home);
/* A slot in a chunk that nobody uses, which sim_addresses_drop() gives back. */
uint64_t sim_addresses_take_home(void);
void sim_addresses_drop(uint64_t addr, uint64_t size);
/* 32-bit addresses, for the calls from before CUDA 3.2. */
uint64_t sim_low_addresses_take(uint64_t size);
/*
 * The same for a reservation of the program: at `wanted`, if all of that is free and no hole is
 * taken instead (addresses.c), else apart from memory.
 */
uint64_t sim_addresses_reserve(uint64_t size, uint64_t align, uint64_t wanted);
/* The reservation that contains an address; false, and all unchanged, when there is none. */
bool sim_reservation_at(uint64_t addr, uint64_t *base, uint64_t *size);
/* Ends a whole reservation. */
void sim_addresses_unreserve(uint64_t base, uint64_t size);
/* Maps host memory at these addresses (touchable), or removes access again. */
bool sim_addresses_open(uint64_t addr, uint64_t size);
void sim_addresses_shut(uint64_t addr, uint64_t size);

/* Puts a block into its slots, or removes it. The addresses must have been reserved. */
struct sim_block *sim_block_place(uint64_t base, uint64_t size, int device,
				  struct sim_extent *extent, uint64_t extent_offset);
/* Drops the extent; the addresses stay reserved. */
void sim_block_remove(struct sim_block *block);

/* Every block gets other memory with the same contents. */
void sim_move_all_memory(void);

/* One allocation in a block of its own, with addresses and memory of its own. */
struct sim_alloc *sim_alloc_whole(enum sim_kind kind, uint64_t size, int device,
				  struct sim_extent *extent, uint64_t base);
void sim_free_whole(struct sim_alloc *alloc);

bool sim_in_arena(uint64_t addr);
struct sim_block *sim_block_at(uint64_t addr);
/* Is anything in the range live? The range is in one block. */
bool sim_block_has_live(const struct sim_block *block, uint64_t addr, uint64_t size);
/* The live allocation that contains the address; also registered host memory. */
struct sim_alloc *sim_alloc_at(uint64_t addr);

/*
 * The host address of [addr, addr + *length), and in *length the length of its first piece. NULL:
 * no memory there. Plain host memory has its own address.
 */
char *sim_view(uint64_t addr, uint64_t *length);

/* host.c: memory that the program registered */
struct sim_alloc *sim_registered_at(uint64_t addr);

#endif
