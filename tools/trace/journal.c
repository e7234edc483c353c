// SPDX-License-Identifier: MIT
/* Copies the journal of a process that is writing a trace. */
#include "tools/trace/journal.h"

#include <stddef.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/memory/safe_read.h"
#include "tools/base/memory.h"
#include "cache/trace/journal/rescue.h"

enum { MAX_PIECES = 4096 }; /* copied from one trace */

struct piece {
	uint64_t offset;
	char *bytes;
};

struct journal {
	struct pdn_trace_header header;
	struct piece *pieces;
	unsigned count, capacity;
};

struct wanted {
	struct journal *journal;
	const struct pdn_trace_header *header;
	struct stat status;
};

/*
 * The process may be writing. If a piece changes its place during the copy, its content is in the
 * file by now, and the file is read after this. The fences: pair with pdn_journal_move(), twice.
 */
static void copy_piece(struct journal *journal, uint64_t at, unsigned number)
{
	const uint64_t place_at = at + offsetof(struct pdn_journal, pieces[number].place);
	uint64_t place, after;
	char *bytes;

	if (!pdn_safe_read(&place, place_at, sizeof(place)) || !place || (place - 1) % 8 ||
	    journal->count == MAX_PIECES)
		return;
	pdn_full_fence();
	bytes = allocate(PDN_JOURNAL_PIECE_SIZE);
	if (!pdn_safe_read(bytes, at + pdn_journal_piece_at(number), PDN_JOURNAL_PIECE_SIZE)) {
		release(bytes);
		return;
	}
	pdn_full_fence();
	if (!pdn_safe_read(&after, place_at, sizeof(after)) || after != place) {
		release(bytes);
		return;
	}
	journal->pieces =
		grow(journal->pieces, &journal->capacity, journal->count, sizeof(*journal->pieces));
	journal->pieces[journal->count++] = (struct piece){place - 1, bytes};
}

/* The header is copied before the pieces, so that they have everything it mentions. */
static void copy_header(struct journal *journal, const struct pdn_journal *found, uint64_t at)
{
	struct pdn_trace_header header;

	if (found->pieces[0].place != 1 ||
	    !pdn_safe_read(&header, at + pdn_journal_piece_at(0), sizeof(header)))
		return;
	journal->header = header;
	pdn_full_fence();
}

/* Root sees the segments of all users, and any user can name any file in one. */
static bool may_write_file(uid_t user, const struct stat *file)
{
	return user == file->st_uid || user == geteuid() || user == 0;
}

static void look_at(const struct pdn_journal *found, uint64_t at, int segment,
		    const struct shmid_ds *about, void *context)
{
	struct wanted *wanted = context;

	(void)segment;
	if (!may_write_file(about->shm_perm.cuid, &wanted->status) ||
	    !pdn_journal_is_of(found, wanted->status.st_dev, wanted->status.st_ino, wanted->header))
		return;
	copy_header(wanted->journal, found, at);
	for (unsigned i = 0; i < PDN_JOURNAL_PIECES; i++)
		copy_piece(wanted->journal, at, i);
}

struct known {
	uint64_t device, inode;
	int segment;
};

/* Which journals there are: a look at all of them for each of many files would take long. */
static struct known *known;
static unsigned known_count, known_capacity;

static void note(const struct pdn_journal *found, uint64_t at, int segment,
		 const struct shmid_ds *about, void *context)
{
	(void)at;
	(void)about;
	(void)context;
	known = grow(known, &known_capacity, known_count, sizeof(*known));
	known[known_count++] = (struct known){found->device, found->inode, segment};
}

void journals_look(void)
{
	known_count = 0;
	pdn_journal_each(note, NULL);
}

struct journal *journal_copy(int fd, const char *path, const struct pdn_trace_header *header)
{
	struct wanted wanted = {.header = header};

	if (fstat(fd, &wanted.status) != 0)
		return NULL;
	wanted.journal = allocate(sizeof(*wanted.journal));
	wanted.journal->header = *header;
	for (unsigned i = 0; i < known_count; i++) {
		if (known[i].device != wanted.status.st_dev ||
		    known[i].inode != wanted.status.st_ino)
			continue;
		pdn_journal_at(known[i].segment, look_at, &wanted);
		pdn_journal_rescue_to(known[i].segment, path);
	}
	if (wanted.journal->count)
		return wanted.journal;
	journal_free(wanted.journal);
	return NULL;
}

void journal_free(struct journal *journal)
{
	if (!journal)
		return;
	for (unsigned i = 0; i < journal->count; i++)
		release(journal->pieces[i].bytes);
	release(journal->pieces);
	release(journal);
}

const struct pdn_trace_header *journal_header(const struct journal *journal)
{
	return &journal->header;
}

/*
 * A word is written once, over zeroes, and stays; counters only grow. So the journal's words are
 * right, and where the journal has zeroes, the file may have newer words.
 */
void journal_lay_over(const struct journal *journal, char *to, size_t bytes, uint64_t offset)
{
	static const uint64_t nothing;

	for (unsigned i = 0; journal && i < journal->count; i++) {
		const struct piece *piece = &journal->pieces[i];
		uint64_t begin = piece->offset > offset ? piece->offset : offset,
			 end = piece->offset + PDN_JOURNAL_PIECE_SIZE;

		if (end > offset + bytes)
			end = offset + bytes;
		for (uint64_t at = begin; at < end; at += 8) {
			const char *word = piece->bytes + (at - piece->offset);

			if (memcmp(word, &nothing, sizeof(nothing)) != 0)
				memcpy(to + (at - offset), word, end - at < 8 ? end - at : 8);
		}
	}
}

uint64_t journal_next(const struct journal *journal, uint64_t offset)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; journal && i < journal->count; i++) {
		uint64_t at = journal->pieces[i].offset;

		if (at + PDN_JOURNAL_PIECE_SIZE > offset && at < next)
			next = at > offset ? at : offset;
	}
	return next;
}
