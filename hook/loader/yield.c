/* SPDX-License-Identifier: MIT */
/* Our exported name gives way to a library's variable of the same name: see yield.h. */
#define _GNU_SOURCE
#include "hook/loader/yield.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "cache/base/address_space.h"
#include "cache/base/system.h"
#include "cache/base/visible.h"
#include "hook/hook.h"
#include "hook/loader/asker.h"
#include "hook/loader/definition.h"
#include "hook/loader/loaded.h"
#include "hook/loader/slots.h"
#include "hook/loader/symtab.h"

/* ---- our table of symbols ------------------------------------------------------------------ */

/* The symbols that we define: the last ones, those that are in the table of hashes. */
struct ours {
	struct pdn_elf elf;
	const ElfW(Sym) * symbol;
	unsigned count;
};

PDN_STARTS static void read_ours(struct ours *ours)
{
	size_t count;

	pdn_elf_read(&ours->elf, pdn_our_base(), _DYNAMIC);
	ours->symbol = &ours->elf.symbol[ours->elf.hash[1]];
	/* The strings follow the symbols, as linkers have it. */
	count = (size_t)(ours->elf.string - (const char *)ours->symbol) / sizeof(*ours->symbol);
	ours->count = count < PDN_YIELD_MOST ? (unsigned)count : PDN_YIELD_MOST;
}

/* NULL: that one does not stand in for another library's. */
PDN_STARTS static const char *name_of(const struct ours *ours, unsigned index)
{
	const char *name = ours->elf.string + ours->symbol[index].st_name;

	return ELF64_ST_TYPE(ours->symbol[index].st_info) == STT_FUNC &&
			       (pdn_elf_is_cuda_name(name) || pdn_elf_is_verb_name(name))
		       ? name
		       : NULL;
}

/* No code shares its pages (see the Makefile). false: a system call filter refuses that. */
PDN_STARTS static bool protect_table(const struct ours *ours, int protection)
{
	uintptr_t begin = (uintptr_t)ours->symbol & -pdn_page_size();

	return pdn_sys(SYS_mprotect, begin, (uintptr_t)ours->elf.string - begin, protection) == 0;
}

static ElfW(Sym) * writable(const struct ours *ours, unsigned index)
{
	return (ElfW(Sym) *)(uintptr_t)&ours->symbol[index];
}

/* ---- at the start -------------------------------------------------------------------------- */

struct change {
	uintptr_t from, to;
	struct pdn_sealed sealed;
};

PDN_STARTS static bool change_slot(void **slot, enum pdn_slot_kind kind, uint64_t addend, void *arg)
{
	const struct change *change = arg;
	uint64_t more = kind == PDN_SLOT_SUM ? addend : 0;

	if ((uintptr_t)*slot == change->from + more)
		pdn_slot_store(slot, (void *)(change->to + more), change->sealed);
	return false;
}

/* The program itself is relocated last, and so is bound without us. */
PDN_STARTS static void change_slots(const char *name, struct change *change)
{
	for (const struct link_map *map = _r_debug.r_map->l_next; map; map = map->l_next) {
		struct dl_phdr_info info = pdn_library_headers(map);
		struct pdn_elf elf;

		if (pdn_is_this_library(map->l_addr) || !pdn_elf_read(&elf, map->l_addr, map->l_ld))
			continue;
		change->sealed = pdn_slots_sealed(&info);
		pdn_slots_each(&elf, map->l_ld, name, change_slot, change);
	}
}

/* Does a library between us and this one define it as a function? */
PDN_STARTS static bool is_function_before(const char *name, const struct link_map *end)
{
	bool behind_us = false;

	for (const struct link_map *map = _r_debug.r_map; map && map != end; map = map->l_next) {
		struct pdn_elf elf; /* complete or not */

		pdn_elf_read(&elf, map->l_addr, map->l_ld);
		if (behind_us && pdn_elf_defines(&elf, name))
			return true;
		behind_us |= pdn_is_this_library(map->l_addr);
	}
	return false;
}

PDN_STARTS static void yield(const struct ours *ours, unsigned index, const void *variable)
{
	const char *name = name_of(ours, index);
	struct change change = {.from = ours->elf.base + ours->symbol[index].st_value,
				.to = (uintptr_t)variable};

	if (!protect_table(ours, PROT_READ | PROT_WRITE))
		return;
	change_slots(name, &change);
	writable(ours, index)->st_name = 0;
	protect_table(ours, PROT_READ);
}

PDN_STARTS static void yield_to(const struct ours *ours, const uint32_t *hashes,
				const struct link_map *map)
{
	struct pdn_elf elf; /* complete or not */

	pdn_elf_read(&elf, map->l_addr, map->l_ld);
	for (unsigned i = 0; i < ours->count; i++) {
		const char *name = hashes[i] ? name_of(ours, i) : NULL;
		void *variable = name ? pdn_elf_variable(&elf, name, hashes[i]) : NULL;

		if (variable && !is_function_before(name, map))
			yield(ours, i, variable);
	}
}

/* Libraries before us are bound to themselves, and not to us. */
PDN_STARTS static void yield_at_start(void)
{
	uint32_t hashes[PDN_YIELD_MOST]; /* 0: not a name that may yield */
	const struct link_map *map = _r_debug.r_map;
	struct ours ours;

	read_ours(&ours);
	for (unsigned i = 0; i < ours.count; i++)
		hashes[i] = name_of(&ours, i) ? pdn_elf_hash(name_of(&ours, i)) : 0;
	while (map && !pdn_is_this_library(map->l_addr))
		map = map->l_next;
	while (map && (map = map->l_next))
		yield_to(&ours, hashes, map);
}

