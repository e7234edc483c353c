/* SPDX-License-Identifier: MIT */
/*
 * A library that we stand before, once something in the process has loaded it. We never load it.
 *
 * A wrapper's first call must find its real function without the loader's lock (symtab.h): a program's
 * call takes none either. So the object is found by going through what is loaded. It is held, which needs
 * the lock, when the program itself calls the loader: at the latest in its first dlclose, before which it
 * can't go away.
 */
#ifndef PD_OBJECT_H
#define PD_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "symtab.h"

#pragma GCC visibility push(hidden)

struct pd_object {
	const char *soname;
	struct pd_elf elf;
	uintptr_t begin, size; /* where it lies */
	uint32_t known;	       /* NOT_YET, BEING_FILLED_IN, or KNOWN: the members above are valid */
	bool held;
};
enum { PD_OBJECT_NOT_YET, PD_OBJECT_BEING_FILLED_IN, PD_OBJECT_KNOWN };

/* Has it been found before? One load. */
static inline bool pd_object_known(const struct pd_object *object)
{
	return __atomic_load_n(&object->known, __ATOMIC_ACQUIRE) == PD_OBJECT_KNOWN;
}

/* Is it loaded? Goes through all that is, if it is not known. From then on it stays. */
bool pd_object_find(struct pd_object *object);

/* In a call of the loader by the program: see to it that it stays. */
void pd_object_hold(struct pd_object *object);

/* Does the address lie in it? False while it is not known. */
bool pd_object_has(const struct pd_object *object, const void *address);

/* The next definition after us among the libraries that the program started with; or NULL. */
void *pd_next_definition(const char *name);

#pragma GCC visibility pop

#endif
