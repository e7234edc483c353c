/* SPDX-License-Identifier: MIT */
/*
 * Does it matter that a file is opened with RTLD_DEEPBIND? Only if it, or a library that it brings
 * along, calls by name what we stand before: the driver, libibverbs or the loader. All others keep
 * the flag, since without it they could be bound to another library's symbols.
 */
#ifndef PD_DEEPBIND_H
#define PD_DEEPBIND_H

#include <stdbool.h>

#pragma GCC visibility push(hidden)

/*
 * Reads the file, and those that it needs and that are not loaded yet. True also where that can't
 * be told (a file that is not found where it is looked for, or has another format). Keeps errno.
 */
bool pd_deepbind_matters(const char *file, const void *caller);

#pragma GCC visibility pop

#endif
