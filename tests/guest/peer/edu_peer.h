/* SPDX-License-Identifier: MIT */
/*
 * /dev/edu_peer: a third-party device that moves data by DMA. It knows only dma-buf, neither
 * pindown nor the GPU.
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

/* This importer can be notified by the exporter (move_notify). */
#define EDU_DYNAMIC 1u
/* When notified, the importer stops at once, but unmaps only at EDU_RELEASE. With EDU_DYNAMIC. */
#define EDU_LAZY 2u
/* Pins the dma-buf: the exporter must not notify the importer. With EDU_DYNAMIC. */
#define EDU_PINNED 4u
/*
 * The importer is always at work: it adds a fence to the dma-buf's reservation object that
 * EDU_SIGNAL signals, also after EDU_RELEASE, at the latest when the device is closed. With
 * EDU_DYNAMIC.
 */
#define EDU_BUSY 8u

struct edu_import {
	__s32 fd; /* of a dma-buf; may be closed after the call */
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
	__u32 moves;   /* out: the number of notifications by the exporter */
	__u64 address; /* out: DMA address of the first byte, as it was when imported */
	__u32 mapped;  /* out: 0 when revoked */
	__u32 reserved;
};

struct edu_raw {
	__u64 address; /* the bus address */
	__u64 data;
	__u32 length;
	__u32 write; /* 0: the device reads from the address */
};

#define EDU_IMPORT  _IOWR('E', 1, struct edu_import)
#define EDU_RELEASE _IOW('E', 2, __u32)
/*
 * The device reads from the import and leaves the bytes in `data`, or writes the bytes of `data` to
 * it.
 */
#define EDU_READ  _IOW('E', 3, struct edu_transfer)
#define EDU_WRITE _IOW('E', 4, struct edu_transfer)
#define EDU_STATE _IOWR('E', 5, struct edu_state)
/* DMA to an address that the device remembers, as a device that ignores revocation would do. */
#define EDU_RAW _IOW('E', 6, struct edu_raw)
/* Maps a revoked import again, and returns the exporter's answer. */
#define EDU_REMAP _IOW('E', 7, __u32)
/* Completes the work of an import with EDU_BUSY. */
#define EDU_SIGNAL _IOW('E', 8, __u32)

#endif
