/* SPDX-License-Identifier: MIT */
/*
 * Finding a function in a loaded library by its symbol table: without the loader's lock, which
 * another thread may hold while it waits for this one (in a library's constructor), without malloc,
 * and without changing what dlerror() returns to the program.
 *
 * Nothing here calls a function of the C library, and symtab.c is never instrumented: see loaded.c.
 */
#ifndef PDN_SYMTAB_H
#define PDN_SYMTAB_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct pdn_elf {
	ElfW(Addr) base;
	const ElfW(Dyn) * dynamic;
	const ElfW(Sym) * symbol;
	const char *string;
	const uint32_t *hash;	  /* DT_GNU_HASH, or NULL */
	const uint32_t *old_hash; /* DT_HASH, which is used without the other one */
	const ElfW(Half) * version;
	const char *soname; /* "" when it has none */
	bool symbolic;	    /* linked with -Bsymbolic: its calls of its own exports stay inside */
};

/* False when the library lacks a table that is needed. */
bool pdn_elf_read(struct pdn_elf *elf, ElfW(Addr) base, const ElfW(Dyn) * dynamic);

/* What the dynamic section says for a tag, among `count` entries of it; 0: nothing. */
ElfW(Addr) pdn_elf_value(const ElfW(Dyn) * dynamic, size_t count, ElfW(Sxword) tag);

/* Where a table is whose address the dynamic section has. */
const void *pdn_elf_table(const struct pdn_elf *elf, ElfW(Addr) pointer);

/* A function that the library itself defines, in its default version; else NULL. */
void *pdn_elf_find(const struct pdn_elf *elf, const char *name);

/* Does the library define a function of this name, in any version? */
bool pdn_elf_defines(const struct pdn_elf *elf, const char *name);

/* The same, or a variable of this name. `hash`: the name's. */
void *pdn_elf_any(const struct pdn_elf *elf, const char *name, uint32_t hash, bool *variable);

uint32_t pdn_elf_hash(const char *name);

/* Do the driver's functions, or the verbs, have such names? */
bool pdn_elf_is_cuda_name(const char *name);
bool pdn_elf_is_verb_name(const char *name);

bool pdn_elf_same(const char *a, const char *b);

#pragma GCC visibility pop

#endif
