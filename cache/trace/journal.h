/* SPDX-License-Identifier: MIT */
/*
 * The trace's journal: memory in which a process prepares pieces of its trace file, before it
 * writes them there. It is shared memory of System V, the only memory that outlives a killed
 * process and that nobody can make shorter: so a killed process loses nothing, and a file that is
 * cut or a disk that is full is an error of write(2), never a signal.
 *
 * A process has one segment, and more when it has very many threads. When it ends in order it
 * writes all pieces and removes its segments. What a killed process leaves is written into its
 * file by the next one of the same user that opens or reads a trace. That the kernel counts who is
 * attached tells the dead from the living, in all process namespaces.
 *
 * Shared by the writer (writer.c) and the command (tools/trace/journal.c).
 */
#ifndef PD_TRACE_JOURNAL_H
#define PD_TRACE_JOURNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/shm.h>

#include "cache/trace/format.h"

#define PD_JOURNAL_MAGIC      "pindown journal"
#define PD_JOURNAL_PIECES     32u
#define PD_JOURNAL_PIECE_SIZE PD_TRACE_UNIT
#define PD_JOURNAL_HEAD	      8192u
#define PD_JOURNAL_BYTES      (PD_JOURNAL_HEAD + PD_JOURNAL_PIECES * PD_JOURNAL_PIECE_SIZE)

/*
 * Where in the file a piece belongs. A piece that moves on has been written first; its place is
 * then 0, its memory is cleared, and it gets its new place: at any moment a place and the memory
 * it stands for may be written into the file once more.
 */
struct pd_journal_piece {
	uint64_t place; /* offset in the file, which is a multiple of 8, plus 1; 0: none */
	/* The writer's own: where the next piece of the stream begins, and the end of its chunk. */
	uint64_t next, chunk_end;
	uint32_t stream, sequence;
	uint32_t kind; /* enum pd_chunk_kind; 0: of the file's unit 0 */
	uint32_t reserved;
};

/* What a path means: the mount namespace, and the folder that is "/" there. 0: not known. */
struct pd_journal_view {
	uint64_t namespace, device, inode;
};
struct pd_journal_view pd_journal_view(void);

/* A segment begins with this; its pieces lie from PD_JOURNAL_HEAD on. */
struct pd_journal {
	char magic[16];		/* stored last */
	uint64_t device, inode; /* these four: which file it is */
	uint64_t pid;
	struct pd_trace_clock begin;
	struct pd_journal_piece pieces[PD_JOURNAL_PIECES];
	char path[PATH_MAX]; /* the file's, as the process knows it */
	struct pd_journal_view view;
};

_Static_assert(sizeof(struct pd_journal) <= PD_JOURNAL_HEAD, "journal");

static inline const char *pd_journal_memory(const struct pd_journal *journal, unsigned piece)
{
	return (const char *)journal + PD_JOURNAL_HEAD + (size_t)piece * PD_JOURNAL_PIECE_SIZE;
}

/* ---- the writer's; any thread ---------------------------------------------------------------- */

/*
 * The journal of a new file: memory for its unit 0, all zero, which belongs there from now on. NULL
 * when there is no memory. Without shared memory it is the process's own, after one line.
 */
struct pd_trace_header *pd_journal_begin(void);

/* Readers find the journal from now on. The header is in the file. */
void pd_journal_publish(const struct pd_trace_header *header, uint64_t device, uint64_t inode,
			const char *path);

/*
 * A piece of one's own without a place, for good, and its memory, all zero. NULL when there is
 * none.
 */
struct pd_journal_piece *pd_journal_piece_new(enum pd_chunk_kind kind, char **memory);

/* Is each of the records in the first `used` bytes complete? */
bool pd_journal_is_complete(const char *memory, size_t used);

/* Its content has been written: the piece is cleared, and its memory stands for another place. */
void pd_journal_move(struct pd_journal_piece *piece, char *memory, uint64_t offset);

/*
 * Calls `write` for what is in each piece, as long as it answers true; the answer of the last. What
 * other threads put there meanwhile may be missing. Not by two threads at once.
 */
typedef bool pd_journal_write(const void *from, size_t bytes, uint64_t offset);
bool pd_journal_write_all(pd_journal_write *write);

/* All is written: nothing is to be left when the process ends. Its memory stays usable. */
void pd_journal_end(void);

/* In a forked child: the parent's journal is none of ours. */
void pd_journal_forget(void);

/* ---- everybody's ----------------------------------------------------------------------------- */

/*
 * Calls `visit` for each journal of this user's processes (root: of all users') on this machine:
 * mapped to be read only, while it may be written, and what the kernel knows of its segment.
 */
typedef void pd_journal_visit(const struct pd_journal *journal, int segment,
			      const struct shmid_ds *about, void *context);
void pd_journal_each(pd_journal_visit *visit, void *context);

/* Is this the file that the journal is of? `header`: as the file has it. */
bool pd_journal_is_of(const struct pd_journal *journal, uint64_t device, uint64_t inode,
		      const struct pd_trace_header *header);

/* Writes what this user's killed processes have left into their files, and removes it. */
void pd_journal_rescue(void);

#endif
