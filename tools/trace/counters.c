// SPDX-License-Identifier: MIT
/* Adds up the counters of a trace that is being written. */
#include "tools/trace/counters.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tools/base/regular.h"
#include "tools/trace/journal.h"
#include "cache/trace/format.h"

static void add_slots(struct counters *counters, const char *chunk, size_t bytes)
{
	struct pdn_trace_slot slot;

	for (size_t at = sizeof(struct pdn_trace_chunk); at + sizeof(slot) <= bytes;
	     at += sizeof(slot)) {
		memcpy(&slot, chunk + at, sizeof(slot));
		counters->hits += slot.hits;
		counters->misses += slot.misses;
		counters->tag_checks += slot.tag_checks;
		counters->lost += slot.lost_events;
	}
}

static size_t read_at(int fd, const struct journal *journal, void *to, size_t max, off_t offset)
{
	ssize_t bytes = pread(fd, to, max, offset);

	if (bytes <= 0)
		return 0;
	journal_lay_over(journal, to, (size_t)bytes, (uint64_t)offset);
	return (size_t)bytes;
}

/* Goes from chunk header to chunk header, and reads only chunks of counters in full. */
static void add_chunks(struct counters *counters, int fd, const struct journal *journal)
{
	static char whole[PDN_TRACE_UNIT];
	struct pdn_trace_chunk chunk;

	for (off_t at = PDN_TRACE_UNIT;
	     read_at(fd, journal, &chunk, sizeof(chunk), at) == sizeof(chunk);
	     at += (off_t)chunk.units * PDN_TRACE_UNIT) {
		/* A chunk that is being created, or was abandoned. */
		if (chunk.magic != PDN_CHUNK_MAGIC || !chunk.units)
			chunk.units = 1;
		else if (chunk.kind == PDN_CHUNK_COUNTERS)
			add_slots(counters, whole, read_at(fd, journal, whole, sizeof(whole), at));
	}
}

bool trace_counters(const char *path, struct counters *counters)
{
	struct pdn_trace_header header;
	struct journal *journal;
	bool good;
	int fd;

	*counters = (struct counters){0};
	/* The name comes from another process. */
	fd = open_regular(path, O_NOFOLLOW);
	if (fd < 0)
		return false;
	good = pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
	       memcmp(header.magic, PDN_TRACE_MAGIC, sizeof(header.magic)) == 0;
	if (good) {
		journals_look();
		journal = journal_copy(fd, path, &header);
		add_chunks(counters, fd, journal);
		journal_free(journal);
	}
	close(fd);
	return good;
}
