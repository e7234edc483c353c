/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * pindown_ioctl.h - the interface between a process and pindown.ko through /dev/pindown.
 *
 * A process opens /dev/pindown, pins ranges of its GPU memory and gets a region number for each. A
 * region can be exported as a dma-buf, and watched through a word in the state area, which the
 * kernel sets to 0 the moment the region stops being valid.
 *
 * A descriptor belongs to the process that opened it (its thread group). Any thread of it may use
 * it. In any other process that has it (fork, SCM_RIGHTS), every call except PINDOWN_IOC_VERSION
 * fails with EPERM, and so does mmap(): the NVIDIA driver unpins only for the process that pinned.
 * poll() reports POLLERR there.
 *
 * Every structure begins with its size, as the caller was built with it, and flags. Later versions
 * add members at the end, for which zero means "as before". So:
 *   size smaller than the first version's		EINVAL
 *   size larger than the kernel's, and not all zero there	E2BIG
 *   size larger than a page				E2BIG
 *   a flag that the kernel does not know		EINVAL
 *   a reserved member that is not zero			EINVAL
 * The kernel writes back no more than `size` bytes, and nothing at all when the call fails.
 * The layout is the same for 32 and 64 bit processes.
 *
 * Errors, unless a call says otherwise:
 *   EPERM	the descriptor belongs to another process
 *   ENOENT	no region of this descriptor has that number
 *   ESTALE	the region's memory has been freed: it is revoked. Unpin it
 *   EOPNOTSUPP	the driver or this machine can't do that, or the driver's version is unknown
 *   EFAULT	an address of the caller can't be read or written
 *   ENOMEM	no host memory
 *   ENODEV	open() of the device: no usable NVIDIA driver is loaded
 *   EIO	the NVIDIA driver has failed with a number that is no error's
 */
#ifndef PINDOWN_IOCTL_H
#define PINDOWN_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PINDOWN_DEVICE "/dev/pindown"

/*
 * Raised when a call changes, as with 2: pins take no legacy tokens. A library and a module with
 * different numbers refuse each other. A call that is added raises nothing and has a capability
 * below; a structure that grows is known by its size alone. A call that goes raises nothing either:
 * it is ENOTTY.
 */
#define PINDOWN_ABI 2

/*
 * PINDOWN_IOC_VERSION: the version of the module, and its capabilities. Open to every process.
 */
#define PINDOWN_CAP_CALLBACK (1ull << 0)   /* pins that are revoked when their memory is freed */
#define PINDOWN_CAP_PERSISTENT (1ull << 1) /* pins that keep their memory alive */
/* Bit 2 was for mappings of regions, bit 6 for tokens, bit 7 for FORCE_BAR1: not used again. */
#define PINDOWN_CAP_STATE (1ull << 3)	   /* the state area */
#define PINDOWN_CAP_DMABUF (1ull << 4)	   /* PINDOWN_IOC_EXPORT */
#define PINDOWN_CAP_RECLAIM (1ull << 5)	   /* processes are asked to give BAR space back. Needs
					    * PERSISTENT, which shows whose memory it is */
/*
 * The module is built to accept the simulated provider of tests. It must only be used on test
 * machines.
 */
#define PINDOWN_CAP_SIMULATED (1ull << 32)

struct pindown_version {
	__u32 size;
	__u32 flags;		    /* 0 */
	__u32 abi;		    /* out: PINDOWN_ABI of the kernel */
	__u32 granularity;	    /* out: address and length are multiples of it; 65536 */
	__aligned_u64 capabilities; /* out: PINDOWN_CAP_* */
	__u32 max_regions;	    /* out: maximum number of regions of one descriptor */
	__u32 state_length;	    /* out: bytes to map for the whole state area */
	char release[16];	    /* out: the module's version, "0.1" */
};

/*
 * PINDOWN_IOC_PIN: pin [address, address + length).
 *
 * Without PINDOWN_PIN_PERSISTENT, freeing the memory revokes the region: its word in the state area
 * becomes 0, and importers of its dma-bufs are notified, both before the driver's free continues.
 * The number stays in use until it is unpinned. With PINDOWN_PIN_PERSISTENT nothing is revoked: the
 * memory is kept alive after its free, until the region is unpinned.
 *
 * The memory must belong to the calling process. The legacy tokens of
 * CU_POINTER_ATTRIBUTE_P2P_TOKENS are not accepted: they would let every process pin the memory of
 * every other one.
 *
 * If the GPU's BAR has no space left, all other processes are asked to unpin idle regions, and the
 * pin is tried again when they do, for at most reclaim_wait_ms. With PINDOWN_PIN_NO_RECLAIM nobody
 * is asked: this is for a cache that prefers to evict its own regions first. Nobody is asked either
 * at a limit (max_pinned_mb, max_process_mb), or for memory that does not belong to the caller.
 *
 * Errors:
 *   EINVAL	address or length is not a multiple of the granularity, the length is 0, the range
 *		wraps around, or the driver does not know this memory in this process
 *   EFBIG	no GPU here has a BAR of this length
 *   ENOSPC	no BAR space, after asking; or max_pinned_mb is reached
 *   EDQUOT	this process has reached max_process_mb: unpin some
 *   EMFILE	the descriptor has max_regions regions already
 *   EOPNOTSUPP	PINDOWN_PIN_PERSISTENT, and the driver is too old: see PINDOWN_CAP_PERSISTENT
 *   ESTALE	the memory was freed while it was being pinned
 *   EINTR	a signal arrived while the pin waited for others
 */
#define PINDOWN_PIN_PERSISTENT (1u << 0)
/* 1u << 1 was for FORCE_BAR1: not used again. */
#define PINDOWN_PIN_NO_RECLAIM (1u << 2)

