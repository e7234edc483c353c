/* SPDX-License-Identifier: MIT */
/* Our exported name gives way to a library's variable of the same name: see yield.h. */
#define _GNU_SOURCE
#include "hook/loader/yield.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/process/system.h"
#include "cache/base/visible.h"
#include "hook/hook.h"
#include "hook/loader/loaded/scope.h"
#include "hook/loader/loaded/loaded.h"
#include "hook/loader/loaded/slots.h"
#include "hook/loader/loaded/symtab.h"

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
	struct pdn_loaded library;
};

PDN_STARTS static bool change_slot(struct pdn_slot slot, void *arg)
{
	const struct change *change = arg;

	if ((uintptr_t)*slot.at == change->from + slot.addend)
		pdn_slot_store(&change->library, slot.at, (void *)(change->to + slot.addend));
	return false;
}

/* The program itself is relocated last, and so is bound without us. */
PDN_STARTS static void change_slots(const char *name, struct change *change)
{
	for (const struct link_map *map = _r_debug.r_map->l_next; map; map = map->l_next) {
		change->library = pdn_loaded_at(map);
		if (change->library.readable && !change->library.is_ours)
			pdn_slots_each(&change->library.elf, name, change_slot, change);
	}
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

/*
 * The first definition behind us decides, whether it is a variable or a function. Libraries before
 * us are bound to themselves, and not to us.
 */
PDN_STARTS static void yield_at_start(void)
{
	uint32_t hashes[PDN_YIELD_MOST]; /* 0: decided, or not a name that may yield */
	const struct link_map *map = _r_debug.r_map;
	struct ours ours;

	read_ours(&ours);
	for (unsigned i = 0; i < ours.count; i++)
		hashes[i] = name_of(&ours, i) ? pdn_elf_hash(name_of(&ours, i)) : 0;
	while (map && !pdn_is_this_library(map->l_addr))
		map = map->l_next;
	while (map && (map = map->l_next)) {
		struct pdn_elf elf;

		if (!pdn_elf_read(&elf, map->l_addr, map->l_ld))
			continue;
		for (unsigned i = 0; i < ours.count; i++) {
			bool is_variable;
			void *at = hashes[i] ? pdn_elf_any(&elf, name_of(&ours, i), hashes[i],
							   &is_variable)
					     : NULL;

			if (!at)
				continue;
			hashes[i] = 0;
			if (is_variable)
				yield(&ours, i, at);
		}
	}
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
	const void *variable; /* this one, or any */
};

static bool has_variable(const struct pdn_loaded *library, void *arg)
{
	const struct asked *asked = arg;
	bool is_variable;
	void *at = library->readable
			   ? pdn_elf_any(&library->elf, asked->name, asked->hash, &is_variable)
			   : NULL;

	return at && is_variable && (!asked->variable || at == asked->variable);
}

static bool is_empty(struct pdn_slot slot, void *arg)
{
	(void)arg;
	return slot.kind != PDN_SLOT_CALL && !*slot.at;
}

/* The address of the name is still missing in a library that is just being relocated. */
static bool lacks_it(const struct pdn_loaded *library, void *name)
{
	return library->readable && pdn_slots_each(&library->elf, name, is_empty, NULL);
}

/* NULL: our function is used. A call needs no variable: our function finds out who makes it. */
static const void *variable_for_asker(const char *name)
{
	struct asked asked = {.name = name, .hash = pdn_elf_hash(name)};
	struct pdn_loaded library;

	if (!pdn_find_loaded(&library, has_variable, &asked) ||
	    !pdn_find_loaded(&library, lacks_it, (void *)name))
		return NULL;
	asked.variable = pdn_definition_of_any_kind(library.elf.dynamic, name);
	return asked.variable && pdn_find_loaded(&library, has_variable, &asked) ? asked.variable
										 : NULL;
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
 * Once. Another thread may be binding such a name just now. Nothing keeps it out: it would go wrong
 * if it read the value and the kind of this symbol between the two stores here.
 */
static void make_indirect(void)
{
	static bool done;
	struct ours ours;

	if (__atomic_load_n(&done, __ATOMIC_RELAXED) ||
	    __atomic_exchange_n(&done, true, __ATOMIC_RELAXED))
		return;
	pdn_yield_is_there();
	read_ours(&ours);
	if (!protect_table(&ours, PROT_READ | PROT_WRITE))
		return;
	for (unsigned i = 0; i < ours.count; i++) {
		ElfW(Sym) *symbol = writable(&ours, i);
		unsigned char info = ELF64_ST_INFO(ELF64_ST_BIND(symbol->st_info), STT_GNU_IFUNC);
		uintptr_t code = (uintptr_t)&pdn_yield_code[(size_t)i * PDN_YIELD_SIZE];

		if (!name_of(&ours, i))
			continue;
		functions[i] = ours.elf.base + symbol->st_value;
		__atomic_store_n(&symbol->st_value, code - ours.elf.base, __ATOMIC_RELEASE);
		__atomic_store_n(&symbol->st_info, info, __ATOMIC_RELEASE);
	}
	protect_table(&ours, PROT_READ);
}

PDN_STARTS void pdn_yield_at_load(void)
{
	static PDN_AT_LOAD char a_call[] = "dlopen";

	/* Nothing is bound to us where another copy of pindown comes first. */
	if (pdn_is_first_definition(a_call) || pdn_library_before_us("pindown_get", a_call))
		return;
	opens_unseen = true;
	make_indirect();
}

void pdn_yield_to_opened(const void *frame)
{
	opened_at = frame;
	make_indirect();
}
