/* SPDX-License-Identifier: MIT */
/*
 * Finding a function in an object that is loaded, by its symbol table: without the loader's lock,
 * which a thread may hold while it waits for the one that we are in (in a library's constructor),
 * without malloc, and without a trace in what dlerror() tells the program.
 *
 * Nothing here calls a function of the C library, and symtab.c is never instrumented: see loader.c.
 */
#ifndef PD_SYMTAB_H
#define PD_SYMTAB_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct pd_elf {
	ElfW(Addr) base;
	const ElfW(Sym) * symbol;
	const char *string;
	const uint32_t *hash; /* DT_GNU_HASH */
	const ElfW(Half) * version;
	const char *soname; /* "" when it has none */
	bool symbolic;	    /* its calls of its own exports never leave it */
};

/* False when the object has not all that it takes. */
bool pd_elf_read(struct pd_elf *object, ElfW(Addr) base, const ElfW(Dyn) * dynamic);

/* A function that the object itself defines, in its default version; else NULL. */
void *pd_elf_find(const struct pd_elf *object, const char *name);

/* Does the object define a function of this name, in whatever version? */
bool pd_elf_defines(const struct pd_elf *object, const char *name);

bool pd_elf_same(const char *a, const char *b);

#pragma GCC visibility pop

#endif