struct pindown_pin {
	__u32 size;
	__u32 flags; /* PINDOWN_PIN_* */
	__aligned_u64 address;
	__aligned_u64 length;
	__u32 region;		  /* out: the region's number, never 0 */
	__u32 state_value;	  /* out: the region's word in the state area while it is valid */
	__u32 state_offset;	  /* out: the offset of that word in the state area */
	__u32 page_size;	  /* out: bytes of a GPU page */
	__u32 page_count;	  /* out: number of GPU pages */
	__u32 reserved;		  /* 0 */
	__aligned_u64 was_map_offset; /* out: 0 */
	__u8 gpu_uuid[16];	  /* out: zeroes where the driver has none */
};

/*
 * PINDOWN_IOC_UNPIN: the region ends. Importers are notified, and the number may be given out again
 * at once. A revoked region is unpinned in the same way.
 *
 * When the call returns, the memory is no longer pinned for this process, with one exception: an
 * importer of a dma-buf that can't be notified, or that has not unmapped yet, keeps this memory
 * (never other memory in its place) until it does. `importers` counts these importers.
 */
#define PINDOWN_REGION_LIVE 1
#define PINDOWN_REGION_REVOKED 2

struct pindown_unpin {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 region;
	__u32 state;	 /* out: the region's PINDOWN_REGION_* just before */
	__u32 importers; /* out: importers that still hold its memory */
	__u32 reserved;	 /* 0 */
};

/*
 * PINDOWN_IOC_EXPORT: a dma-buf of the whole region. The descriptor is close-on-exec.
 *
 * A PCI device that attaches gets DMA addresses of its own from the NVIDIA driver, behind its
 * IOMMU. Any other importer, and one that declares that it can't reach peer memory, is refused with
 * EOPNOTSUPP when it attaches.
 *
 * A dma-buf of a region with callback takes a persistent pin of its own, so that no device ever
 * reaches memory that has passed to another owner: on revocation importers with move_notify are
 * notified, and the pin ends when they have unmapped; others keep the memory until they detach.
 *
 * Errors:
 *   ESTALE	the region is revoked
 *   EOPNOTSUPP	a region with callback, and the driver has no persistent pins
 *   EMFILE	no descriptor left
 *   ENOSPC	no BAR space for the dma-buf's own pin, or max_pinned_mb is reached
 *   EDQUOT	this process has reached max_process_mb
 *   EINTR	the process is being killed
 */
struct pindown_export {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 region;
	__s32 fd;	      /* out */
	__aligned_u64 length; /* out: of the dma-buf */
};

/*
 * PINDOWN_IOC_ANSWER: the answer to a wish of the kernel for BAR space, see struct pindown_state.
 * `wanted` is the serial number of that wish. After the answer the next wish is shown, if there is
 * one; poll() reports nothing until then. An old number is accepted and changes nothing; an unknown
 * one is EINVAL.
 */
struct pindown_answer {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 wanted;
	__u32 reserved; /* 0 */
};

/* Numbers of calls that are gone are not used again: they are ENOTTY. */
#define PINDOWN_IOC_TYPE 0xbd
#define PINDOWN_IOC_VERSION _IOWR(PINDOWN_IOC_TYPE, 0, struct pindown_version)
#define PINDOWN_IOC_PIN _IOWR(PINDOWN_IOC_TYPE, 1, struct pindown_pin)
#define PINDOWN_IOC_UNPIN _IOWR(PINDOWN_IOC_TYPE, 2, struct pindown_unpin)
/* 3 was a query of one region. */
#define PINDOWN_IOC_EXPORT _IOWR(PINDOWN_IOC_TYPE, 4, struct pindown_export)
/* 5 was for statistics, which debugfs has: see pindown(4). */
#define PINDOWN_IOC_ANSWER _IOWR(PINDOWN_IOC_TYPE, 6, struct pindown_answer)

/*
 * mmap(NULL, length, PROT_READ, MAP_SHARED, fd, PINDOWN_MAP_STATE) maps the state area, for any
 * length up to state_length. PROT_WRITE and PROT_EXEC are EACCES, MAP_PRIVATE and any range beyond
 * the area are EINVAL. Nothing else can be mapped.
 */
#define PINDOWN_MAP_STATE 0ull

/*
 * The state area. The word of a region, a __u32 at its state_offset, is the state_value of its pin
 * while the region is valid, 0 from the moment it is revoked or unpinned, and another value when
 * the number has been given out again. So a region is valid if and only if its word has its value.
 * The word becomes 0 before the driver's free continues; read it with acquire order.
 *
 * `revocations` is raised after the word of a region has become 0, and before the driver's free
 * continues. So as long as it has not changed, no word has become 0 by a revocation: one load
 * checks many regions together.
 *
 * When another process needs BAR space, the kernel fills in wanted_bytes and wanted_gpu, and then
 * raises `wanted`; poll() of the descriptor reports POLLIN until it is answered. One wish is shown
 * at a time, and the next one after its answer or when its pin no longer waits. The process then
 * unpins idle regions of that GPU, of wanted_bytes altogether if it has them, and calls
 * PINDOWN_IOC_ANSWER. A process without idle regions answers too, so that the waiting pin can give
 * up early.
 */
struct pindown_state {
	__u32 abi;	   /* PINDOWN_ABI */
	__u32 revocations; /* regions of this descriptor that were revoked, modulo 2^32 */
	__u32 reserved[14];
	__u32 wanted; /* serial number of the wish for BAR space that is shown, 0: never */
	__u32 reserved2;
	__aligned_u64 wanted_bytes;
	__u8 wanted_gpu[16]; /* gpu_uuid of pins that would help. Zeroes: any, it is not known */
	__u32 reserved3[8];
	/* the regions' words follow */
};

#endif
