/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * pindown_ioctl.h - what a process and pindown.ko say to each other through /dev/pindown.
 *
 * A process opens /dev/pindown, pins ranges of its GPU memory and gets a region number for each. A
 * region can be mapped into the process, exported as a dma-buf, and watched through a word in the
 * state area, which the kernel sets to 0 the moment the region stops being valid.
 *
 * A descriptor belongs to the process that opened it (its thread group). Any thread of it may use
 * it. Every other process that gets hold of it (fork, SCM_RIGHTS) is answered EPERM by every call
 * but PINDOWN_IOC_VERSION, and by mmap() of a region: pins are the pinning process's business, and
 * the NVIDIA driver unpins for nobody else.
 *
 * Every structure begins with its size, as the caller was built with it, and flags. A member that a
 * later version adds is at the end; zero means "as before". So:
 *   size smaller than the first version's		EINVAL
 *   size larger than the kernel's, and not all zero there	E2BIG
 *   a flag that the kernel does not know		EINVAL
 *   a reserved member that is not zero			EINVAL
 * The kernel writes back no more than `size` bytes, and nothing at all when the call fails.
 * The layout is the same for 32 and 64 bit processes.
 *
 * Errors, where a call does not say otherwise:
 *   EPERM	the descriptor belongs to another process
 *   ENOENT	no region of this descriptor has that number
 *   ESTALE	the region's memory has been freed: it is revoked. Unpin it
 *   EOPNOTSUPP	the driver or this machine can't do that, or the driver is not understood
 *   EFAULT	an address of the caller can't be read or written
 *   ENOMEM	no host memory
 *   ENODEV	open() of the device: no NVIDIA driver that can be used is loaded
 */
#ifndef PINDOWN_IOCTL_H
#define PINDOWN_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PINDOWN_DEVICE "/dev/pindown"

/*
 * Raised when a call is added. A structure that grows says so by its size alone. Before the first
 * release also raised when one changes, as with 2: pins take no legacy tokens.
 */
#define PINDOWN_ABI 2

/*
 * PINDOWN_IOC_VERSION: who answers, and what it can do. Open to every process.
 */
#define PINDOWN_CAP_CALLBACK (1ull << 0)   /* pins that are revoked when their memory is freed */
#define PINDOWN_CAP_PERSISTENT (1ull << 1) /* pins that keep their memory alive */
#define PINDOWN_CAP_MMAP (1ull << 2)	   /* regions can be mapped into the process */
#define PINDOWN_CAP_STATE (1ull << 3)	   /* the state area */
#define PINDOWN_CAP_DMABUF (1ull << 4)	   /* PINDOWN_IOC_EXPORT */
#define PINDOWN_CAP_RECLAIM (1ull << 5)	   /* processes are asked to give BAR space back. Needs
					    * PERSISTENT, by which it is seen whose memory it is */
#define PINDOWN_CAP_FORCE_BAR1 (1ull << 7) /* PINDOWN_PIN_FORCE_BAR1: driver 570 and newer */
/*
 * Built to accept the simulated provider of tests. Such a module has no place outside of a test
 * machine.
 */
#define PINDOWN_CAP_SIMULATED (1ull << 32)

struct pindown_version {
	__u32 size;
	__u32 flags;		    /* 0 */
	__u32 abi;		    /* out: PINDOWN_ABI of the kernel */
	__u32 granularity;	    /* out: what address and length are multiples of, 65536 */
	__aligned_u64 capabilities; /* out: PINDOWN_CAP_* */
	__u32 max_regions;	    /* out: most regions of one descriptor */
	__u32 state_length;	    /* out: bytes to map for the whole state area */
	char release[16];	    /* out: the module's version, "0.1" */
};

/*
 * PINDOWN_IOC_PIN: pin [address, address + length).
 *
 * Without PINDOWN_PIN_PERSISTENT, freeing the memory revokes the region: its word in the state area
 * becomes 0, its mappings end (a later access is answered with SIGBUS), importers of its dma-bufs
 * are told, all before the driver's free goes on. The number stays taken until it is unpinned.
 * With PINDOWN_PIN_PERSISTENT nothing is revoked: the memory is kept alive after its free, until
 * the region is unpinned.
 *
 * The memory is the calling process' own. The legacy tokens of CU_POINTER_ATTRIBUTE_P2P_TOKENS are
 * not taken: they would let every process pin the memory of every other one.
 *
 * If the GPU's BAR has no room for it, all other processes are asked to give back what lies idle,
 * and the pin is tried again as they do, for reclaim_wait_ms at most. PINDOWN_PIN_NO_RECLAIM does
 * without: for a cache that rather evicts of its own first. At a limit (max_pinned_mb,
 * max_process_mb), and for memory that is not the caller's, nobody is asked.
 *
 * Errors:
 *   EINVAL	address or length is no multiple of the granularity, the length is 0, the range
 *		wraps round, or the driver does not know the memory as this process'
 *   EFBIG	no GPU here has a BAR of this length
 *   ENOSPC	no BAR space, after asking; or max_pinned_mb is reached
 *   EDQUOT	this process has reached max_process_mb: unpin some
 *   EMFILE	max_regions of this descriptor
 *   EOPNOTSUPP	PINDOWN_PIN_PERSISTENT or PINDOWN_PIN_FORCE_BAR1, and the driver is too old: see
 *		PINDOWN_CAP_PERSISTENT and PINDOWN_CAP_FORCE_BAR1
 *   ESTALE	the memory was freed while it was being pinned
 *   EINTR	a signal came while others were asked
 */
