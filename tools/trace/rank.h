/* SPDX-License-Identifier: MIT */
/* The rank of a traced process in its job, as its launcher told it. */
#ifndef TRACE_RANK_H
#define TRACE_RANK_H

#include "cache/base/environment/rank.h"
#include "tools/base/out.h"
#include "tools/trace/file.h"

enum { NO_RANK = PDN_NO_RANK };

/* For trace_file_open(): PMIX_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID, or NO_RANK. */
int64_t trace_rank(const struct trace_file *file);

/* Whether all of these files have a rank, and no two the same. */
bool trace_ranks_are_distinct(struct trace_file *const *files, unsigned count);

/* ", rank 3", or "" when the rank is unknown. */
struct out_text trace_rank_text(const struct trace_file *file);

/*
 * The value of an environment variable, whose name is given with its =; NULL: the trace does not
 * have it.
 */
const char *trace_file_variable(const struct trace_file *file, const char *variable);

#endif
