/* SPDX-License-Identifier: MIT */
/* The rank of a traced process in its job, as its launcher told it. */
#ifndef TRACE_RANK_H
#define TRACE_RANK_H

#include "tools/base/out.h"
#include "tools/trace/file.h"

enum { NO_RANK = -1 };

/* For trace_file_open(): PMIX_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID, or NO_RANK. */
int64_t trace_rank(const struct trace_file *file);

/* ", rank 3", or "" when the rank is unknown. */
struct out_text trace_rank_text(const struct trace_file *file);

/*
 * The value of an environment variable, whose name is given with its =; NULL: the trace does not
 * have it.
 */
const char *trace_file_variable(const struct trace_file *file, const char *variable);

#endif