/*
 * The loader calls this when it has relocated the rest of us, and all libraries behind us; no
 * constructor has run. Nothing here calls the C library.
 */
static int nothing(void)
{
	return 0;
}

PDN_STARTS __attribute__((used)) static int (*when_relocated(void))(void)
{
	yield_at_start();
	return nothing;
}

int pdn_yield_is_there(void) __attribute__((ifunc("when_relocated"), visibility("hidden")));

/* ---- later --------------------------------------------------------------------------------- */

/* Where our functions are, by their numbers in the table. */
static uintptr_t functions[PDN_YIELD_MOST];

extern const char pdn_yield_code[] __attribute__((visibility("hidden")));

/* Another library's dlopen comes first, and ours need not be called. */
static bool opens_unseen;

/* This thread's latest call of dlopen(): here or further down the stack it binds what it loads. */
static __thread const void *opened_at __attribute__((tls_model("initial-exec")));

struct asked {
	const char *name;
	uint32_t hash;
	const void *variable, *asker;
};

/* The one at that address, or any. */
static int has_variable(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct asked *asked = arg;
	struct pdn_elf elf;
	void *variable = pdn_library_read(info, &elf)
				 ? pdn_elf_variable(&elf, asked->name, asked->hash)
				 : NULL;

	(void)size;
	return variable && (!asked->variable || variable == asked->variable);
}

static bool is_empty(void **slot, enum pdn_slot_kind kind, uint64_t addend, void *arg)
{
	(void)addend;
	(void)arg;
	return kind != PDN_SLOT_CALL && !*slot;
}

/* The address of the name is still missing in a library that is just being relocated. */
static int lacks_it(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Dyn) *dynamic = pdn_dynamic_section(info);
	struct asked *asked = arg;
	struct pdn_elf elf;

	(void)size;
	if (!pdn_library_read(info, &elf) ||
	    !pdn_slots_each(&elf, dynamic, asked->name, is_empty, NULL))
		return 0;
	asked->asker = dynamic;
	return 1;
}

/* NULL: our function it is. Where a call is bound, our function will look who makes it. */
static const void *variable_for_asker(const char *name)
{
	struct asked asked = {.name = name, .hash = pdn_elf_hash(name)};

	if (!pdn_each_library(has_variable, &asked) || !pdn_each_library(lacks_it, &asked))
		return NULL;
	asked.variable = pdn_definition_of_any_kind(asked.asker, name);
	return asked.variable && pdn_each_library(has_variable, &asked) ? asked.variable : NULL;
}

__attribute__((visibility("hidden"))) const void *pdn_yield_definition(unsigned index);
const void *pdn_yield_definition(unsigned index)
{
	const void *here = __builtin_frame_address(0), *variable = NULL;
	const char *name;
	struct ours ours;

	read_ours(&ours);
	name = ours.elf.string + ours.symbol[index].st_name;
	if (opens_unseen || (uintptr_t)here < (uintptr_t)opened_at)
		variable = variable_for_asker(name);
	if (variable)
		return variable;
	pdn_is_being_bound(name);
	return (const void *)functions[index];
}

/*
 * Another thread may be binding such a name just now. Nothing keeps it out: it would go wrong if it
 * read the value and the kind of this symbol between the two stores here.
 */
static void make_indirect(const struct ours *ours)
{
	for (unsigned i = 0; i < ours->count; i++)
		if (name_of(ours, i))
			functions[i] = ours->elf.base + ours->symbol[i].st_value;
	if (!protect_table(ours, PROT_READ | PROT_WRITE))
		return;
	for (unsigned i = 0; i < ours->count; i++) {
		ElfW(Sym) *symbol = writable(ours, i);
		unsigned char info = ELF64_ST_INFO(ELF64_ST_BIND(symbol->st_info), STT_GNU_IFUNC);

		if (!functions[i])
			continue;
		__atomic_store_n(&symbol->st_value,
				 (uintptr_t)&pdn_yield_code[(size_t)i * PDN_YIELD_SIZE] -
					 ours->elf.base,
				 __ATOMIC_RELEASE);
		__atomic_store_n(&symbol->st_info, info, __ATOMIC_RELEASE);
	}
	protect_table(ours, PROT_READ);
}

static void make_indirect_once(void)
{
	static bool done;
	struct ours ours;

	if (__atomic_load_n(&done, __ATOMIC_RELAXED) ||
	    __atomic_exchange_n(&done, true, __ATOMIC_RELAXED))
		return;
	read_ours(&ours);
	make_indirect(&ours);
	pdn_yield_is_there();
}

PDN_STARTS void pdn_yield_at_load(void)
{
	static PDN_AT_LOAD char a_call[] = "dlopen";

	/* Nothing is bound to us where another copy of pindown comes first. */
	if (pdn_is_first_definition(a_call) || pdn_library_before_us("pindown_get", a_call))
		return;
	opens_unseen = true;
	make_indirect_once();
}

void pdn_yield_to_opened(const void *frame)
{
	opened_at = frame;
	make_indirect_once();
}
