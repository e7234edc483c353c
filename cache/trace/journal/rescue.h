/* SPDX-License-Identifier: MIT */
/* Journals of other processes: finding them, and saving those of killed ones into their files. */
#ifndef PDN_JOURNAL_RESCUE_H
#define PDN_JOURNAL_RESCUE_H

#include "cache/trace/journal/journal.h"

/*
 * Calls `visit` for each journal on this machine that belongs to this user (root: to any user).
 * `journal` is a copy. The segment itself is mapped read-only at `at`: read it by pdn_safe_read(),
 * as there may be no memory behind it. Its process may be writing it. `about` is the kernel's
 * description of the segment. Not by two threads at once.
 */
typedef void pdn_journal_visit(const struct pdn_journal *journal, uint64_t at, int segment,
			       const struct shmid_ds *about, void *context);
void pdn_journal_each(pdn_journal_visit *visit, void *context);

/* The same for the journal in one segment, if it is there still. */
void pdn_journal_at(int segment, pdn_journal_visit *visit, void *context);

/* Does the journal belong to this file? `header`: as read from the file. */
bool pdn_journal_is_of(const struct pdn_journal *journal, uint64_t device, uint64_t inode,
		       const struct pdn_trace_header *header);

/*
 * Writes the journals of this user's killed processes into their files, and removes them. One whose
 * file is not where its process had it is kept for a day: the file may have been renamed.
 */
void pdn_journal_rescue(void);

/* The same for the journal in one segment, whose file is at this path now. */
void pdn_journal_rescue_to(int segment, const char *path);

#endif
