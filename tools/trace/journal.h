/* SPDX-License-Identifier: MIT */
/*
 * What the process that writes a trace has not written into the file yet (cache/trace/journal.h): a
 * copy, which is laid over what is read from the file.
 */
#ifndef JOURNAL_H
#define JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "cache/trace/format.h"

struct journal;

/* Of the file `fd`, whose header is given; NULL: there is none, all is in the file. */
struct journal *journal_copy(int fd, const struct pd_trace_header *header);
void journal_free(struct journal *journal);

/* The header as the process has it. */
const struct pd_trace_header *journal_header(const struct journal *journal);

/* What the journal has of the file's `bytes` from `offset` on, a multiple of 8, goes to `to`. */
void journal_lay_over(const struct journal *journal, char *to, size_t bytes, uint64_t offset);

/* The first byte from `offset` on of which the journal may have something; UINT64_MAX: of none. */
uint64_t journal_next(const struct journal *journal, uint64_t offset);

#endif
