/* SPDX-License-Identifier: MIT */
/* The path of the libpindown.so that belongs to this command. */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Looks beside the command (in the build folder), in ../lib and ../lib64 (an installation, which may
 * have been moved), and in the folder of `make install`. False when it is in none of them.
 */
bool preload_find(char *path, size_t capacity);

/* The folder of `make install`. */
const char *preload_installed(void);

#endif
