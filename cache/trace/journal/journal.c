// SPDX-License-Identifier: MIT
/* The writer's side of the journal: its segments, and the pieces that threads prepare there. */
#define _GNU_SOURCE
#include "cache/trace/journal/journal.h"

#include <string.h>
#include <sys/mman.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/thread/barrier.h"
#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"
#include "cache/trace/journal/rescue.h"

enum { MAX_SEGMENTS = 128 }; /* for 4096 threads */

static struct pdn_journal *segments[MAX_SEGMENTS]; /* stored with release, when it is set up */
static uint32_t pieces_taken;
static bool warned_private;

/* ---- segments -------------------------------------------------------------------------------- */

/* Relaxed: a segment that pdn_journal_end() misses is removed when it is rescued. */
static void remove_segment(struct pdn_journal *journal)
{
	int segment = __atomic_exchange_n(&journal->segment, 0, __ATOMIC_RELAXED);

	if (segment)
		pdn_sys(SYS_shmctl, segment - 1, IPC_RMID, NULL);
}

static struct pdn_journal *new_segment(void)
{
	int segment = (int)pdn_sys(SYS_shmget, IPC_PRIVATE, PDN_JOURNAL_BYTES, IPC_CREAT | 0600);
	long at = segment < 0 ? segment : pdn_sys(SYS_shmat, segment, NULL, 0);

	if (at > 0) {
		((struct pdn_journal *)at)->segment = segment + 1;
		return (struct pdn_journal *)at;
	}
	if (segment >= 0)
		pdn_sys(SYS_shmctl, segment, IPC_RMID, NULL);
	pdn_log_once(
		&warned_private, PDN_LOG_WARN,
		"PINDOWN_TRACE: no shared memory of System V (%s): if the process is killed, the "
		"trace lacks what each thread did last",
		pdn_error_text((int)-at));
	return pdn_map(PDN_JOURNAL_BYTES, PROT_READ | PROT_WRITE);
}

static struct pdn_journal *segment(unsigned number)
{
	/* Acquire: pairs with the exchange below. */
	struct pdn_journal *journal = __atomic_load_n(&segments[number], __ATOMIC_ACQUIRE), *made;

