/* SPDX-License-Identifier: MIT */
/*
 * A library whose functions we wrap: libcuda, libibverbs or libmlx5, once something in the process
 * has loaded it. We never load it.
 *
 * A wrapper's first call must find its real function without the loader's lock (symtab.h), since
 * the program's own call takes none either. So the library is found by walking the loaded ones; the
 * loader is through with it, as the caller is bound to it. It is held with dlopen(), which takes
 * the lock, when the program itself calls the loader: at the latest in its first dlclose, before
 * which the library can't be unloaded.
 *
 * Where it is not such a call that asks, but a look-up, pindown's API, or a verb, another thread's
 * dlopen() may just be loading the library. Then it is listed, but neither relocated nor sure to
 * stay: that dlopen() may fail yet. So it is held first, by a dlopen() of our own, which waits for
 * the other one. A thread that asks under a lock for which a constructor in that dlopen() waits
 * would wait for ever, as it would in a dlsym() there. So this is done once, and only for a library
 * that did not come with the program and that no call has reached yet. Without the lock nobody can
 * tell whether the library is ready.
 */
#ifndef PDN_LIBRARY_H
#define PDN_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/loader/symtab.h"

#pragma GCC visibility push(hidden)

struct pdn_library {
	const char *soname;
	struct pdn_elf elf;
	uintptr_t begin, size; /* its place in memory */
	bool known;	       /* the members above are valid */
	bool held;
};

/* Has it been found before? One load. */
static inline bool pdn_library_known(const struct pdn_library *library)
{
	/* Acquire pairs with the release in store(): the other members are valid. */
	return __atomic_load_n(&library->known, __ATOMIC_ACQUIRE);
}

/*
 * In a call by name of one of its functions. Is it loaded? Walks the loaded libraries unless it is
 * known. Once found it stays known.
 */
bool pdn_library_find(struct pdn_library *library);

/* The same elsewhere: may wait for the loader's lock, and then holds the library. Keeps errno. */
bool pdn_library_find_ready(struct pdn_library *library);

/* In a call of the loader by the program: hold it, so that it stays loaded. */
void pdn_library_hold(struct pdn_library *library);

/* Does the address lie in it? False while it is not known. */
bool pdn_library_has(const struct pdn_library *library, const void *address);

/* Does it define a function of this name, in any version? False while it is not known. */
bool pdn_library_defines(const struct pdn_library *library, const char *name);

/*
 * The next definition after us among the libraries that the program started with, or the library's
 * own; NULL: neither is there, or the library is not known.
 */
void *pdn_library_next(const struct pdn_library *library, const char *name);

#pragma GCC visibility pop

#endif
