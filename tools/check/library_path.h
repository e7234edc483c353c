/* SPDX-License-Identifier: MIT */
/* Where the loader finds the libraries that an object needs: ld.so(8), "How a library is found". */
#ifndef LIBRARY_PATH_H
#define LIBRARY_PATH_H

#include "tools/check/elf_file.h"

struct needer {
	const struct object *object;
	const struct needer *by; /* who needs that; NULL for what was asked about */
};

/* The path of a library, which the caller frees; NULL when it is not found. */
char *library_find(const struct needer *needer, const char *name);

#endif
