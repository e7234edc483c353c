/* SPDX-License-Identifier: MIT */
/* Replacing what a loaded library calls, in its table of bound functions. */
#define _GNU_SOURCE
#include "hook/loader/slots.h"

#include <elf.h>
#include <stdint.h>
#include <sys/mman.h>

#include "cache/base/address_space.h"
#include "cache/base/lock.h"
#include "cache/base/system.h"
#include "cache/base/visible.h"
#include "hook/hook.h"
#include "hook/loader/loaded.h"
#include "hook/loader/symtab.h"

struct replacing {
	const struct pdn_library *library;
	const char *name;
	void *function, **before;
	struct pdn_sealed sealed;
	bool done;
};

/* ---- what a slot that is not bound yet leads to -------------------------------------------- */

struct definition {
	const char *name;
	void *found;
};

/* The first one in the order of loading, as the loader would find it. */
static int look_for_definition(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct definition *wanted = arg;
	struct pdn_elf elf; /* complete or not */

	(void)size;
	pdn_library_read(info, &elf);
	wanted->found = pdn_elf_find(&elf, wanted->name);
	return wanted->found != NULL;
}

/* Its first call lets the loader bind it, which would undo the replacement. */
static void *bound(const struct replacing *r, void *function)
{
	struct definition wanted = {.name = r->name};

	if (!pdn_library_has(r->library, function))
		return function;
	pdn_each_library(look_for_definition, &wanted);
	return wanted.found;
}

/* ---- one slot ------------------------------------------------------------------------------ */

PDN_STARTS struct pdn_sealed pdn_slots_sealed(const struct dl_phdr_info *info)
{
	struct pdn_sealed sealed = {0};

	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_GNU_RELRO)
			continue;
		sealed.begin = at & -pdn_page_size();
		sealed.end = (at + segment->p_memsz) & -pdn_page_size();
	}
	return sealed;
}

PDN_STARTS static bool protect(uintptr_t slot, int protection)
{
	uintptr_t page = slot & -pdn_page_size();

	return pdn_sys(SYS_mprotect, page, pdn_page_size(), protection) == 0;
}

PDN_STARTS bool pdn_slot_store(void **slot, void *function, struct pdn_sealed sealed)
{
	bool is_sealed = (uintptr_t)slot - sealed.begin < sealed.end - sealed.begin;

	if (is_sealed && !protect((uintptr_t)slot, PROT_READ | PROT_WRITE))
		return false;
	__atomic_store_n(slot, function, __ATOMIC_RELEASE);
	if (is_sealed)
		protect((uintptr_t)slot, PROT_READ);
	return true;
}

/*
 * Who comes by the slot finds *before. The lock: another thread that does the same must not seal
 * the page before this one has stored. The loader is not called under it.
 */
static bool store(const struct replacing *r, void **slot)
{
	bool ok;

	pdn_lock_one(PDN_LOCK_SLOTS);
	ok = pdn_slot_store(slot, r->function, r->sealed);
	pdn_unlock_one(PDN_LOCK_SLOTS);
	return ok;
}

static bool replace_one(void **slot, enum pdn_slot_kind kind, uint64_t addend, void *arg)
{
	struct replacing *r = arg;
	void *function = __atomic_load_n(slot, __ATOMIC_RELAXED);

	(void)addend;
	if (kind == PDN_SLOT_SUM)
		return false;
	if (function != r->function) {
		function = bound(r, function);
		if (!function)
			return false;
		__atomic_store_n(r->before, function, __ATOMIC_RELAXED);
		if (!store(r, slot))
			return false;
	}
	r->done = true;
	return false;
}

/* ---- all slots ----------------------------------------------------------------------------- */

struct relocations {
	const ElfW(Rela) * at;
	size_t bytes;
};

PDN_STARTS static bool is_slot(unsigned type, enum pdn_slot_kind *kind)
{
	switch (type) {
#if defined(__x86_64__)
	case R_X86_64_JUMP_SLOT:
		*kind = PDN_SLOT_CALL;
		return true;
	case R_X86_64_GLOB_DAT:
		*kind = PDN_SLOT_ADDRESS;
		return true;
	case R_X86_64_64:
		*kind = PDN_SLOT_SUM;
		return true;
#elif defined(__aarch64__)
	case R_AARCH64_JUMP_SLOT:
		*kind = PDN_SLOT_CALL;
		return true;
	case R_AARCH64_GLOB_DAT:
		*kind = PDN_SLOT_ADDRESS;
		return true;
	case R_AARCH64_ABS64:
		*kind = PDN_SLOT_SUM;
		return true;
#endif
	}
	return false;
}

PDN_STARTS static bool each_in(const struct relocations *relocations, const struct pdn_elf *elf,
			       const char *name, pdn_look_at_slot *look, void *arg)
{
	for (size_t i = 0; relocations->at && i < relocations->bytes / sizeof(*relocations->at);
	     i++) {
		const ElfW(Rela) *relocation = &relocations->at[i];
		uint64_t number = ELF64_R_SYM(relocation->r_info);
		enum pdn_slot_kind kind;

		if (number && is_slot(ELF64_R_TYPE(relocation->r_info), &kind) &&
		    pdn_elf_same(elf->string + elf->symbol[number].st_name, name) &&
		    look((void **)(elf->base + relocation->r_offset), kind,
			 (uint64_t)relocation->r_addend, arg))
			return true;
	}
	return false;
}

/* Addresses in a dynamic section are relocated, or not: the library is at its base or behind. */
PDN_STARTS static const ElfW(Rela) * table_at(const struct pdn_elf *elf, ElfW(Addr) address)
{
	return (const void *)(address < elf->base ? elf->base + address : address);
}

PDN_STARTS bool pdn_slots_each(const struct pdn_elf *elf, const ElfW(Dyn) * dynamic,
			       const char *name, pdn_look_at_slot *look, void *arg)
{
	struct relocations linkage = {0}, others = {0};

	for (; dynamic->d_tag != DT_NULL; dynamic++)
		switch (dynamic->d_tag) {
		case DT_JMPREL:
			linkage.at = table_at(elf, dynamic->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			linkage.bytes = dynamic->d_un.d_val;
			break;
		case DT_RELA:
			others.at = table_at(elf, dynamic->d_un.d_ptr);
			break;
		case DT_RELASZ:
			others.bytes = dynamic->d_un.d_val;
			break;
		}
	return each_in(&others, elf, name, look, arg) || each_in(&linkage, elf, name, look, arg);
}

static int replace_if_it_is_the_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Dyn) *dynamic = pdn_dynamic_section(info);
	struct replacing *r = arg;

	(void)size;
	if (!dynamic || info->dlpi_addr != PDN_OF_LIBRARY(r->library, elf.base))
		return 0;
	r->sealed = pdn_slots_sealed(info);
	pdn_slots_each(&r->library->elf, dynamic, r->name, replace_one, r);
	return 1;
}

bool pdn_slots_replace(const struct pdn_library *library, const char *name, void *function,
		       void **before)
{
	struct replacing r = {
		.library = library, .name = name, .function = function, .before = before};

	if (pdn_library_known(library))
		pdn_each_library(replace_if_it_is_the_one, &r);
	return r.done;
}