#define PINDOWN_PIN_PERSISTENT (1u << 0)
#define PINDOWN_PIN_FORCE_BAR1 (1u << 1) /* with PERSISTENT: BAR1 also where there is NVLink */
#define PINDOWN_PIN_NO_RECLAIM (1u << 2)

struct pindown_pin {
	__u32 size;
	__u32 flags; /* PINDOWN_PIN_* */
	__aligned_u64 address;
	__aligned_u64 length;
	__u32 region;		  /* out: the region's number, never 0 */
	__u32 state_value;	  /* out: the region's word in the state area while it is valid */
	__u32 state_offset;	  /* out: where in the state area that word is */
	__u32 page_size;	  /* out: bytes of a GPU page */
	__u32 page_count;	  /* out: how many of them */
	__u32 reserved;		  /* 0 */
	__aligned_u64 map_offset; /* out: for mmap(), see PINDOWN_MAP_* */
	__u8 gpu_uuid[16];	  /* out: zeroes where the driver has none */
};

/*
 * PINDOWN_IOC_UNPIN: the region ends. Its mappings end as on revocation, importers are told, the
 * number may be given out again at once. A revoked region is unpinned in the same way.
 *
 * When the call returns the memory is no longer pinned for this process, with one exception: an
 * importer of a dma-buf that can't be told, or that has not let go yet, keeps the memory (never
 * somebody else's memory in its place) until it does. `importers` counts those.
 */
struct pindown_unpin {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 region;
	__u32 state;	 /* out: the region's PINDOWN_REGION_* just before */
	__u32 importers; /* out: importers that still hold its memory */
	__u32 reserved;	 /* 0 */
};

/* PINDOWN_IOC_QUERY: one region of this descriptor. */
#define PINDOWN_REGION_LIVE 1
#define PINDOWN_REGION_REVOKED 2

struct pindown_query {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 region;
	__u32 state;		  /* out: PINDOWN_REGION_* */
	__aligned_u64 address;	  /* out */
	__aligned_u64 length;	  /* out */
	__u32 pin_flags;	  /* out: flags of its pin */
	__u32 page_size;	  /* out */
	__u32 page_count;	  /* out */
	__u32 mappings;		  /* out: pieces of address space that map it */
	__u32 exports;		  /* out: dma-bufs of it that are open */
	__u32 importers;	  /* out: devices attached to those */
	__aligned_u64 map_offset; /* out */
	__u8 gpu_uuid[16];	  /* out */
};

/*
 * PINDOWN_IOC_EXPORT: a dma-buf of the whole region. The descriptor is close-on-exec.
 *
 * A PCI device that attaches gets DMA addresses from the NVIDIA driver for itself, behind its
 * IOMMU. Any other importer, and one that says it can't reach peer memory, is refused with
 * EOPNOTSUPP at its attach.
 *
 * A dma-buf of a region with callback takes a persistent pin of its own, so that no device ever
 * reaches memory that has passed to somebody else: on revocation importers with move_notify are
 * told and the pin ends when they have unmapped; others keep the memory until they detach.
 *
 * Errors:
 *   ESTALE	the region is revoked
 *   EOPNOTSUPP	a region with callback, and the driver has no persistent pins
 *   EMFILE	no descriptor left
 *   ENOSPC	no BAR space for the dma-buf's own pin, or max_pinned_mb is reached
 *   EDQUOT	this process has reached max_process_mb
 */
struct pindown_export {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 region;
	__s32 fd;	      /* out */
	__aligned_u64 length; /* out: of the dma-buf */
};

/*
 * PINDOWN_IOC_STATS: what is pinned now. Figures of the process are those of the descriptor's
 * owner, over all its descriptors. What goes beyond the process is told to CAP_SYS_ADMIN alone: for
 * others gpus, all_bytes, all_regions and gpu_* are 0. `gpu` is a number from 0 up to gpus - 1, and
 * chooses whose bytes gpu_* are; beyond that they are 0. What was done since the module was loaded
 * is counted in debugfs, see pindown(4).
 *
 * Bytes are those of pins. A pin counts for the process that made it until nobody holds its memory
 * any more, importers of dma-bufs included. A dma-buf of a region with callback has a pin of its
 * own: with drivers before 580 that takes more BAR space, and counts once more; later ones share.
 */
