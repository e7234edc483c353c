// SPDX-License-Identifier: MIT
/* The names of the watched calls, from the tables of hook/. */
#include "tools/check/watched.h"

#include <string.h>

struct call {
	const char *symbol, *base;
};

static const struct call calls[] = {
#define X(symbol, base, ...) {#symbol, #base},
#include "hook/cuda/entrypoints.def"
#undef X
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

bool watched_name(const char *name, size_t length)
{
	for (unsigned i = 0; i < CALLS; i++) {
		if (strncmp(calls[i].symbol, name, length) == 0 && !calls[i].symbol[length])
			return true;
		if (strncmp(calls[i].base, name, length) == 0 && !calls[i].base[length])
			return true;
	}
	return false;
}

static const char *const verbs[] = {
#define X(symbol, ...) #symbol,
#include "hook/verbs/verbs.def"
#undef X
};

bool watched_verb(const char *name, size_t length)
{
	for (unsigned i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strncmp(verbs[i], name, length) == 0 && !verbs[i][length])
			return true;
	return false;
}
