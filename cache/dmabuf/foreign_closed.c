/* SPDX-License-Identifier: MIT */
/*
 * Which of the program's own dma-bufs have no descriptor any more: all descriptors of the process
 * are looked at. The lock is taken for each of them alone, as it must not be held for that long.
 */
#define _GNU_SOURCE
#include "cache/dmabuf/foreign_closed.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>

#include "cache/base/process/descriptor.h"
#include "cache/base/process/fork_gate.h"
#include "cache/base/thread/lock.h"
#include "cache/base/process/system.h"
#include "cache/dmabuf/foreign_table.h"
#include "cache/dmabuf/region_dmabuf.h"

#define FEWEST 1024u /* no search below this number */

/* Under the lock. */
static uint32_t search; /* counted from 1 */
static PDN_NOT_INHERITED bool searching;
static uint32_t due = FEWEST; /* the next search: when this many are remembered */
static uint32_t kept;	      /* by the last search */
static uint32_t refused;      /* exports since then, as there was no room */

uint32_t pdn_exports_search(void)
{
	return search;
}

/* Lock held. */
static void note_file(const struct pdn_file *file)
{
	for (uint32_t n = pdn_foreign_of_file(file); n; n = pdn_foreign_next_of_file(n))
		pdn_foreign_at(n)->seen = search;
}

static void note_descriptor(int fd)
{
	struct pdn_file file;

	if (!pdn_file_of(fd, &file))
		return;
	pdn_lock();
	note_file(&file);
	pdn_unlock();
}

/* The number of a name; -1: it is none ("." and ".."). */
static int number_of(const char *name)
{
	int number = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return -1;
		number = number * 10 + (*name - '0');
	}
	return number;
}

/* Without the C library's functions, which allocate. */
static bool note_descriptors(int folder)
{
	union {
		struct dirent64 first;
		char bytes[2048];
	} names;
	long length;

	while ((length = pdn_sys(SYS_getdents64, folder, &names, sizeof(names))) > 0)
		for (long at = 0; at < length;) {
			const struct dirent64 *name = (const void *)(names.bytes + at);

			note_descriptor(number_of(name->d_name));
			at += name->d_reclen;
		}
	return length == 0;
}

/* false: the descriptors can't be listed. */
static bool note_open_ones(void)
{
	bool all = false;
	int folder;

	pdn_descriptor_begin();
	do
		folder = pdn_sys_open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	while (folder == -EMFILE && pdn_dmabuf_close_kept());
	if (folder >= 0) {
		all = note_descriptors(folder);
		pdn_descriptor_close(folder);
	}
	pdn_descriptor_end();
	return all;
}

/* Lock held. */
static void forget_unseen(void)
{
	for (uint32_t n = pdn_foreign_after(0); n; n = pdn_foreign_after(n)) {
		const struct pdn_export *export = pdn_foreign_at(n);

		if (export->seen != search && !export->imports)
			pdn_foreign_remove(n);
	}
}

/* Lock held. Where there is no room, the last search may have found that all of them are open. */
static bool is_due(bool full)
{
	return full ? ++refused > kept / 16 : pdn_foreign_count() >= due;
}

/* Lock held. One thread at a time. */
static bool begin_search(bool full)
{
	if (searching || !is_due(full))
		return false;
	searching = true;
	search++;
	return true;
}

void pdn_exports_forget_closed(bool full)
{
	bool begun, all;

	pdn_lock();
	begun = begin_search(full);
	pdn_unlock();
	if (!begun)
		return;
	/*
	 * Twice: one that another thread moves down, past the numbers that are being looked at, is
	 * seen at its new number the second time.
	 */
	all = note_open_ones() && note_open_ones();
	pdn_lock();
	if (all)
		forget_unseen();
	searching = false;
	refused = 0;
	kept = pdn_foreign_count();
	due = 2 * kept > FEWEST ? 2 * kept : FEWEST;
	pdn_unlock();
}
