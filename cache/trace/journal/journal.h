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
#ifndef PDN_TRACE_JOURNAL_H
#define PDN_TRACE_JOURNAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/shm.h>

#include "cache/trace/format.h"

#define PDN_JOURNAL_MAGIC      "pindown journal"
#define PDN_JOURNAL_PIECES     32u
#define PDN_JOURNAL_PIECE_SIZE PDN_TRACE_UNIT
#define PDN_JOURNAL_HEAD       8192u
#define PDN_JOURNAL_BYTES      (PDN_JOURNAL_HEAD + PDN_JOURNAL_PIECES * PDN_JOURNAL_PIECE_SIZE)

/*
 * A piece's place in the file. Before a piece moves on it is written; then its place becomes 0, its
 * memory is cleared, and it gets its new place. So at any moment a piece's memory can be written
 * once more at its place without harm.
 */
struct pdn_journal_piece {
	uint64_t place; /* offset in the file (a multiple of 8) plus 1; 0: none */
	uint64_t reserved[2];
	uint32_t stream, sequence; /* of its next chunk */
	uint32_t kind;		   /* enum pdn_chunk_kind; 0: the file's unit 0 */
	uint32_t reserved2;
};

/* A segment begins with this; its pieces lie from PDN_JOURNAL_HEAD on. */
struct pdn_journal {
	char magic[16];		/* stored last */
	uint64_t device, inode; /* these four identify the file */
	uint64_t pid;
	struct pdn_trace_clock begin;
	struct pdn_journal_piece pieces[PDN_JOURNAL_PIECES];
	char path[PATH_MAX]; /* of the file, as the process names it */
	/* For the writer: the segment's number plus 1; 0: it is private memory, or removed. */
	int32_t segment;
};

_Static_assert(sizeof(struct pdn_journal) <= PDN_JOURNAL_HEAD, "journal");

/* Where a piece's memory lies in the segment. */
static inline size_t pdn_journal_piece_at(unsigned piece)
{
	return PDN_JOURNAL_HEAD + (size_t)piece * PDN_JOURNAL_PIECE_SIZE;
}

/* ---- for the writer; any thread -------------------------------------------------------------- */

/*
 * Begins the journal of a new file. Returns the memory of its unit 0, all zero; NULL if there is no
 * memory. If there is no shared memory, it is private to the process, and a message says so.
 */
struct pdn_trace_header *pdn_journal_begin(void);

/* After the header is in the file: lets readers find the journal. */
void pdn_journal_publish(const struct pdn_trace_header *header, uint64_t device, uint64_t inode,
			 const char *path);

/*
 * A new piece without a place, which is never given back, and its memory, all zero. NULL if none is
 * left.
 */
struct pdn_journal_piece *pdn_journal_piece_new(enum pdn_chunk_kind kind, char **memory);

/* Bytes of a piece up to the end of its last complete record; later ones may be being written. */
size_t pdn_journal_complete(const char *memory);

/* After its content has been written: clears the piece and gives it a new place. */
void pdn_journal_move(struct pdn_journal_piece *piece, char *memory, uint64_t offset);

/*
 * Calls `write` for the content of each piece, as long as it returns true; returns the last result.
 * Records that other threads add meanwhile may be missing. Not by two threads at once.
 */
typedef bool pdn_journal_write(const void *from, size_t bytes, uint64_t offset);
bool pdn_journal_write_all(pdn_journal_write *write);

/* After all is written: no segment outlives the process. The memory stays usable. */
void pdn_journal_end(void);

/* In a forked child: detaches it from the parent's journal. */
void pdn_journal_forget(void);

#endif
