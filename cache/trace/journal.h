/* SPDX-License-Identifier: MIT */
/*
 * The trace's journal: memory in which a process prepares pieces of its trace file before it writes
 * them there. It is System V shared memory, the only memory that outlives a killed process and
 * can't be truncated: so a killed process loses nothing, and a truncated file or a full disk is an
 * error of write(2), never a signal.
 *
 * A process has one segment, and more if it has very many threads. When it ends in order it writes
 * all pieces and removes its segments. The journal of a killed process is written into its file by
 * the next process of the same user that opens or reads a trace. The kernel counts how many
 * processes have a segment attached; that tells dead from living in every process namespace.
 *
 * Shared by the writer and the command (tools/trace/journal.c).
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
 * A piece's place in the file. Before a piece moves on it is written; then its place becomes 0, its
 * memory is cleared, and it gets its new place. So at any moment a piece's memory can be written
 * once more at its place without harm.
 */
struct pd_journal_piece {
	uint64_t place; /* offset in the file (a multiple of 8) plus 1; 0: none */
	/* For the writer: where the next piece of the stream begins, and the end of its chunk. */
	uint64_t next, chunk_end;
	uint32_t stream, sequence;
	uint32_t kind; /* enum pd_chunk_kind; 0: the file's unit 0 */
	uint32_t reserved;
};

/* What a path is relative to: the mount namespace, and the folder that is "/". 0: not known. */
struct pd_journal_view {
	uint64_t namespace, device, inode;
};
struct pd_journal_view pd_journal_view(void);

/* A segment begins with this; its pieces lie from PD_JOURNAL_HEAD on. */
struct pd_journal {
	char magic[16];		/* stored last */
	uint64_t device, inode; /* these four identify the file */
	uint64_t pid;
	struct pd_trace_clock begin;
	struct pd_journal_piece pieces[PD_JOURNAL_PIECES];
	char path[PATH_MAX]; /* of the file, as the process names it */
	struct pd_journal_view view;
};

_Static_assert(sizeof(struct pd_journal) <= PD_JOURNAL_HEAD, "journal");

static inline const char *pd_journal_memory(const struct pd_journal *journal, unsigned piece)
{
	return (const char *)journal + PD_JOURNAL_HEAD + (size_t)piece * PD_JOURNAL_PIECE_SIZE;
}

/* ---- for the writer; any thread -------------------------------------------------------------- */

/*
 * Begins the journal of a new file. Returns the memory of its unit 0, all zero; NULL if there is no
 * memory. If there is no shared memory, it is private to the process, and a message says so.
 */
struct pd_trace_header *pd_journal_begin(void);

/* After the header is in the file: lets readers find the journal. */
void pd_journal_publish(const struct pd_trace_header *header, uint64_t device, uint64_t inode,
			const char *path);

/*
 * A new piece without a place, which is never given back, and its memory, all zero. NULL if none is
 * left.
 */
struct pd_journal_piece *pd_journal_piece_new(enum pd_chunk_kind kind, char **memory);

/* Are all records in the first `used` bytes complete? */
bool pd_journal_is_complete(const char *memory, size_t used);

/* After its content has been written: clears the piece and gives it a new place. */
void pd_journal_move(struct pd_journal_piece *piece, char *memory, uint64_t offset);

/*
 * Calls `write` for the content of each piece, as long as it returns true; returns the last result.
 * Records that other threads add meanwhile may be missing. Not by two threads at once.
 */
typedef bool pd_journal_write(const void *from, size_t bytes, uint64_t offset);
bool pd_journal_write_all(pd_journal_write *write);

/* After all is written: no segment outlives the process. The memory stays usable. */
void pd_journal_end(void);

/* In a forked child: detaches it from the parent's journal. */
void pd_journal_forget(void);

/* ---- for the writer and for readers ---------------------------------------------------------- */

/*
 * Calls `visit` for each journal on this machine that belongs to this user (root: to any user). The
 * journal is mapped read-only, and its process may be writing it. `about` is the kernel's
 * description of its segment.
 */
typedef void pd_journal_visit(const struct pd_journal *journal, int segment,
			      const struct shmid_ds *about, void *context);
void pd_journal_each(pd_journal_visit *visit, void *context);

/* Does the journal belong to this file? `header`: as read from the file. */
bool pd_journal_is_of(const struct pd_journal *journal, uint64_t device, uint64_t inode,
		      const struct pd_trace_header *header);

/* Writes the journals of this user's killed processes into their files, and removes them. */
void pd_journal_rescue(void);

#endif
