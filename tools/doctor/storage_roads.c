// SPDX-License-Identifier: MIT
/*
 * pindown doctor --try --storage: one attempt to move bytes from GPU memory to a temporary file,
 * and back to another place of the memory. The file has no name, or loses it at once.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

/* ---- the file ------------------------------------------------------------------------------- */

/* For file systems without O_TMPFILE. */
static int create_and_unlink(const char *folder)
{
	char *name = text_of("%s/.pindown-doctor-XXXXXX", folder);
	int fd = mkostemp(name, O_CLOEXEC);

	if (fd >= 0)
		unlink(name);
	release(name);
	return fd;
}

/* Without `needs_direct` the file may be one that has no direct I/O. */
static int create_file(const char *folder, bool needs_direct, struct attempt *attempt)
{
	int fd;

	attempt->stage = STAGE_FILE;
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
		fd = create_and_unlink(folder);
	if (fd < 0) {
		attempt_failed(attempt, FROM_SYSTEM, errno);
		return -1;
	}
	if (fcntl(fd, F_SETFL, O_RDWR | O_DIRECT) == 0 || !needs_direct)
		return fd;
	attempt_failed(attempt, FROM_SYSTEM, errno == EINVAL ? EOPNOTSUPP : errno);
	close(fd);
	return -1;
}

