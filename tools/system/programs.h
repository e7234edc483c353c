/* SPDX-License-Identifier: MIT */
/* What can be told of a program before it is started. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* Finds a program as execvp() does. False when there is none; errno says why. */
bool program_find(const char *name, char *path, size_t capacity);

/* Why a preload would not reach it: a sentence's end ("is ..."), or NULL when nothing speaks
 * against. */
const char *program_unreachable(const char *path);

/*
 * What a script is run by, also by way of /usr/bin/env: into `path`. False when the file is no script,
 * or names a program that is not there: `path` is then empty, or has the name.
 */
bool program_interpreter(const char *script, char *path, size_t capacity);

#endif
