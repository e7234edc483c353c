/* SPDX-License-Identifier: MIT */
/* Facts about a program that is not running yet. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds a program as execvp() does. False when there is none, with the reason in errno. */
bool program_find(const char *name, char *path, size_t capacity);

/* Why a preload would not reach it: the end of a sentence ("is ..."); NULL when it would. */
const char *program_unreachable(const char *path);
/* Does a preload, which does not reach it, reach programs that it starts? */
bool program_hands_preload_on(const char *path);
/* Would it even not start with one? musl's loader ends a program whose preload it can't bind. */
bool program_ends_by_preload(const char *path);

/* The processor that an ELF file is for, for people ("aarch64"); NULL for any other file. */
const char *program_machine(const char *path);
const char *program_own_machine(void);
/* Whether it is an ELF file for a processor whose programs do not run here. */
bool program_is_foreign(const char *path);
/* For a value of e_machine. */
const char *program_machine_name(uint16_t machine);

/*
 * Copies the path of the program that runs a script, also through /usr/bin/env and other scripts.
 * False when the file is no script (`path` is then empty) or the program does not exist (`path`
 * then has its name).
 */
bool program_interpreter(const char *script, char *path, size_t capacity);

#endif
