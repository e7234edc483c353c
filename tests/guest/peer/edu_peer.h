/* SPDX-License-Identifier: MIT */
/*
 * /dev/edu_peer: a third-party device that moves data by DMA. It knows dma-buf and nothing else:
 * not pindown, not the GPU.
 *
 * The device is QEMU's edu, whose engine moves 2 KiB in a tenth of a second, so lengths are small.
 * Errors: EINVAL for bad arguments, ENOENT for an unknown import, ESTALE for one that its exporter
 * has revoked, EIO when the device did not finish.
 */
#ifndef EDU_PEER_H
#define EDU_PEER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EDU_PEER_DEVICE "/dev/edu_peer"
#define EDU_PEER_MAX	65536u /* bytes in one transfer */

/* Tell the exporter that this importer can be told to stop (move_notify). */
#define EDU_DYNAMIC 1u
/* When told to stop, stop at once but unmap only at EDU_RELEASE. With EDU_DYNAMIC. */
#define EDU_LAZY 2u
/* Pin the dma-buf: the exporter must not tell it to stop. With EDU_DYNAMIC. */
#define EDU_PINNED 4u
/*
 * Be at work all the time: with a fence in the dma-buf's reservation object that is signalled by
 * EDU_SIGNAL, also after EDU_RELEASE, and at the latest when the device is closed. With
 * EDU_DYNAMIC.
 */
#define EDU_BUSY 8u

struct edu_import {
	__s32 fd; /* of a dma-buf; not needed any more after the call */
	__u32 flags;
	__u32 id;	/* out */
	__u32 segments; /* out: of the DMA mapping */
	__u64 size;	/* out */
};

struct edu_transfer {
	__u32 id;
	__u32 length;
	__u64 offset;
	__u64 data; /* address in the calling process */
};

struct edu_state {
	__u32 id;
	__u32 moves;   /* out: how often the exporter said stop */
	__u64 address; /* out: DMA address of the first byte, as it was when imported */
	__u32 mapped;  /* out: 0 when revoked */
	__u32 reserved;
};

struct edu_raw {
	__u64 address; /* as the device puts it on the bus */
	__u64 data;
	__u32 length;
	__u32 write; /* 0: the device reads from the address */
};

#define EDU_IMPORT  _IOWR('E', 1, struct edu_import)
#define EDU_RELEASE _IOW('E', 2, __u32)
/*
 * The device reads from the import and leaves the bytes in `data`, or writes to it what is there.
 */
#define EDU_READ  _IOW('E', 3, struct edu_transfer)
#define EDU_WRITE _IOW('E', 4, struct edu_transfer)
#define EDU_STATE _IOWR('E', 5, struct edu_state)
/* What a device that ignores revocation would do: DMA to an address that it remembers. */
#define EDU_RAW _IOW('E', 6, struct edu_raw)
/* Map a revoked import again: what the exporter answers. */
#define EDU_REMAP _IOW('E', 7, __u32)
/* The work of an import with EDU_BUSY is done. */
#define EDU_SIGNAL _IOW('E', 8, __u32)

#endif
