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
#include "hook/hook.h"
#include "hook/loader/loaded.h"
#include "hook/loader/symtab.h"

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#endif

struct replacing {
	const struct pdn_library *library;
	const char *name;
	void *function, **before;
	uintptr_t sealed, sealed_end; /* what the loader has made read-only */
	bool done;
};

struct relocations {
	const ElfW(Rela) * at;
	size_t bytes;
};

/* ---- what a slot that is not bound yet leads to -------------------------------------------- */

struct definition {
	const char *name;
	void *found;
};

/* NULL: the library has none. */
static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

/* The first one in the order of loading, as the loader would find it. */
static int look_for_definition(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct definition *wanted = arg;
	struct pdn_elf elf;

	(void)size;
	if (pdn_elf_read(&elf, info->dlpi_addr, dynamic_of(info)))
		wanted->found = pdn_elf_find(&elf, wanted->name);
	return wanted->found != NULL;
}

/*
 * A slot leads into its own library until its first call, which lets the loader bind it. That would
 * undo the replacement, so such an address is never called.
 */
static void *bound(const struct replacing *r, void *function)
{
	struct definition wanted = {.name = r->name};

	if (!pdn_library_has(r->library, function))
		return function;
	pdn_each_library(look_for_definition, &wanted);
	return wanted.found;
}

/* ---- one slot ------------------------------------------------------------------------------ */

static bool protect(uintptr_t slot, int protection)
{
	uintptr_t page = slot & -pdn_page_size();

	return pdn_sys(SYS_mprotect, page, pdn_page_size(), protection) == 0;
}

/*
 * Release: who comes by the slot finds *before. The lock: another thread that does the same must
 * not seal the page before this one has stored. The loader is not called under it.
 */
static bool store(const struct replacing *r, void **slot)
{
	bool sealed = (uintptr_t)slot - r->sealed < r->sealed_end - r->sealed, ok;

	pdn_lock_one(PDN_LOCK_SLOTS);
	ok = !sealed || protect((uintptr_t)slot, PROT_READ | PROT_WRITE);
	if (ok)
		__atomic_store_n(slot, r->function, __ATOMIC_RELEASE);
	if (ok && sealed)
		protect((uintptr_t)slot, PROT_READ);
	pdn_unlock_one(PDN_LOCK_SLOTS);
	return ok;
}

static void replace_one(struct replacing *r, void **slot)
{
	void *function = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (function != r->function) {
		function = bound(r, function);
		if (!function)
			return;
		__atomic_store_n(r->before, function, __ATOMIC_RELAXED);
		if (!store(r, slot))
			return;
	}
	r->done = true;
}

/* ---- all slots ----------------------------------------------------------------------------- */

static void replace_in(struct replacing *r, const struct relocations *relocations)
{
	const struct pdn_elf *elf = &r->library->elf;

	for (size_t i = 0; i < relocations->bytes / sizeof(*relocations->at); i++) {
		const ElfW(Rela) *relocation = &relocations->at[i];
		const ElfW(Sym) * symbol;

		if (!IS_SLOT(ELF64_R_TYPE(relocation->r_info)))
			continue;
		symbol = &elf->symbol[ELF64_R_SYM(relocation->r_info)];
		if (pdn_elf_same(elf->string + symbol->st_name, r->name))
			replace_one(r, (void **)(elf->base + relocation->r_offset));
	}
}

/* Addresses in a dynamic section are relocated, or not: the library is at its base or behind. */
static const ElfW(Rela) * table_at(const struct pdn_library *library, ElfW(Addr) address)
{
	return (const void *)(address < library->begin ? library->elf.base + address : address);
}

static void replace_by(struct replacing *r, const ElfW(Dyn) * dynamic)
{
	struct relocations linkage = {0}, others = {0};

	for (; dynamic->d_tag != DT_NULL; dynamic++)
		switch (dynamic->d_tag) {
		case DT_JMPREL:
			linkage.at = table_at(r->library, dynamic->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			linkage.bytes = dynamic->d_un.d_val;
			break;
		case DT_RELA:
			others.at = table_at(r->library, dynamic->d_un.d_ptr);
			break;
		case DT_RELASZ:
			others.bytes = dynamic->d_un.d_val;
			break;
		}
	if (linkage.at)
		replace_in(r, &linkage);
	if (others.at)
		replace_in(r, &others);
}

static int replace_if_it_is_the_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct replacing *r = arg;
	const ElfW(Dyn) *dynamic = dynamic_of(info);

	(void)size;
	if (!dynamic || info->dlpi_addr != r->library->elf.base)
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_GNU_RELRO)
			continue;
		r->sealed = at & -pdn_page_size();
		r->sealed_end = (at + segment->p_memsz) & -pdn_page_size();
	}
	replace_by(r, dynamic);
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