struct pindown_stats_all {
	__u32 size;
	__u32 flags;		      /* 0 */
	__u32 gpu;		      /* in */
	__u32 gpus;		      /* out: GPUs that had a pin since the module was loaded */
	__aligned_u64 process_bytes;  /* out: pinned by this process */
	__aligned_u64 process_regions; /* pins that are counted so */
	__aligned_u64 all_bytes;      /* out: pinned by all */
	__aligned_u64 all_regions;
	__aligned_u64 gpu_bytes;      /* out: pinned on that GPU */
	__aligned_u64 gpu_regions;
	__u8 gpu_uuid[16];
	__aligned_u64 process_limit;  /* out: max_process_mb in bytes, 0: none */
	__aligned_u64 all_limit;      /* out: max_pinned_mb in bytes, 0: none */
};

/*
 * PINDOWN_IOC_ANSWER: the answer to the kernel's wish for BAR space, see struct pindown_state.
 * `wanted` is the number that is answered. Answering makes poll() quiet again until the next wish.
 * An old number is accepted and changes nothing; one that was never asked is EINVAL.
 */
struct pindown_answer {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 wanted;
	__u32 reserved; /* 0 */
};

#define PINDOWN_IOC_TYPE 0xbd
#define PINDOWN_IOC_VERSION _IOWR(PINDOWN_IOC_TYPE, 0, struct pindown_version)
#define PINDOWN_IOC_PIN _IOWR(PINDOWN_IOC_TYPE, 1, struct pindown_pin)
#define PINDOWN_IOC_UNPIN _IOWR(PINDOWN_IOC_TYPE, 2, struct pindown_unpin)
#define PINDOWN_IOC_QUERY _IOWR(PINDOWN_IOC_TYPE, 3, struct pindown_query)
#define PINDOWN_IOC_EXPORT _IOWR(PINDOWN_IOC_TYPE, 4, struct pindown_export)
#define PINDOWN_IOC_STATS _IOWR(PINDOWN_IOC_TYPE, 5, struct pindown_stats_all)
#define PINDOWN_IOC_ANSWER _IOWR(PINDOWN_IOC_TYPE, 6, struct pindown_answer)

/*
 * mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset)
 *
 * A region: offset is the map_offset that its pin gave, plus the offset within the region, plus one
 * of PINDOWN_MAP_*. Write-combined and uncached are for memory that is reached through a BAR,
 * cached is for memory of a coherent platform (Grace), which is a part of the system's; EOPNOTSUPP
 * for the other, and for any where it can't be told. The default is write-combined for the one, and
 * cached for the other. All mappings of one region that exist at a time have one kind of caching;
 * EBUSY otherwise. Parts of a mapping can be unmapped and moved; it can't grow (EFAULT by mremap),
 * is not inherited over fork(), and can't be MAP_PRIVATE (EINVAL). EINVAL also when it runs past
 * the end. After the region has ended an access is answered with SIGBUS, never with data.
 *
 * On x86, what is cached or not is decided by the machine's memory types in the end.
 *
 * The state area: offset PINDOWN_MAP_STATE, any length up to state_length, PROT_READ only.
 */
#define PINDOWN_MAP_STATE 0ull
#define PINDOWN_MAP_DEFAULT (0ull << 60) /* what suits the memory */
#define PINDOWN_MAP_UNCACHED (1ull << 60)
#define PINDOWN_MAP_CACHED (2ull << 60)
#define PINDOWN_MAP_WRITE_COMBINED (3ull << 60)

/*
 * The state area. At state_offset of a region there is a __u32: state_value of its pin while the
 * region is valid, 0 from the moment it is revoked or unpinned, and another value when the number
 * has been given out again. So a region is valid if and only if its word has its value. The word
 * becomes 0 before the driver's free goes on; read it with acquire order.
 *
 * `revocations` is raised when the word of the region is 0 already, and before the driver's free
 * goes on. So as long as it has not changed, no word has become 0 by a revocation: one load tells
 * that for many regions together.
 *
 * When another process needs BAR space, the kernel fills in wanted_bytes and then raises `wanted`;
 * poll() of the descriptor reports POLLIN until it is answered. The process then unpins idle
 * regions, of wanted_bytes altogether if it has them, and calls PINDOWN_IOC_ANSWER. A process
 * that has nothing idle answers too: whoever waits is then let go early.
 */
struct pindown_state {
	__u32 abi;	   /* PINDOWN_ABI */
	__u32 revocations; /* regions of this descriptor that were revoked, modulo 2^32 */
	__u32 reserved[14];
	__u32 wanted; /* serial number of the last wish for BAR space, 0: never */
	__u32 reserved2;
	__aligned_u64 wanted_bytes;
	__u32 reserved3[12];
	/* the regions' words follow */
};

#endif
