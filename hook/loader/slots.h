/* SPDX-License-Identifier: MIT */
/*
 * A library's slots: the addresses of other libraries' functions that it calls, as the loader has
 * bound them. Replacing one catches the calls of this library alone, also where the program defines
 * the function, or another library interposes it.
 */
#ifndef PDN_SLOTS_H
#define PDN_SLOTS_H

#include <stdbool.h>

#include "hook/loader/library.h"

#pragma GCC visibility push(hidden)

/*
 * From now on the library's calls by this name come to `function`. *before: what they came to, for
 * which `function` may be waiting already, stored before the first slot. Doing it twice changes
 * nothing. false: the library has no such slot, or it can't be written.
 */
bool pdn_slots_replace(const struct pdn_library *library, const char *name, void *function,
		       void **before);

#pragma GCC visibility pop

#endif
