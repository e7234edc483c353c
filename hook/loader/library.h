/* SPDX-License-Identifier: MIT */
/*
 * A library that we stand before, once something in the process has loaded it. We never load it.
 *
 * A wrapper's first call must find its real function without the loader's lock (symtab.h): a
 * program's call takes none either. So the object is found by going through what is loaded. It is
 * held, which needs the lock, when the program itself calls the loader: at the latest in its first
 * dlclose, before which it can't go away.
 */
#ifndef PD_LIBRARY_H
#define PD_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/loader/symtab.h"

#pragma GCC visibility push(hidden)

struct pd_library {
	const char *soname;
	struct pd_elf elf;
	uintptr_t begin, size; /* where it lies */
	bool known;	       /* the members above are valid */
	bool held;
};

/* Has it been found before? One load. */
static inline bool pd_library_known(const struct pd_library *library)
{
	/* Acquire pairs with the release in pd_library_find(): what is known of it is there. */
	return __atomic_load_n(&library->known, __ATOMIC_ACQUIRE);
}

/* Is it loaded? Goes through all that is, if it is not known. From then on it stays. */
bool pd_library_find(struct pd_library *library);

/* In a call of the loader by the program: see to it that it stays. */
void pd_library_hold(struct pd_library *library);

/* Does the address lie in it? False while it is not known. */
bool pd_library_has(const struct pd_library *library, const void *address);

/* Does it define a function of this name, in whatever version? False while it is not known. */
bool pd_library_defines(const struct pd_library *library, const char *name);

/* The next definition after us among the libraries that the program started with; or NULL. */
void *pd_next_definition(const char *name);

#pragma GCC visibility pop

#endif
