// SPDX-License-Identifier: MIT
/* pindown doctor --try --storage: what an error means at each step, and what to do about it. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

#ifndef ENOTSUPP
#define ENOTSUPP 524 /* the kernel's own; NVIDIA's driver returns it from mmap() */
#endif

enum { MISSING = -1, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_SUPPORTED = 801 };

const char *storage_road_name(enum storage_road road)
{
	static const char *const names[] = {"dma-buf", "cuFile", "host memory"};

	return names[road];
}

bool storage_is_direct(const struct attempt *attempt)
{
	return attempt->stage == STAGE_DONE &&
	       (attempt->way == WAY_PEER || attempt->way == WAY_NVIDIA_FS);
}

bool storage_is_absent(enum storage_road road, const struct attempt *attempt)
{
	return road == STORE_CUFILE && attempt->stage == STAGE_START && attempt->ended &&
	       attempt->source == FROM_CUFILE && attempt->error == MISSING;
}

/* ---- what came of it ------------------------------------------------------------------------ */

static const char *way_text(enum storage_road road, enum way way)
{
	switch (way) {
	case WAY_PEER:
		return "works, peer to peer";
	case WAY_NVIDIA_FS:
		return "works, peer to peer by nvidia-fs";
	case WAY_HOST:
		return "works, through host memory (compat)";
	case WAY_CACHE:
		return "works, through the page cache of the host (compat)";
	case WAY_UNKNOWN:
		break;
	}
	return road == STORE_CUFILE ? "works, but cuFile does not say which way (CUDA 13's does)"
				    : "works, but the file system does not say whether directly";
}

static double gib_per_s(uint64_t ns)
{
	return ns ? (double)STORED_BYTES / (1 << 30) / ((double)ns / 1e9) : 0;
}

char *storage_text(enum storage_road road, const struct attempt *attempt, unsigned patience)
{
	char *text = attempt_stopped(attempt, patience), *error;

	if (text)
		return text;
	if (attempt->stage == STAGE_DONE)
		return text_of("%s; writes %.2f GiB/s, reads %.2f GiB/s",
			       way_text(road, attempt->way), gib_per_s(attempt->write_ns),
			       gib_per_s(attempt->read_ns));
	if (storage_is_absent(road, attempt))
		return text_of("not tried: libcufile.so.0 is not found");
	if (attempt->stage == STAGE_FILE && attempt->error == EOPNOTSUPP)
		return text_of("fails: the file system has no direct I/O (O_DIRECT)");
	error = attempt->source == FROM_SYSTEM && attempt->error == ENODATA
			? text_of("fewer bytes moved than were asked for")
			: attempt_error(attempt);
	text = text_of("fails at %s: %s", attempt_step(attempt), error);
	release(error);
	return text;
}

/* ---- advice --------------------------------------------------------------------------------- */

static const char *about_file(int error)
{
	switch (error) {
	case EOPNOTSUPP:
		return "use a file system with direct I/O, as ext4 and XFS on an NVMe disk";
	case EACCES:
	case EPERM:
	case EROFS:
		return "name a folder that this user may write to";
	case ENOSPC:
	case EDQUOT:
		return "the trial needs 16 MiB of free space there";
	}
	return NULL;
}

static const char *about_export(int error)
{
	switch (error) {
	case CUDA_NOT_SUPPORTED:
		return "the driver exports no dma-bufs of this GPU: install the open kernel "
		       "modules, 515 or newer";
	case CUDA_OUT_OF_MEMORY:
		return "BAR1 may be full: pindown bar shows which processes use it";
	case MISSING:
		return "install driver 515 (CUDA 11.7) or newer";
	}
	return NULL;
}

static const char *about_map(int error)
{
	switch (error) {
	case ENOTSUPP:
	case EOPNOTSUPP:
	case ENODEV:
		return "NVIDIA's driver lets no program map a dma-buf of this GPU: programs reach "
		       "the disk directly only through cuFile";
	case ENOMEM:
		return "no space for the mapping: limits of the process (ulimit -v), or BAR1 is "
		       "full (pindown bar)";
	}
	return NULL;
}

/* Errors of direct I/O whose memory is a device's. */
static const char *about_peer(int error)
{
	switch (error) {
	case EFAULT:
		return "the mapping has no pages that a disk's driver can use: the GPU's driver, "
		       "or the kernel (CONFIG_PCI_P2PDMA), makes none; see P2PDMA above";
	case EREMOTEIO:
		return "the kernel finds no way between the two: the disk's driver takes no GPU "
		       "pages (no NVMe disk, RAID, multipath), or the devices are below "
		       "different root ports; see the paths above";
	case EOPNOTSUPP:
	case EINVAL:
		return "the file system or the disk refuses direct I/O of this memory: try "
		       "another folder";
	case EIO:
		return "the disk could not reach the GPU's memory: see IOMMU and ACS above, and "
		       "dmesg";
	}
	return NULL;
}

static const char *about_cufile(const struct attempt *attempt)
{
	if (attempt->source != FROM_CUFILE)
		return attempt->source == FROM_SYSTEM ? about_peer(attempt->error) : NULL;
	return storage_cufile_advice(attempt->error);
}

static const char *about_way(enum storage_road road, enum way way)
{
	if (road == STORE_DMABUF && way == WAY_CACHE)
		return "the file system does not do direct I/O as asked, so that the processor "
		       "copied the bytes: use ext4 or XFS on an NVMe disk";
	if (road == STORE_CUFILE && way == WAY_HOST)
		return "for peer to peer: \"use_pci_p2pdma\": true in cufile.json, or load "
		       "nvidia-fs; see P2PDMA above for what else it needs";
	return NULL;
}

static bool is_space(const struct attempt *attempt)
{
	return attempt->source == FROM_SYSTEM &&
	       (attempt->error == ENOSPC || attempt->error == EDQUOT);
}

const char *storage_advice(enum storage_road road, const struct attempt *attempt)
{
	if (attempt->stage == STAGE_DONE)
		return about_way(road, attempt->way);
	if (attempt->signal)
		return "the driver or a library has a fault there: update them, and report it";
	if (!attempt->ended)
		return "data does not move in this way, whatever is claimed: dmesg may say why";
	if (storage_is_absent(road, attempt))
		return "install libcufile of the CUDA toolkit, or set LD_LIBRARY_PATH";
	if (attempt->stage == STAGE_FILE || is_space(attempt))
		return about_file(attempt->error);
	if (attempt->stage == STAGE_COMPARE && attempt->error == EBADMSG)
		return "data is corrupted in this way: do not use it; see ACS and IOMMU above";
	if (attempt->stage == STAGE_EXPORT)
		return about_export(attempt->error);
	if (attempt->stage == STAGE_MAP)
		return about_map(attempt->error);
	if (road == STORE_CUFILE)
		return about_cufile(attempt);
	if (road == STORE_DMABUF && attempt->source == FROM_SYSTEM)
		return about_peer(attempt->error);
	return NULL;
}
