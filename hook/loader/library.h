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
 * stay: that dlopen() may fail yet. So it is opened first, by a dlopen() of our own, which waits
 * for the other one, and closed again. A thread that asks under a lock for which a constructor in
 * that dlopen() waits would wait for ever, as it would in a dlsym() there. So this is done once,
 * and only for a library that did not come with the program and that no call has reached yet.
 * Without the lock nobody can tell whether the library is ready.
 */
#ifndef PDN_LIBRARY_H
#define PDN_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "hook/loader/loaded/symtab.h"

#pragma GCC visibility push(hidden)

struct pdn_library {
	const char *soname; /* of the one that is looked for */
	uintptr_t claimed;  /* pdn_library_is(): where it begins */
	struct pdn_elf elf;
	uintptr_t begin, size; /* its place in memory */
	bool known;	       /* the members above are valid */
	bool at_start;	       /* it came with the program */
	bool held;
};

/* A member of a known one, which another thread that has found it, too, may be storing again. */
#define PDN_OF_LIBRARY(library, member) __atomic_load_n(&(library)->member, __ATOMIC_RELAXED)

/* Has it been found before? One load. */
static inline bool pdn_library_known(const struct pdn_library *library)
{
	/* Acquire pairs with the release in store(): the other members are valid. */
	return __atomic_load_n(&library->known, __ATOMIC_ACQUIRE);
}

/*
 * In a call by name of one of its functions. Is it loaded? Walks the loaded libraries unless it is
 * known. Once found it stays known, until it has gone.
 */
bool pdn_library_find(struct pdn_library *library);

/* The same elsewhere: may wait for the loader's lock. Keeps errno. */
bool pdn_library_find_ready(struct pdn_library *library);

/*
 * Does the address lie in it? While none is known, the library at the address becomes the known one
 * if it defines `mark`, a function that only such libraries define. Without the loader's lock.
 */
bool pdn_library_is(struct pdn_library *library, const char *mark, const void *address);

/* The nth loaded library of this soname, from 0; false: there are no more. */
bool pdn_library_of_soname(const char *soname, unsigned nth, struct pdn_library *library);

/* Waits for a dlopen() that may be loading it. false: it is not loaded any more. */
bool pdn_library_is_ready(const struct pdn_library *library);

/* Is it known, and no longer loaded? To be asked behind each dlclose(): another may come there. */
bool pdn_library_has_gone(const struct pdn_library *library);

/* It is not known any more. After everything that was known of it. */
void pdn_library_forget(struct pdn_library *library);

/* In a call of the loader by the program: hold it, so that it stays loaded. */
void pdn_library_hold(struct pdn_library *library);

/* Does the address lie in it? False while it is not known. */
bool pdn_library_has(const struct pdn_library *library, const void *address);

#pragma GCC visibility pop

#endif
