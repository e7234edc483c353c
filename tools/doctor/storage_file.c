// SPDX-License-Identifier: MIT
/*
 * pindown doctor --try --storage: the temporary file, which has no name or loses it as soon as it
 * can, and what can be said of its direct I/O.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/base/memory.h"
#include "tools/doctor/storage.h"

/*
 * The name is in the attempt as long as it is there: the parent can remove it, too. Nobody can
 * guess it and be first. mkostemp() follows no symbolic link; cuFile refuses O_NOFOLLOW.
 */
static int create_named(const char *folder, struct attempt *attempt)
{
	char *path = text_of("%s/.pindown-doctor-XXXXXX", folder);
	int fd = mkostemp(path, O_CLOEXEC);

	if (fd >= 0)
		snprintf(attempt->file, sizeof(attempt->file), "%s", strrchr(path, '/') + 1);
	release(path);
	return fd;
}

void storage_unlink(const char *folder, struct attempt *attempt)
{
	char *path = text_of("%s/%s", folder, attempt->file);

	if (attempt->file[0])
		unlink(path);
	attempt->file[0] = '\0';
	release(path);
}

static bool set_direct(int fd)
{
	return fcntl(fd, F_SETFL, O_RDWR | O_DIRECT) == 0;
}

int storage_file(const char *folder, bool needs_direct, struct attempt *attempt)
{
	int fd;

	attempt->stage = STAGE_FILE;
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* Some file systems have no O_TMPFILE. */
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
		fd = create_named(folder, attempt);
		if (fd >= 0)
			storage_unlink(folder, attempt);
	}
	if (fd < 0) {
		attempt_failed(attempt, FROM_SYSTEM, errno);
		return -1;
	}
	if (set_direct(fd) || !needs_direct)
		return fd;
	attempt_failed(attempt, FROM_SYSTEM, errno == EINVAL ? EOPNOTSUPP : errno);
	close(fd);
	return -1;
}

int storage_named_file(const char *folder, struct attempt *attempt)
{
	int fd;

	attempt->stage = STAGE_FILE;
	fd = create_named(folder, attempt);
	if (fd < 0)
		attempt_failed(attempt, FROM_SYSTEM, errno);
	else
		set_direct(fd); /* cuFile does without it, too */
	return fd;
}

bool storage_is_cached(int fd)
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

bool storage_promises_direct(int fd)
{
	enum { DIRECT_ALIGN = 0x2000 }; /* STATX_DIOALIGN, which older headers lack */
	union {
		struct statx statx;
		uint32_t words[64]; /* 0: the mask; 38: stx_dio_mem_align */
	} status = {.words = {0}};

	return statx(fd, "", AT_EMPTY_PATH, DIRECT_ALIGN, &status.statx) == 0 &&
	       status.words[0] & DIRECT_ALIGN && status.words[38];
}
