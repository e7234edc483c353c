/* SPDX-License-Identifier: MIT */
/* Calls of dlopen() with RTLD_DEEPBIND, found in machine code. */
#ifndef DEEPBIND_H
#define DEEPBIND_H

#include <libelf.h>

/*
 * Counts calls of dlopen() with RTLD_DEEPBIND, on x86-64 only. A call is found when a constant is put
 * into the register of the second argument shortly before it; computed flags are not found.
 */
unsigned count_deepbind_calls(Elf *elf);

#endif
