/* SPDX-License-Identifier: MIT */
/* Scripts of a shell that only start another program in their place. */
#ifndef SHELL_H
#define SHELL_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a program's name is that of a shell with the syntax of sh. */
bool shell_is(const char *program);

/*
 * Copies the path of the program that a script becomes by `exec`, as in the scripts of pip and
 * conda and in wrappers. False when that depends on anything but the script's first commands.
 */
bool shell_becomes(const char *script, char *path, size_t capacity);

#endif
