/* SPDX-License-Identifier: MIT */
/*
 * A library's slots: the addresses of other libraries' functions and variables, as the loader has
 * bound them. Replacing one catches the calls of this library alone, also where the program defines
 * the function, or another library interposes it.
 */
#ifndef PDN_SLOTS_H
#define PDN_SLOTS_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>

#include "hook/loader/library.h"
#include "hook/loader/loaded/loaded.h"

#pragma GCC visibility push(hidden)

/* A call may be bound only when it is made; until then its slot leads into its own library. */
enum pdn_slot_kind {
#if defined(__x86_64__)
	PDN_SLOT_CALL = R_X86_64_JUMP_SLOT,
	PDN_SLOT_ADDRESS = R_X86_64_GLOB_DAT, /* of a symbol */
	PDN_SLOT_SUM = R_X86_64_64,	      /* of a symbol, and `addend`, in the library's data */
#elif defined(__aarch64__)
	PDN_SLOT_CALL = R_AARCH64_JUMP_SLOT,
	PDN_SLOT_ADDRESS = R_AARCH64_GLOB_DAT,
	PDN_SLOT_SUM = R_AARCH64_ABS64,
#endif
};

struct pdn_slot {
	void **at;
	enum pdn_slot_kind kind;
	uint64_t addend;
};

/*
 * Look at each slot of this name, until look() returns true, which is returned. Nothing of the C
 * library is called.
 */
typedef bool pdn_look_at_slot(struct pdn_slot slot, void *arg);
bool pdn_slots_each(const struct pdn_elf *elf, const char *name, pdn_look_at_slot *look, void *arg);

/*
 * Stores in one, with release; also where the loader has made it read-only when it had relocated
 * the library (RELRO). false: its page can't be made writable. Not for two threads.
 */
bool pdn_slot_store(const struct pdn_loaded *library, void **slot, void *value);

/*
 * From now on the library's calls by this name come to `function`. *before: what they came to, for
 * which `function` may be waiting already, stored before the first slot. Doing it twice changes
 * nothing. false: the library has no such slot, or it can't be written.
 */
bool pdn_slots_replace(const struct pdn_library *library, const char *name, void *function,
		       void **before);

#pragma GCC visibility pop

#endif
