/* SPDX-License-Identifier: MIT */
/* Replacing what a loaded library calls, in its table of bound functions. */
#define _GNU_SOURCE
#include "hook/loader/loaded/slots.h"

#include <sys/mman.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/thread/lock.h"
#include "cache/base/process/system.h"
#include "cache/base/visible.h"

/* ---- all slots of a name --------------------------------------------------------------------- */

PDN_STARTS static bool is_slot(unsigned kind)
{
	return kind == PDN_SLOT_CALL || kind == PDN_SLOT_ADDRESS || kind == PDN_SLOT_SUM;
}

PDN_STARTS static bool each_in(const struct pdn_elf *elf, ElfW(Addr) table, size_t bytes,
			       const char *name, pdn_look_at_slot *look, void *arg)
{
	const ElfW(Rela) *relocation = pdn_elf_table(elf, table);

	for (size_t i = 0; table && i < bytes / sizeof(*relocation); i++, relocation++) {
		uint64_t number = ELF64_R_SYM(relocation->r_info);
		struct pdn_slot slot = {
			.at = (void **)(elf->base + relocation->r_offset),
			.kind = ELF64_R_TYPE(relocation->r_info),
			.addend = (uint64_t)relocation->r_addend,
		};

		if (number && is_slot(slot.kind) &&
		    pdn_elf_same(elf->string + elf->symbol[number].st_name, name) &&
		    look(slot, arg))
			return true;
	}
	return false;
}

PDN_STARTS static ElfW(Addr) value(const struct pdn_elf *elf, ElfW(Sxword) tag)
{
	return pdn_elf_value(elf->dynamic, SIZE_MAX, tag);
}

PDN_STARTS bool pdn_slots_each(const struct pdn_elf *elf, const char *name, pdn_look_at_slot *look,
			       void *arg)
{
	return each_in(elf, value(elf, DT_RELA), value(elf, DT_RELASZ), name, look, arg) ||
	       each_in(elf, value(elf, DT_JMPREL), value(elf, DT_PLTRELSZ), name, look, arg);
}

/* ---- one slot ------------------------------------------------------------------------------- */

PDN_STARTS static bool protect(uintptr_t slot, int protection)
{
	uintptr_t page = slot & -pdn_page_size();

	return pdn_sys(SYS_mprotect, page, pdn_page_size(), protection) == 0;
}

PDN_STARTS static bool is_sealed(const struct pdn_loaded *library, uintptr_t slot)
{
	uintptr_t whole_pages = -pdn_page_size();

	for (unsigned i = 0; i < library->count; i++) {
		const ElfW(Phdr) *segment = &library->segments[i];
		uintptr_t begin = library->elf.base + segment->p_vaddr;

		if (segment->p_type == PT_GNU_RELRO && slot >= (begin & whole_pages) &&
		    slot < ((begin + segment->p_memsz) & whole_pages))
			return true;
	}
	return false;
}

PDN_STARTS bool pdn_slot_store(const struct pdn_loaded *library, void **slot, void *value)
{
	bool sealed = is_sealed(library, (uintptr_t)slot);

	if (sealed && !protect((uintptr_t)slot, PROT_READ | PROT_WRITE))
		return false;
	__atomic_store_n(slot, value, __ATOMIC_RELEASE);
	if (sealed)
		protect((uintptr_t)slot, PROT_READ);
	return true;
}

/* ---- replacing ------------------------------------------------------------------------------- */

struct replacing {
	struct pdn_loaded library;
	const char *name;
	void *function, **before;
	bool done;
};

static bool defines(const struct pdn_loaded *library, void *name)
{
	return pdn_elf_find(&library->elf, name);
}

/*
 * What the slot leads to. Its first call would let the loader bind it, which would undo the
 * replacement: so it is bound here as the loader would do it, to the first definition in the order
 * of loading.
 */
static void *bound(const struct replacing *r, void *function)
{
	struct pdn_loaded definer;

	if (!pdn_has_address(&r->library, function))
		return function;
	return pdn_find_loaded(&definer, defines, (void *)r->name)
		       ? pdn_elf_find(&definer.elf, r->name)
		       : NULL;
}

/*
 * Who comes by the slot finds *before. The lock: another thread that does the same must not seal
 * the page before this one has stored. The loader is not called under it.
 */
static bool replace_one(struct pdn_slot slot, void *arg)
{
	struct replacing *r = arg;
	void *function = __atomic_load_n(slot.at, __ATOMIC_RELAXED);

	if (slot.kind == PDN_SLOT_SUM)
		return false;
	if (function == r->function) {
		r->done = true;
		return false;
	}
	function = bound(r, function);
	if (!function)
		return false;
	__atomic_store_n(r->before, function, __ATOMIC_RELAXED);
	pdn_lock_one(PDN_LOCK_SLOTS);
	r->done |= pdn_slot_store(&r->library, slot.at, r->function);
	pdn_unlock_one(PDN_LOCK_SLOTS);
	return false;
}

static bool is_the_library(const struct pdn_loaded *library, void *wanted)
{
	return library->readable &&
	       library->elf.dynamic ==
		       PDN_OF_LIBRARY((const struct pdn_library *)wanted, elf.dynamic);
}

bool pdn_slots_replace(const struct pdn_library *library, const char *name, void *function,
		       void **before)
{
	struct replacing r = {.name = name, .function = function, .before = before};

	if (pdn_library_known(library) &&
	    pdn_find_loaded(&r.library, is_the_library, (void *)library))
		pdn_slots_each(&r.library.elf, name, replace_one, &r);
	return r.done;
}
