// SPDX-License-Identifier: MIT
/* Finds the rank of a traced process in the environment that its trace holds. */
#include "tools/trace/rank.h"

#include <stdio.h>
#include <string.h>

/*
 * In the order in which they are believed. A batch script of Slurm has SLURM_PROCID=0, and all
 * ranks that its mpirun starts inherit this; so Slurm's variable counts only without the others.
 */
static const char *const variables[] = {
	"PMIX_RANK=", "OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "SLURM_PROCID="};

/* NO_RANK when it is not a number of a sensible size. */
static int64_t parse_rank(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	int64_t rank = 0;

	if (!digits || digits > 9 || text[digits])
		return NO_RANK;
	while (*text)
		rank = rank * 10 + (*text++ - '0');
	return rank;
}

const char *trace_file_variable(const struct trace_file *file, const char *variable)
{
	const char *end = file->environment + file->environment_bytes;

	for (const char *at = file->environment; at < end; at += strlen(at) + 1)
		if (strncmp(at, variable, strlen(variable)) == 0)
			return at + strlen(variable);
	return NULL;
}

int64_t trace_rank(const struct trace_file *file)
{
	int64_t rank = NO_RANK;

	for (unsigned i = 0; rank < 0 && i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value = trace_file_variable(file, variables[i]);

		rank = value ? parse_rank(value) : NO_RANK;
	}
	return rank;
}

struct out_text trace_rank_text(const struct trace_file *file)
{
	struct out_text text = {""};
	if (file->rank != NO_RANK)
		snprintf(text.text, sizeof(text.text), ", rank %u", (unsigned)file->rank);
	return text;
}
