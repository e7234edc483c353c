// SPDX-License-Identifier: MIT
/* Journals of other processes: finding them, and saving those of killed ones into their files. */
#define _GNU_SOURCE
#include "cache/trace/journal/rescue.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/thread/barrier.h"
#include "cache/base/environment/log.h"
#include "cache/base/memory/safe_read.h"
#include "cache/base/process/system.h"

enum {
	MAX_CHECKED = 4096, /* the usual limit of a machine's segments */
	/* One that can't be saved is removed at this age, or where a user has more of them. */
	KEPT_SECONDS = 86400,
	MAX_KEPT = 256,
};

/*
 * The segment may be anybody's: one of huge pages that were never reserved raises SIGBUS where none
 * is free. So it is read by a system call only.
 */
static void visit_segment(int segment, const struct shmid_ds *about, pdn_journal_visit *visit,
			  void *context)
{
	static struct pdn_journal head; /* stacks can be small */
	long at = pdn_sys(SYS_shmat, segment, NULL, SHM_RDONLY);

	if (at < 0)
		return;
	if (pdn_safe_read(head.magic, (uint64_t)at, sizeof(head.magic)) &&
	    memcmp(head.magic, PDN_JOURNAL_MAGIC, sizeof(head.magic)) == 0) {
		/* Acquire: pairs with pdn_journal_publish(). */
		pdn_full_fence();
		if (pdn_safe_read(&head, (uint64_t)at, sizeof(head)))
			visit(&head, (uint64_t)at, segment, about, context);
	}
	pdn_sys(SYS_shmdt, at);
}

void pdn_journal_at(int segment, pdn_journal_visit *visit, void *context)
{
	struct shmid_ds about;

	if (pdn_sys(SYS_shmctl, segment, IPC_STAT, &about) == 0 &&
	    about.shm_segsz == PDN_JOURNAL_BYTES)
		visit_segment(segment, &about, visit, context);
}

/* A process of root reads a trace of any user, but saves only its own. */
static void visit_all(bool of_any_user, pdn_journal_visit *visit, void *context)
{
	struct shm_info all;
	struct shmid_ds about;
	int last = (int)pdn_sys(SYS_shmctl, 0, SHM_INFO, &all);

	for (int i = 0; i <= last && i < MAX_CHECKED; i++) {
		int segment = (int)pdn_sys(SYS_shmctl, i, SHM_STAT, &about);

		if (segment >= 0 && about.shm_segsz == PDN_JOURNAL_BYTES &&
		    (about.shm_perm.cuid == geteuid() || (of_any_user && geteuid() == 0)))
			visit_segment(segment, &about, visit, context);
	}
}

void pdn_journal_each(pdn_journal_visit *visit, void *context)
{
	visit_all(true, visit, context);
}

bool pdn_journal_is_of(const struct pdn_journal *journal, uint64_t device, uint64_t inode,
		       const struct pdn_trace_header *header)
{
	return journal->device == device && journal->inode == inode &&
	       memcmp(header->magic, PDN_TRACE_MAGIC, sizeof(header->magic)) == 0 &&
	       journal->pid == header->pid &&
	       memcmp(&journal->begin, &header->begin, sizeof(header->begin)) == 0;
}

/* ---- rescue ---------------------------------------------------------------------------------- */

/* Does not extend a file that was truncated meanwhile. */
static bool save_to(int fd, uint64_t size, const struct pdn_journal *journal, uint64_t at)
{
	static char copy[PDN_JOURNAL_PIECE_SIZE];
	const long bytes = sizeof(copy);

	for (unsigned i = 0; i < PDN_JOURNAL_PIECES; i++) {
		uint64_t to = journal->pieces[i].place - 1;

		if (to >= size || size - to < sizeof(copy)) /* also where there is no place */
			continue;
		if (!pdn_safe_read(copy, at + pdn_journal_piece_at(i), sizeof(copy)) ||
		    pdn_sys(SYS_pwrite64, fd, copy, bytes, to) != bytes)
			return false;
	}
	return true;
}

/*
 * Is the journal's file at this path, and has all that can be saved been written to it? Where it is
 * not, it may have been renamed: whoever opens it finds its journal by device and inode.
 */
static bool is_saved(const struct pdn_journal *journal, uint64_t at, const char *path)
{
	int fd = pdn_sys_open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct pdn_trace_header header;
	struct stat status;
	bool saved;

	if (fd < 0)
		return false;
	saved = pdn_sys_fstat(fd, &status) && S_ISREG(status.st_mode) &&
		status.st_uid == geteuid() &&
		pdn_sys(SYS_pread64, fd, &header, sizeof(header), 0) == sizeof(header) &&
		pdn_journal_is_of(journal, status.st_dev, status.st_ino, &header) &&
		save_to(fd, (uint64_t)status.st_size, journal, at);
	pdn_sys(SYS_close, fd);
	return saved;
}

struct rescue {
	const char *path; /* of the journal's file; NULL: as its process named it */
	unsigned kept;
};

static void rescue_one(const struct pdn_journal *journal, uint64_t at, int segment,
		       const struct shmid_ds *about, void *context)
{
	int64_t now = (int64_t)(pdn_sys_clock(CLOCK_REALTIME) / 1000000000);
	struct rescue *rescue = context;
	struct pdn_shield shield;

	/* Strangers can make segments that claim to be the journal of any file. */
	if (about->shm_nattch || about->shm_perm.cuid != geteuid())
		return;
	pdn_shield_up(&shield);
	if (is_saved(journal, at, rescue->path ? rescue->path : journal->path) ||
	    now - about->shm_ctime > KEPT_SECONDS || ++rescue->kept > MAX_KEPT)
		pdn_sys(SYS_shmctl, segment, IPC_RMID, NULL);
	pdn_shield_down(&shield);
}

void pdn_journal_rescue(void)
{
	visit_all(false, rescue_one, &(struct rescue){0});
}

void pdn_journal_rescue_to(int segment, const char *path)
{
	pdn_journal_at(segment, rescue_one, &(struct rescue){.path = path});
}
