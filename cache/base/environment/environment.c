/* SPDX-License-Identifier: MIT */
/* Copying variables at load, and finding them in the copy. */
#define _GNU_SOURCE
#include "cache/base/environment/environment.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/environment/config.h"
#include "cache/base/environment/rank.h"
#include "cache/base/visible.h"

/* Assignments, one behind the other; an empty text is last. NULL: nothing is copied yet. */
static PDN_AT_LOAD const char *kept;

/* The name of a trace has any variables, and the trace itself those of pindown. */
PDN_STARTS static bool is_needed_later(const char *assignment)
{
	static PDN_AT_LOAD char begins[] =
		PDN_RANK_VARIABLES "XDG_RUNTIME_DIR=\0LD_LIBRARY_PATH=\0";

	for (const char *begin = begins; *begin; begin += strlen(begin) + 1)
		if (strncmp(assignment, begin, strlen(begin)) == 0)
			return true;
	return *assignment && pdn_config_known && pdn_config_known->trace;
}

PDN_STARTS static size_t room_for(const char *assignment)
{
	return is_needed_later(assignment) ? strlen(assignment) + 1 : 0;
}

PDN_STARTS static size_t room_for_all(void)
{
	size_t bytes = 0;

	for (char *const *e = environ; e && *e; e++)
		bytes += room_for(*e);
	return bytes;
}

PDN_STARTS static void copy_all(char *to, size_t room)
{
	for (char *const *e = environ; e && *e; e++) {
		size_t length = room_for(*e);

		if (!length || length > room)
			continue;
		memcpy(to, *e, length);
		to += length;
		room -= length;
	}
}

PDN_STARTS void pdn_environment_at_load(void)
{
	size_t bytes = kept ? 0 : room_for_all();
	char *at = bytes ? pdn_map(bytes + 1, PROT_READ | PROT_WRITE) : NULL;

	if (at) {
		copy_all(at, bytes);
		kept = at;
	} else if (!kept) {
		kept = "";
	}
}

/* A constructor that runs before ours may use CUDA. */
const char *pdn_next_assignment(const char *assignment)
{
	if (!kept)
		pdn_environment_at_load();
	assignment = assignment ? assignment + strlen(assignment) + 1 : kept;
	return *assignment ? assignment : NULL;
}

const char *pdn_variable_of(const char *name, size_t length)
{
	const char *at = NULL;

	while ((at = pdn_next_assignment(at)))
		if (strncmp(at, name, length) == 0 && at[length] == '=')
			return at + length + 1;
	return NULL;
}
