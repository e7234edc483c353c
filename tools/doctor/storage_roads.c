// SPDX-License-Identifier: MIT
/*
 * pindown doctor --try --storage: one attempt to move bytes from GPU memory to a temporary file,
 * and back to another place of the memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

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
	attempt->way = storage_is_cached(fd)	     ? WAY_CACHE
		       : storage_promises_direct(fd) ? WAY_PEER
						     : WAY_UNKNOWN;
	return true;
}

static bool move_exported(uint64_t addr, int fd, struct attempt *attempt)
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

static bool try_dmabuf(uint64_t addr, const char *folder, struct attempt *attempt)
{
	int fd = storage_file(folder, true, attempt);
	bool moved = fd >= 0 && move_exported(addr, fd, attempt);

	if (fd >= 0)
		close(fd);
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
	attempt->way = storage_is_cached(fd) ? WAY_CACHE : WAY_HOST;
	return true;
}

static bool try_host(uint64_t addr, uint64_t back, const char *folder, struct attempt *attempt)
{
	int fd = storage_file(folder, false, attempt);
	uint8_t *bytes;
	bool moved;

	if (fd < 0)
		return false;
	bytes = mmap(NULL, STORED_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	moved = bytes == MAP_FAILED ? attempt_failed(attempt, FROM_SYSTEM, errno)
				    : move_copied(bytes, addr, back, fd, attempt);
	if (bytes != MAP_FAILED)
		munmap(bytes, STORED_BYTES);
	close(fd);
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

static bool move_by(enum storage_road road, uint64_t addr, uint64_t back, const char *folder,
		    struct attempt *attempt)
{
	switch (road) {
	case STORE_DMABUF:
		return try_dmabuf(addr, folder, attempt);
	case STORE_CUFILE:
		return try_cufile(addr, back, folder, attempt);
	case STORE_HOST:
	case STORE_ROADS:
		break;
	}
	return try_host(addr, back, folder, attempt);
}

static bool try_memory(uint64_t addr, const char *folder, enum storage_road road,
		       struct attempt *attempt)
{
	const uint64_t back = addr + TRY_BYTES / 2;
	uint8_t *bytes = allocate(STORED_BYTES);
	bool works = fill_both(addr, back, bytes, road, attempt) &&
		     move_by(road, addr, back, folder, attempt) &&
		     has_arrived(back, bytes, attempt);

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
