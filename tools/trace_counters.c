// SPDX-License-Identifier: MIT
#include "trace_counters.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace_format.h"

static void add_slots(struct counters *counters, const char *chunk, size_t bytes)
{
	struct pd_trace_slot slot;

	for (size_t at = sizeof(struct pd_trace_chunk); at + sizeof(slot) <= bytes;
	     at += sizeof(slot)) {
		memcpy(&slot, chunk + at, sizeof(slot));
		counters->hits += slot.hits;
		counters->misses += slot.misses;
		counters->tag_checks += slot.tag_checks;
		counters->lost += slot.lost_events;
	}
}

/* From chunk to chunk by their heads: only those of counters are read. */
static void add_chunks(struct counters *counters, int fd)
{
	static char whole[PD_TRACE_UNIT];
	struct pd_trace_chunk chunk;

	for (off_t at = PD_TRACE_UNIT; pread(fd, &chunk, sizeof(chunk), at) == sizeof(chunk);
	     at += (off_t)chunk.units * PD_TRACE_UNIT) {
		ssize_t bytes;

		/* One that is being made, or that was given up. */
		if (chunk.magic != PD_CHUNK_MAGIC || !chunk.units)
			chunk.units = 1;
		else if (chunk.kind == PD_CHUNK_COUNTERS &&
			 (bytes = pread(fd, whole, sizeof(whole), at)) > 0)
			add_slots(counters, whole, (size_t)bytes);
	}
}

bool trace_counters(const char *path, struct counters *counters)
{
	char magic[sizeof(PD_TRACE_MAGIC) - 1];
	struct stat status;
	bool good;
	int fd;

	*counters = (struct counters){0};
	/* The name comes from another process: merely opening a device may do something. */
	if (lstat(path, &status) != 0 || !S_ISREG(status.st_mode))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0)
		return false;
	good = pread(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
	       memcmp(magic, PD_TRACE_MAGIC, sizeof(magic)) == 0;
	if (good)
		add_chunks(counters, fd);
	close(fd);
	return good;
}
