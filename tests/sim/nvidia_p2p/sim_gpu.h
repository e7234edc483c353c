/* SPDX-License-Identifier: MIT */
/*
 * /dev/sim_gpu: the simulated GPU of the test guest, for the simulated libcuda and for tests.
 *
 * Memory and addresses are separate, as in the real driver: memory is allocated (a handle), and
 * mapped at GPU virtual addresses of this process, once, several times or not at all.
 * nvidia_p2p_get_pages() pins mapped addresses; the end of a mapping calls the callbacks of its
 * pins, and freed memory is poisoned.
 *
 * GPU addresses mean nothing to the CPU: the host maps the memory with mmap() at its map_offset.
 *
 * Sizes and addresses are multiples of SIM_GPU_PAGE, except those of exports. Errors: EINVAL for a
 * bad argument, ENOENT for an unknown handle or address, EEXIST for addresses in use, ENOSPC when
 * the memory is used up, EPERM for a process that has inherited the descriptor from the one that
 * opened it.
 */
#ifndef SIM_GPU_H
#define SIM_GPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define SIM_GPU_DEVICE "/dev/sim_gpu"
#define SIM_GPU_PAGE   65536u

/* Freed memory is filled with this 8-byte word. */
#define SIM_GPU_POISON 0xdeadbeefdeadbeefull

/* The memory's pages are not contiguous: its page tables have gaps. */
#define SIM_GPU_SCATTERED 1u
/* Also maps it, at `va`. */
#define SIM_GPU_MAPPED 2u
/*
 * The memory is part of the machine's memory, cached by the CPU, as on Grace. Page tables say so
 * from version 2 on. No other device can reach it: that is not simulated (EOPNOTSUPP).
 */
#define SIM_GPU_COHERENT 4u

struct sim_gpu_alloc {
	__u64 size;
	__u64 va; /* in: the address; 0: any. out: the address */
	__u32 flags;
	__u32 reserved;
	__u64 handle;	  /* out: never used twice */
	__u64 map_offset; /* out: for mmap() on this descriptor */
};

struct sim_gpu_map {
	__u64 handle;
	__u64 offset; /* within the memory */
	__u64 size;
	__u64 va; /* in: the address; 0: any. out: the address */
};

struct sim_gpu_range {
	__u64 va;
	__u64 size;
};

struct sim_gpu_tokens {
	__u64 p2p_token;
	__u32 va_space;
	__u32 reserved;
};

/* Allocates memory, unmapped; with SIM_GPU_MAPPED also mapped. */
#define SIM_GPU_ALLOC _IOWR('G', 1, struct sim_gpu_alloc)
/* Frees memory (the handle); its mappings are ended first. */
#define SIM_GPU_FREE _IOW('G', 2, __u64)
#define SIM_GPU_MAP  _IOWR('G', 3, struct sim_gpu_map)
/* Ends one mapping, by its first address and its size. Callbacks have run when this returns. */
#define SIM_GPU_UNMAP _IOW('G', 4, struct sim_gpu_range)
/*
 * The legacy tokens of this process' address space: one counts up from 1, the other is the same for
 * every process. A token works for every process that knows it.
 */
#define SIM_GPU_TOKENS _IOR('G', 5, struct sim_gpu_tokens)

/* Exports several pieces of memory, one after the other, as for mappings side by side. */
#define SIM_GPU_PIECES 8u

struct sim_gpu_export {
	__u32 flags; /* SIM_GPU_CLOEXEC */
	__s32 fd;    /* out: a dma-buf, which keeps the memory */
	__u32 count;
	__u32 reserved;
	struct sim_gpu_piece {
		__u64 handle;
		__u64 offset, size; /* within the memory; whole pages of the host */
	} piece[SIM_GPU_PIECES];
};

#define SIM_GPU_CLOEXEC 1u
#define SIM_GPU_EXPORT	_IOWR('G', 11, struct sim_gpu_export)

/* All memory of the device, in bytes. */
#define SIM_GPU_SIZE _IOR('G', 10, __u64)

