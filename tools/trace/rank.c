// SPDX-License-Identifier: MIT
/* Finds the rank of a traced process in the environment that its trace holds. */
#include "tools/trace/rank.h"

#include <stdio.h>
#include <string.h>

#include "cache/base/environment/rank.h"
#include "tools/base/memory.h"

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

	for (const char *name = PDN_RANK_VARIABLES; *name && rank < 0; name += strlen(name) + 1) {
		const char *value = trace_file_variable(file, name);

		rank = value ? pdn_parse_rank(value) : NO_RANK;
	}
	return rank;
}

static int compare(const void *a, const void *b)
{
	const int64_t *one = a, *other = b;

	return *one < *other ? -1 : *one > *other;
}

bool trace_ranks_are_distinct(struct trace_file *const *files, unsigned count)
{
	int64_t *ranks = allocate((count + 1) * sizeof(*ranks));
	bool distinct = count != 0;

	for (unsigned i = 0; i < count; i++)
		ranks[i] = files[i]->rank;
	sort(ranks, count, sizeof(*ranks), compare);
	for (unsigned i = 0; i < count; i++)
		distinct = distinct && ranks[i] != NO_RANK && (!i || ranks[i] != ranks[i - 1]);
	release(ranks);
	return distinct;
}

struct out_text trace_rank_text(const struct trace_file *file)
{
	struct out_text text = {""};
	if (file->rank != NO_RANK)
		snprintf(text.text, sizeof(text.text), ", rank %u", (unsigned)file->rank);
	return text;
}
