/* SPDX-License-Identifier: MIT */
/* Where libpindown.so is, which belongs to this command. */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Beside the command (in the build folder), or where it was installed, wherever that was moved to.
 * False when it is in none of these places.
 */
bool preload_find(char *path, size_t capacity);

/* Where `make install` puts it: the last place. */
const char *preload_installed(void);

#endif
