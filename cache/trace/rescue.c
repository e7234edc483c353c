// SPDX-License-Identifier: MIT
/* Journals of other processes: finding them, and saving those of killed ones into their files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/barrier.h"
#include "cache/base/log.h"
#include "cache/trace/journal.h"

enum {
	MAX_CHECKED = 4096,   /* the usual limit of a machine's segments */
	KEPT_SECONDS = 86400, /* a journal that can't be saved is removed at this age */
};

static bool may_be_journal(const struct shmid_ds *about)
{
	return about->shm_segsz == PDN_JOURNAL_BYTES &&
	       (about->shm_perm.cuid == geteuid() || geteuid() == 0);
}

static void visit_segment(int segment, const struct shmid_ds *about, pdn_journal_visit *visit,
			  void *context)
{
	long at = syscall(SYS_shmat, segment, NULL, SHM_RDONLY);
	const struct pdn_journal *journal = (const struct pdn_journal *)at;

	if (at == -1)
		return;
	if (memcmp(journal->magic, PDN_JOURNAL_MAGIC, sizeof(journal->magic)) == 0) {
		/* Acquire: pairs with publish() in journal.c. */
		pdn_full_fence();
		visit(journal, segment, about, context);
	}
	syscall(SYS_shmdt, at);
}

void pdn_journal_each(pdn_journal_visit *visit, void *context)
{
	struct shm_info all;
	struct shmid_ds about;
	int saved = errno;
	int last = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&all);

	for (int i = 0; i <= last && i < MAX_CHECKED; i++) {
		int segment = shmctl(i, SHM_STAT, &about);

		if (segment >= 0 && may_be_journal(&about))
			visit_segment(segment, &about, visit, context);
	}
	errno = saved;
}

bool pdn_journal_is_of(const struct pdn_journal *journal, uint64_t device, uint64_t inode,
		       const struct pdn_trace_header *header)
{
	return journal->device == device && journal->inode == inode &&
	       memcmp(header->magic, PDN_TRACE_MAGIC, sizeof(header->magic)) == 0 &&
	       journal->pid == header->pid &&
	       memcmp(&journal->begin, &header->begin, sizeof(header->begin)) == 0;
}

struct pdn_journal_view pdn_journal_view(void)
{
	struct pdn_journal_view view = {0};
	struct stat status;

	if (stat("/proc/self/ns/mnt", &status) == 0)
		view.namespace = status.st_ino;
	if (stat("/", &status) == 0) {
		view.device = status.st_dev;
		view.inode = status.st_ino;
	}
	return view;
}

/* ---- rescue ---------------------------------------------------------------------------------- */

enum found { THERE, GONE, UNKNOWN };

/* Only a process that sees the same files under the same names can tell that a file is gone. */
static enum found gone_or_unknown(const struct pdn_journal *journal)
{
	const struct pdn_journal_view view = pdn_journal_view();

	return view.namespace && memcmp(&view, &journal->view, sizeof(view)) == 0 ? GONE : UNKNOWN;
}

static enum found find_file(const struct pdn_journal *journal, int *file, struct stat *status)
{
	struct pdn_trace_header header;
	int fd = open(journal->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? gone_or_unknown(journal) : UNKNOWN;
	if (fstat(fd, status) == 0 && S_ISREG(status->st_mode) && status->st_uid == geteuid() &&
	    pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
	    pdn_journal_is_of(journal, status->st_dev, status->st_ino, &header)) {
		*file = fd;
		return THERE;
	}
	close(fd);
	return gone_or_unknown(journal);
}

static size_t without_zeroes(const char *memory)
{
	size_t bytes = PDN_JOURNAL_PIECE_SIZE;

	while (bytes && ((const uint64_t *)(const void *)memory)[bytes / 8 - 1] == 0)
		bytes -= 8;
	return bytes;
}

/* Does not extend a file that was truncated meanwhile. */
static bool save_piece(int fd, uint64_t size, uint64_t place, const char *memory)
{
	size_t bytes = place ? without_zeroes(memory) : 0;

	return !bytes || place - 1 + bytes > size ||
	       syscall(SYS_pwrite64, fd, memory, bytes, place - 1) == (long)bytes;
}

static bool save_to(int fd, uint64_t size, const struct pdn_journal *journal)
{
	for (unsigned i = 0; i < PDN_JOURNAL_PIECES; i++)
		if (!save_piece(fd, size, journal->pieces[i].place, pdn_journal_memory(journal, i)))
			return false;
	return true;
}

/* Has all that can be saved been written to the file, or is the file gone? */
static bool is_saved_or_gone(const struct pdn_journal *journal)
{
	struct stat status;
	enum found found;
	bool saved;
	int fd = -1;

	found = find_file(journal, &fd, &status);
	if (found != THERE)
		return found == GONE;
	saved = save_to(fd, (uint64_t)status.st_size, journal);
	close(fd);
	return saved;
}

static void rescue_one(const struct pdn_journal *journal, int segment, const struct shmid_ds *about,
		       void *context)
{
	struct pdn_shield shield;

	(void)context;
	if (about->shm_nattch || about->shm_perm.cuid != geteuid())
		return;
	pdn_shield_up(&shield);
	if (is_saved_or_gone(journal) || time(NULL) - about->shm_ctime > KEPT_SECONDS)
		shmctl(segment, IPC_RMID, NULL);
	pdn_shield_down(&shield);
}

void pdn_journal_rescue(void)
{
	pdn_journal_each(rescue_one, NULL);
}
