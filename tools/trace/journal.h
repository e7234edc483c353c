/* SPDX-License-Identifier: MIT */
/*
 * A copy of the parts of a trace that its process has not written into the file yet
 * (cache/trace/journal/journal.h). They are laid over the bytes read from the file.
 */
#ifndef JOURNAL_H
#define JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "cache/trace/format.h"

struct journal;

/* Looks which journals there are now; the next function knows those. */
void journals_look(void);

/*
 * The journal of the file `fd`, whose header and path are given; NULL: everything is in the file.
 * That of a killed process is saved into the file, which may have been renamed.
 */
struct journal *journal_copy(int fd, const char *path, const struct pdn_trace_header *header);
void journal_free(struct journal *journal);

/* The header as the process has it. */
const struct pdn_trace_header *journal_header(const struct journal *journal);

/*
 * Overwrites `to`, which holds `bytes` of the file from `offset` on, with the words that the
 * journal has of them. `offset` is a multiple of 8.
 */
void journal_lay_over(const struct journal *journal, char *to, size_t bytes, uint64_t offset);

/* The first offset, from `offset` on, that the journal may cover; UINT64_MAX: none. */
uint64_t journal_next(const struct journal *journal, uint64_t offset);

#endif