/* Pages of the file in the page cache say that its I/O was not direct. */
static bool is_cached(int fd)
{
	enum { PAGE = 4096 };
	unsigned char *pages = allocate(STORED_BYTES / PAGE);
	void *map = mmap(NULL, STORED_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	bool cached = false;

	if (map != MAP_FAILED) {
		if (mincore(map, STORED_BYTES, pages) == 0)
			cached = memchr(pages, 1, STORED_BYTES / (size_t)sysconf(_SC_PAGESIZE));
		munmap(map, STORED_BYTES);
	}
	release(pages);
	return cached;
}

/*
 * Whether the file system promises direct I/O of this file, as it can since Linux 6.1. Others may
 * let the processor copy the bytes into the page cache, and drop them there at once.
 */
static bool promises_direct(int fd)
{
	enum { DIRECT_ALIGN = 0x2000 }; /* STATX_DIOALIGN, which older headers lack */
	union {
		struct statx statx;
		uint32_t words[64]; /* 0: the mask; 38: stx_dio_mem_align */
	} status = {.words = {0}};

	return statx(fd, "", AT_EMPTY_PATH, DIRECT_ALIGN, &status.statx) == 0 &&
	       status.words[0] & DIRECT_ALIGN && status.words[38];
}

/* ---- moving bytes --------------------------------------------------------------------------- */

/* pread() or pwrite() of all bytes. An early end is ENODATA. */
static bool move_all(int fd, uint8_t *bytes, bool to_file, struct attempt *attempt)
{
	size_t done = 0;

	while (done < STORED_BYTES) {
		ssize_t n = to_file ? pwrite(fd, bytes + done, STORED_BYTES - done, (off_t)done)
				    : pread(fd, bytes + done, STORED_BYTES - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return attempt_failed(attempt, FROM_SYSTEM, n < 0 ? errno : ENODATA);
		done += (size_t)n;
	}
	return true;
}

static bool succeeds(int result, struct attempt *attempt)
{
	return !result || attempt_failed(attempt, FROM_CUDA, result);
}

/* By the mapped dma-buf. */
static bool move_mapped(uint8_t *map, int fd, struct attempt *attempt)
{
	uint64_t begin;

	attempt->stage = STAGE_WRITE;
	begin = attempt_now_ns();
	if (!move_all(fd, map, true, attempt))
		return false;
	attempt->write_ns = attempt_now_ns() - begin;
	attempt->stage = STAGE_READ;
	begin = attempt_now_ns();
	if (!move_all(fd, map + TRY_BYTES / 2, false, attempt))
		return false;
	attempt->read_ns = attempt_now_ns() - begin;
	attempt->way = is_cached(fd) ? WAY_CACHE : promises_direct(fd) ? WAY_PEER : WAY_UNKNOWN;
	return true;
}

/* The offset of the range in the descriptor is 0 for a dma-buf. */
static bool try_dmabuf(uint64_t addr, int fd, struct attempt *attempt)
{
	int dmabuf = -1, result;
	uint8_t *map;
	bool moved;

	attempt->stage = STAGE_EXPORT;
	result = try_cuda_export(addr, TRY_BYTES, false, &dmabuf);
	if (!succeeds(result, attempt))
		return false;
	attempt->stage = STAGE_MAP;
	map = mmap(NULL, TRY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf, 0);
	if (map == MAP_FAILED) {
		attempt_failed(attempt, FROM_SYSTEM, errno);
		close(dmabuf);
		return false;
	}
	moved = move_mapped(map, fd, attempt);
	munmap(map, TRY_BYTES);
	close(dmabuf);
	return moved;
}

/* The times include the copies to and from the GPU. */
static bool move_copied(uint8_t *bytes, uint64_t addr, uint64_t back, int fd,
			struct attempt *attempt)
{
	uint64_t begin;

	attempt->stage = STAGE_WRITE;
	begin = attempt_now_ns();
	if (!succeeds(try_cuda_read(addr, bytes, STORED_BYTES), attempt) ||
	    !move_all(fd, bytes, true, attempt))
		return false;
	attempt->write_ns = attempt_now_ns() - begin;
	memset(bytes, 0, STORED_BYTES);
	attempt->stage = STAGE_READ;
	begin = attempt_now_ns();
	if (!move_all(fd, bytes, false, attempt) ||
	    !succeeds(try_cuda_write(back, bytes, STORED_BYTES), attempt))
		return false;
	attempt->read_ns = attempt_now_ns() - begin;
	attempt->way = is_cached(fd) ? WAY_CACHE : WAY_HOST;
	return true;
}

static bool try_host(uint64_t addr, uint64_t back, int fd, struct attempt *attempt)
{
	uint8_t *bytes = mmap(NULL, STORED_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	bool moved;

	if (bytes == MAP_FAILED)
		return attempt_failed(attempt, FROM_SYSTEM, errno);
	moved = move_copied(bytes, addr, back, fd, attempt);
	munmap(bytes, STORED_BYTES);
	return moved;
}

/* ---- one attempt ---------------------------------------------------------------------------- */

/* Each road has bytes of its own, so that what an earlier one left is not taken for a success. */
static bool fill_both(uint64_t addr, uint64_t back, uint8_t *bytes, enum storage_road road,
		      struct attempt *attempt)
{
	attempt->stage = STAGE_FILL;
	memset(bytes, 0x55, STORED_BYTES);
	if (!succeeds(try_cuda_write(back, bytes, STORED_BYTES), attempt))
		return false;
	attempt_pattern(bytes, STORED_BYTES, 29 + (uint32_t)road * 31);
	return succeeds(try_cuda_write(addr, bytes, STORED_BYTES), attempt);
}

static bool has_arrived(uint64_t back, const uint8_t *bytes, struct attempt *attempt)
{
	uint8_t *found = allocate(STORED_BYTES);
	bool arrived;

	attempt->stage = STAGE_COMPARE;
	arrived = succeeds(try_cuda_read(back, found, STORED_BYTES), attempt);
	if (arrived && memcmp(bytes, found, STORED_BYTES) != 0)
		arrived = attempt_failed(attempt, FROM_SYSTEM, EBADMSG);
	release(found);
	return arrived;
}

static bool move_by(enum storage_road road, uint64_t addr, uint64_t back, int fd,
		    struct attempt *attempt)
{
	switch (road) {
	case STORE_DMABUF:
		return try_dmabuf(addr, fd, attempt);
	case STORE_CUFILE:
		return try_cufile(addr, back, fd, attempt);
	case STORE_HOST:
	case STORE_ROADS:
		break;
	}
	return try_host(addr, back, fd, attempt);
}

static bool try_memory(uint64_t addr, const char *folder, enum storage_road road,
		       struct attempt *attempt)
{
	const uint64_t back = addr + TRY_BYTES / 2;
	uint8_t *bytes = allocate(STORED_BYTES);
	int fd = create_file(folder, road == STORE_DMABUF, attempt);
	bool works = fd >= 0 && fill_both(addr, back, bytes, road, attempt) &&
		     move_by(road, addr, back, fd, attempt) && has_arrived(back, bytes, attempt);

	if (fd >= 0)
		close(fd);
	release(bytes);
	return works;
}

void try_storage(int gpu, const char *folder, enum storage_road road, struct attempt *attempt)
{
	uint64_t addr = 0;

	attempt->stage = STAGE_ALLOCATE;
	if (succeeds(try_cuda_allocate(gpu, &addr, TRY_BYTES), attempt)) {
		if (try_memory(addr, folder, road, attempt))
			attempt->stage = STAGE_DONE;
		try_cuda_free(addr);
	}
	attempt->ended = true;
}