	if (journal)
		return journal;
	made = new_segment();
	if (made && number) {
		strcpy(made->path, segments[0]->path);
		/* All before the pieces. What is only half identified belongs to no file. */
		memcpy(made, segments[0], offsetof(struct pdn_journal, pieces));
	}
	if (!made || __atomic_compare_exchange_n(&segments[number], &journal, made, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return made;
	/* Another thread has added one first. */
	remove_segment(made);
	pdn_unreserve(made, PDN_JOURNAL_BYTES);
	return journal;
}

/* ---- the journal of a file ------------------------------------------------------------------- */

struct pdn_trace_header *pdn_journal_begin(void)
{
	struct pdn_journal *first;

	/* One thread opens the trace, and no thread takes pieces before that is done. */
	pieces_taken = 1;
	warned_private = false;
	first = segment(0);
	if (!first)
		return NULL;
	first->pieces[0].place = 1;
	return (struct pdn_trace_header *)(void *)((char *)first + pdn_journal_piece_at(0));
}

void pdn_journal_publish(const struct pdn_trace_header *header, uint64_t device, uint64_t inode,
			 const char *path)
{
	struct pdn_journal *first = segments[0];

	first->device = device;
	first->inode = inode;
	first->pid = header->pid;
	first->begin = header->begin;
	strncat(first->path, path, sizeof(first->path) - 1);
	/* Pairs with readers in other processes, which know a journal by its magic. */
	pdn_full_fence();
	memcpy(first->magic, PDN_JOURNAL_MAGIC, sizeof(first->magic));
}

void pdn_journal_end(void)
{
	for (unsigned i = 0; i < MAX_SEGMENTS; i++) {
		struct pdn_journal *journal = __atomic_load_n(&segments[i], __ATOMIC_ACQUIRE);

		if (journal)
			remove_segment(journal);
	}
}

/*
 * The memory becomes private to the child, all zero, and stays mapped: if a signal handler has
 * forked, the interrupted code may be about to write there.
 */
void pdn_journal_forget(void)
{
	for (unsigned i = 0; i < MAX_SEGMENTS; i++) {
		if (segments[i])
			pdn_make_private(segments[i], PDN_JOURNAL_BYTES);
		segments[i] = NULL;
	}
}

/* ---- pieces ---------------------------------------------------------------------------------- */

struct pdn_journal_piece *pdn_journal_piece_new(enum pdn_chunk_kind kind, char **memory)
{
	uint32_t number = __atomic_load_n(&pieces_taken, __ATOMIC_RELAXED);
	struct pdn_journal *journal;

	do { /* relaxed: only a unique number is needed */
		journal = number < MAX_SEGMENTS * PDN_JOURNAL_PIECES
				  ? segment(number / PDN_JOURNAL_PIECES)
				  : NULL;
		if (!journal)
			return NULL;
	} while (!__atomic_compare_exchange_n(&pieces_taken, &number, number + 1, false,
					      __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	number %= PDN_JOURNAL_PIECES;
	*memory = (char *)journal + pdn_journal_piece_at(number);
	journal->pieces[number].kind = kind;
	return &journal->pieces[number];
}

size_t pdn_journal_complete(const char *memory)
{
	const uint64_t *words = (const uint64_t *)(const void *)memory;
	const size_t max = PDN_JOURNAL_PIECE_SIZE / 8;
	size_t at = 0, length;

	if ((uint32_t)words[0] == PDN_CHUNK_MAGIC)
		at = sizeof(struct pdn_trace_chunk) / 8;
	while (at < max && (length = words[at] & 0xff) != 0 && length <= max - at)
		at += length;
	return at * 8;
}

void pdn_journal_move(struct pdn_journal_piece *piece, char *memory, uint64_t offset)
{
	/*
	 * A new piece is clear already. Not clearing it spares memory: most threads write little,
	 * and never touch most of its pages.
	 */
	if (piece->place) {
		/*
		 * The fence: a reader that has read the content, and then still finds the old
		 * place, has read the old content.
		 */
		__atomic_store_n(&piece->place, 0, __ATOMIC_RELAXED);
		pdn_full_fence();
		memset(memory, 0, PDN_JOURNAL_PIECE_SIZE);
	}
	/* Release: a reader that sees the new place sees no old content. */
	__atomic_store_n(&piece->place, offset + 1, __ATOMIC_RELEASE);
}

/* ---- writing all pieces ---------------------------------------------------------------------- */

/*
 * The piece's thread may be writing there, and may move the piece on during the copy. That race is
 * intended, hence hidden from ThreadSanitizer: reading the place afterwards decides it.
 */
__attribute__((noinline, no_sanitize("thread"))) static void copy_words(void *to, const void *from)
{
	for (size_t i = 0; i < PDN_JOURNAL_PIECE_SIZE / 8; i++)
		((uint64_t *)to)[i] = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_RELAXED);
}

bool pdn_journal_write_all(pdn_journal_write *write)
{
	static char copy[PDN_JOURNAL_PIECE_SIZE] __attribute__((aligned(8)));

	for (unsigned i = 0; i < MAX_SEGMENTS * PDN_JOURNAL_PIECES; i++) {
		unsigned number = i % PDN_JOURNAL_PIECES;
		struct pdn_journal *journal =
			__atomic_load_n(&segments[i / PDN_JOURNAL_PIECES], __ATOMIC_ACQUIRE);
		struct pdn_journal_piece *piece = journal ? &journal->pieces[number] : NULL;
		/* Acquire: pairs with pdn_journal_move(). */
		uint64_t place = piece ? __atomic_load_n(&piece->place, __ATOMIC_ACQUIRE) : 0;
		bool events = piece && piece->kind == PDN_CHUNK_EVENTS;

		if (!place)
			continue;
		copy_words(copy, (const char *)journal + pdn_journal_piece_at(number));
		pdn_full_fence(); /* pairs with pdn_journal_move() */
		if (__atomic_load_n(&piece->place, __ATOMIC_RELAXED) != place)
			continue; /* its thread has written it */
		if (!write(copy, events ? pdn_journal_complete(copy) : sizeof(copy), place - 1))
			return false;
	}
	return true;
}