/* Counters. A "now" count must have its old value when a test is over. */
enum sim_gpu_counter {
	SIM_GPU_PINS,		/* now: pins */
	SIM_GPU_PERSISTENT,	/* now: pins without a callback */
	SIM_GPU_TABLES,		/* now: page tables */
	SIM_GPU_DMA_MAPPINGS,	/* now */
	SIM_GPU_BAR_PAGES,	/* now: 64 KiB pages of BAR space in use */
	SIM_GPU_MEMORY_PAGES,	/* now: pages of memory in use */
	SIM_GPU_MISUSES,	/* breaches of the API's contract; the kernel log names each */
	SIM_GPU_GETS,		/* get_pages calls that succeeded, of both kinds */
	SIM_GPU_GETS_FAILED,	/* get_pages calls that failed */
	SIM_GPU_GETS_OVERTAKEN, /* failed because of a free before the callback was registered */
	SIM_GPU_PUTS,		/* put_pages calls that found their pin */
	SIM_GPU_PUTS_LATE, /* after the callback had run: they return 0, as the driver's do */
	SIM_GPU_PUTS_FOREIGN,  /* from another process: they return 0, and the pin stays */
	SIM_GPU_CALLBACKS,     /* callbacks run */
	SIM_GPU_GATES_EXPIRED, /* threads that waited at a gate until the timeout */
	SIM_GPU_EXPORTS,       /* now: dma-bufs of the driver's own */
	SIM_GPU_ROOM_BYTES,    /* now: host memory that get_pages calls under way have allocated */
	SIM_GPU_ROOM_MOST,     /* the maximum of that since SIM_GPU_RESET */
	SIM_GPU_COUNTERS
};

#define SIM_GPU_COUNTER_NAMES                                                                   \
	"pins", "persistent", "tables", "dma_mappings", "bar_pages", "memory_pages", "misuses", \
		"gets", "gets_failed", "gets_overtaken", "puts", "puts_late", "puts_foreign",   \
		"callbacks", "gates_expired", "exports", "room_bytes", "room_most"

struct sim_gpu_counters {
	__u64 value[SIM_GPU_COUNTERS];
};

#define SIM_GPU_COUNT _IOR('G', 6, struct sim_gpu_counters)

/*
 * The settings of a test. All are 0 after loading; SIM_GPU_RESET makes them 0 again. EOPNOTSUPP:
 * below NVIDIA's nvidia.ko this setting does not exist.
 */
enum sim_gpu_knob {
	SIM_GPU_BAR_LIMIT,	/* 64 KiB pages of BAR space; 0: all of the BAR */
	SIM_GPU_DELAY_GET,	/* us, at most (each time another): between get_pages' two steps */
	SIM_GPU_DELAY_PUT,	/* us, at most: before put_pages looks for the pin */
	SIM_GPU_DELAY_CALLBACK, /* us, at most: before each callback, the API lock held */
	SIM_GPU_FAIL_GET,	/* the nth get_pages from now on fails; counts down */
	SIM_GPU_FAIL_MAP,	/* the nth dma_map_pages from now on fails */
	SIM_GPU_FAIL_ERROR,	/* with this errno (positive); 0: EIO */
	/*
	 * The version of new page tables: 1, 2; 0: as loaded; 3: of the future. With 1, pins with
	 * callback and pins without use separate BAR space; later they share it.
	 */
	SIM_GPU_TABLE_MAJOR,
	SIM_GPU_REUSE_TABLES, /* 1: a new page table is where the last one was that was freed */
	SIM_GPU_MAPS_NOTHING, /* 1: dma_map_pages returns addresses of the BAR itself */
	SIM_GPU_SMALL_PAGES, /* 1: page tables have pages of 4 KiB */
	SIM_GPU_KNOBS
};

struct sim_gpu_set {
	__u32 knob;
	__u32 value;
};

#define SIM_GPU_SET   _IOW('G', 7, struct sim_gpu_set)
#define SIM_GPU_RESET _IO('G', 8)

/*
 * Gates stop the driver at a place that a test chooses, so that a race happens every time. ARM: the
 * next thread that reaches the place stops there. AWAIT: returns when a thread has stopped. OPEN:
 * the thread continues. A thread waits 20 s at most; then it continues by itself, and
 * SIM_GPU_GATES_EXPIRED counts it (AWAIT: ETIMEDOUT). Below NVIDIA's nvidia.ko: EOPNOTSUPP for the
 * first place.
 */
enum sim_gpu_gate {
	SIM_GPU_GATE_ASKED,	 /* in get_pages: before anything is done */
	SIM_GPU_GATE_ROOM,	 /* in get_pages: host memory allocated, address not yet checked */
	SIM_GPU_GATE_PINNED,	 /* in get_pages: pages pinned, callback not yet registered */
	SIM_GPU_GATE_REGISTERED, /* in get_pages: callback registered, call not yet returned */
	SIM_GPU_GATE_PUT,	 /* in put_pages: before it takes the API lock */
	SIM_GPU_GATE_CALLBACK,	 /* in a free, the API lock held: before a callback */
	SIM_GPU_GATE_CALLED,	 /* the same, after it */
	SIM_GPU_GATES
};

#define SIM_GPU_GATE_ARM   0u
#define SIM_GPU_GATE_AWAIT 1u
#define SIM_GPU_GATE_OPEN  2u

struct sim_gpu_gate_op {
	__u32 gate;
	__u32 op;
};

#define SIM_GPU_GATE _IOW('G', 9, struct sim_gpu_gate_op)

#endif
