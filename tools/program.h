/* SPDX-License-Identifier: MIT */
/* What can be told of a program before it is started. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* Finds a program as execvp() does. False when there is none; errno says why. */
bool program_find(const char *name, char *path, size_t room);

/* Why a preload would not reach it: a sentence's end ("is ..."), or NULL when nothing speaks
 * against. */
const char *program_unreachable(const char *path);

#endif
