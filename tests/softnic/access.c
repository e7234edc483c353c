/* SPDX-License-Identifier: MIT */
/* Each access to memory through a key: what is checked, and the copy. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "region.h"

static void refuse(const struct memory_use *use, size_t length, const char *why)
{
	checks_report("refused %s qp 0x%x key 0x%x addr 0x%llx length %zu: %s", use->what,
		      use->qp_num, use->key, (unsigned long long)use->addr, length, why);
}

/* Finds the region and checks the rights; the region is kept until let_go(). NULL: refused. */
static struct region *take(const struct memory_use *use, size_t length)
{
	const char *why = NULL;
	struct region *region;

	lock();
	region = region_find(use->key);
	if (!region)
		why = "no such key";
	else if (region->pd != use->pd)
		why = "another protection domain";
	else if ((region->access & use->rights) != use->rights)
		why = "no right to it";
	else if (use->addr < region->iova || length > region->length ||
		 use->addr - region->iova > region->length - length)
		why = "outside of the region";
	else
		region->users++;
	unlock();
	if (why)
		refuse(use, length, why);
	return why ? NULL : region;
}

static void let_go(struct region *region)
{
	lock();
	region->users--;
	pthread_cond_broadcast(&softnic_idle);
	unlock();
}

static bool is_current(const struct memory_use *use, const struct region *region, uint64_t addr,
		       size_t length)
{
	struct gpu_change change;

	if (!region->gpu || !length || gpu_is_unchanged(region->gpu, addr, length, &change))
		return true;
	checks_count(COUNT_STALE);
	checks_report("stale %s qp 0x%x key 0x%x addr 0x%llx length %zu: the memory at 0x%llx was "
		      "registered with buffer id %llu, now it is %llu",
		      use->what, use->qp_num, use->key, (unsigned long long)use->addr, length,
		      (unsigned long long)change.addr, change.registered, change.now);
	return false;
}

/* The kernel copies: it returns EFAULT for memory that was unmapped, where we would crash. */
static bool copy_host(uint64_t memory, void *bytes, size_t length, bool writes)
{
	while (length) {
		struct iovec here = {bytes, length}, there = {(void *)memory, length};
		ssize_t done = writes ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
				      : process_vm_readv(getpid(), &here, 1, &there, 1, 0);

		if (done < 0 && (errno == EPERM || errno == ENOSYS)) {
			/* A container may refuse the call. */
			memcpy(writes ? (void *)memory : bytes, writes ? bytes : (void *)memory,
			       length);
			return true;
		}
		if (done <= 0)
			return false;
		memory += done;
		bytes = (char *)bytes + done;
		length -= done;
	}
	return true;
}

/* The memory that the dma-buf holds, whatever is at its address by now. */
static bool copy_file(const struct region *region, uint64_t offset, void *bytes, size_t length,
		      bool writes)
{
	while (length) {
		off_t at = region->file_at + (off_t)offset;
		ssize_t done = writes ? pwrite(region->dmabuf, bytes, length, at)
				      : pread(region->dmabuf, bytes, length, at);

		if (done <= 0)
			return false;
		offset += done;
		bytes = (char *)bytes + done;
		length -= done;
	}
	return true;
}

static enum access_result copy(const struct memory_use *use, struct region *region, void *bytes,
			       size_t length, bool writes)
{
	uint64_t offset = use->addr - region->iova, memory = region->memory + offset;
	int error = 0;

	if (!is_current(use, region, memory, length) && region->file_at < 0)
		return ACCESS_REFUSED;
	checks_count(COUNT_TRANSFERS);
	if (region->file_at >= 0) {
		if (copy_file(region, offset, bytes, length, writes))
			return ACCESS_OK;
		refuse(use, length, strerror(errno));
		return ACCESS_REFUSED;
	}
	if (!region->gpu) {
		if (copy_host(memory, bytes, length, writes))
			return ACCESS_OK;
		checks_count(COUNT_UNMAPPED);
		refuse(use, length, "host memory was unmapped");
		return ACCESS_REFUSED;
	}
	if (length)
		error = writes ? gpu_write(region->gpu, memory, bytes, length)
			       : gpu_read(region->gpu, bytes, memory, length);
	/* It may have been freed during the copy. */
	if (!is_current(use, region, memory, length))
		return ACCESS_REFUSED;
	if (error)
		checks_report("error %d of the driver in %s key 0x%x addr 0x%llx", error, use->what,
			      use->key, (unsigned long long)use->addr);
	return error ? ACCESS_REFUSED : ACCESS_OK;
}

static enum access_result access_memory(const struct memory_use *use, void *bytes, size_t length,
					bool writes)
{
	struct region *region = take(use, length);
	enum access_result result;

	if (!region)
		return ACCESS_REFUSED;
	result = copy(use, region, bytes, length, writes);
	let_go(region);
	return result;
}

enum access_result memory_read(const struct memory_use *use, void *to, size_t length)
{
	return access_memory(use, to, length, false);
}

enum access_result memory_write(const struct memory_use *use, const void *from, size_t length)
{
	return access_memory(use, (void *)from, length, true);
}

enum access_result memory_check(const struct memory_use *use, size_t length)
{
	struct region *region = take(use, length);

	if (region)
		let_go(region);
	return region ? ACCESS_OK : ACCESS_REFUSED;
}

/* ---- lists of pieces ------------------------------------------------------------------------ */

uint64_t pieces_length(const struct ibv_sge *sge, int count)
{
	uint64_t length = 0;

	for (int i = 0; i < count; i++)
		length += sge[i].length;
	return length;
}

static enum access_result access_pieces(const struct pieces *pieces, uint64_t offset,
					uint8_t *bytes, size_t length, bool writes)
{
	for (int i = 0; i < pieces->count && length; i++) {
		const struct ibv_sge *sge = &pieces->sge[i];
		size_t step;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		step = sge->length - offset < length ? sge->length - offset : length;
		struct memory_use use = {
			.pd = pieces->pd,
			.key = sge->lkey,
			.qp_num = pieces->qp_num,
			.addr = sge->addr + offset,
			.rights = writes ? IBV_ACCESS_LOCAL_WRITE : 0,
			.what = writes ? "local write" : "local read",
		};
		if (access_memory(&use, bytes, step, writes) != ACCESS_OK)
			return ACCESS_REFUSED;
		bytes += step;
		length -= step;
		offset = 0;
	}
	return length ? ACCESS_REFUSED : ACCESS_OK;
}

enum access_result pieces_read(const struct pieces *pieces, uint64_t offset, void *to,
			       size_t length)
{
	return access_pieces(pieces, offset, to, length, false);
}

enum access_result pieces_write(const struct pieces *pieces, uint64_t offset, const void *from,
				size_t length)
{
	return access_pieces(pieces, offset, (void *)from, length, true);
}
