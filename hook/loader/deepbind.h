/* SPDX-License-Identifier: MIT */
/*
 * Does it matter that a file is opened with RTLD_DEEPBIND? Only if the file, or a library that it
 * needs, calls by name a function that we wrap: of the driver, libibverbs or the loader. All others
 * keep the flag, since without it they could be bound to another library's symbols.
 */
#ifndef PDN_DEEPBIND_H
#define PDN_DEEPBIND_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/*
 * Reads the file, and the files that it needs and that are not loaded yet. True also where the
 * answer is unknown (a file is not found in the places searched, or has another format). Keeps
 * errno.
 */
bool pdn_deepbind_matters(const char *file, const void *caller);

#pragma GCC visibility pop

#endif
