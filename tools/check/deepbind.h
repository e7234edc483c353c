/* SPDX-License-Identifier: MIT */
#ifndef DEEPBIND_H
#define DEEPBIND_H

#include <libelf.h>

/*
 * Calls of dlopen() whose flags are seen to hold RTLD_DEEPBIND: on x86-64, where a constant is put
 * into the second argument's register shortly before. Flags that are computed are not seen.
 */
unsigned count_deepbind_calls(Elf *elf);

#endif
