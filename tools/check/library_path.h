/* SPDX-License-Identifier: MIT */
/* Where the loader finds the libraries that a file needs: see ld.so(8). */
#ifndef LIBRARY_PATH_H
#define LIBRARY_PATH_H

#include "tools/check/elf_file.h"

struct needer {
	const struct elf_file *file;
	const struct needer *by; /* the file that needs it; NULL for the first */
};

/* The path of a library, which the caller frees; NULL when it is not found. */
char *library_find(const struct needer *needer, const char *name);

#endif
