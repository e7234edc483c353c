/* SPDX-License-Identifier: MIT */
/*
 * A library's slots: the addresses of other libraries' functions and variables, as the loader has
 * bound them. Replacing one catches the calls of this library alone, also where the program defines
 * the function, or another library interposes it.
 */
#ifndef PDN_SLOTS_H
#define PDN_SLOTS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "hook/loader/library.h"
#include "hook/loader/symtab.h"

#pragma GCC visibility push(hidden)

/* A call may be bound only when it is made; until then its slot leads into its own library. */
enum pdn_slot_kind {
	PDN_SLOT_CALL,
	PDN_SLOT_ADDRESS, /* of a symbol */
	PDN_SLOT_SUM,	  /* a symbol's address and `addend`: in data of the library's */
};

/*
 * Look at each slot of this name, until look() returns true, which is returned. Nothing of the C
 * library is called.
 */
typedef bool pdn_look_at_slot(void **slot, enum pdn_slot_kind kind, uint64_t addend, void *arg);
bool pdn_slots_each(const struct pdn_elf *elf, const ElfW(Dyn) * dynamic, const char *name,
		    pdn_look_at_slot *look, void *arg);

/* The pages of a library that the loader makes read-only when it has relocated it (RELRO). */
struct pdn_sealed {
	uintptr_t begin, end;
};
struct pdn_sealed pdn_slots_sealed(const struct dl_phdr_info *info);

/* Stores in one, with release. false: its page can't be made writable. Not for two threads. */
bool pdn_slot_store(void **slot, void *function, struct pdn_sealed sealed);

/*
 * From now on the library's calls by this name come to `function`. *before: what they came to, for
 * which `function` may be waiting already, stored before the first slot. Doing it twice changes
 * nothing. false: the library has no such slot, or it can't be written.
 */
bool pdn_slots_replace(const struct pdn_library *library, const char *name, void *function,
		       void **before);

#pragma GCC visibility pop

#endif
