/* SPDX-License-Identifier: MIT */
/* Which of several definitions a call would reach without us: see definition.h. */
#define _GNU_SOURCE
#include "hook/loader/definition.h"

#include <stdint.h>
#include <string.h>

#include "hook/loader/asker.h"
#include "hook/loader/loaded.h"

/* Of a soname; a longer one is cut, as it is where it is compared. */
#define LONGEST 64
/* Sonames that one question leads through. */
#define MOST_NAMES 64u
#define MOST_FOUND 32u

struct looking {
	const char *name, *mark;
	const void *caller;
	unsigned index;
	bool behind_us, any_kind;
	/* Behind us, among those of the start: the first one, and the first with the mark. */
	void *at_start, *marked;
	void *callers; /* in the library that calls, if that was opened later */
	unsigned count;
	struct {
		char soname[LONGEST];
		void *function;
	} found[MOST_FOUND];
};

static void copy_name(char to[LONGEST], const char *from)
{
	size_t length = strnlen(from, LONGEST - 1);

	memcpy(to, from, length);
	to[length] = 0;
}

static void *definition_in(const struct pdn_elf *elf, const struct looking *l)
{
	void *function = pdn_elf_find(elf, l->name);

	return function || !l->any_kind ? function
					: pdn_elf_variable(elf, l->name, pdn_elf_hash(l->name));
}

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct looking *l = arg;
	bool at_start = pdn_was_at_start(l->index++);
	struct pdn_elf elf;
	void *function;

	(void)size;
	if (pdn_is_this_library(info->dlpi_addr)) {
		l->behind_us = true;
		return 0;
	}
	if (!pdn_library_read(info, &elf) || !(function = definition_in(&elf, l)))
		return 0;
	if (at_start) {
		if (l->behind_us && !l->at_start)
			l->at_start = function;
		if (l->behind_us && !l->marked && pdn_elf_defines(&elf, l->mark))
			l->marked = function;
		return 0;
	}
	if (pdn_is_in_library(info, l->caller))
		l->callers = function;
	if (l->count < MOST_FOUND) {
		copy_name(l->found[l->count].soname, elf.soname);
		l->found[l->count++].function = function;
	}
	return 0;
}

/* ---- in the order of what needs what --------------------------------------------------------- */

struct names {
	unsigned count;
	char list[MOST_NAMES][LONGEST];
};

static void add_name(struct names *names, const char *name)
{
	char cut[LONGEST];

	copy_name(cut, name);
	for (unsigned i = 0; i < names->count; i++)
		if (pdn_elf_same(names->list[i], cut))
			return;
	if (names->count < MOST_NAMES)
		memcpy(names->list[names->count++], cut, LONGEST);
}

/* The names that a library needs; and which library: that of an address, or of a soname. */
struct needed {
	struct names *names;
	const void *address;
	const char *soname;
	bool is_user; /* the first one that needs that soname; *its becomes its own */
	char its[LONGEST];
};

static bool needs(const struct pdn_elf *elf, const ElfW(Dyn) * dynamic, struct names *names,
		  const char *wanted)
{
	bool found = false;
	char cut[LONGEST];

	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		if (dynamic->d_tag != DT_NEEDED)
			continue;
		copy_name(cut, elf->string + dynamic->d_un.d_val);
		found |= wanted && pdn_elf_same(cut, wanted);
		if (names)
			add_name(names, cut);
	}
	return found;
}

static int look_at_needed(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct needed *n = arg;
	const ElfW(Dyn) *dynamic = pdn_dynamic_section(info);
	struct pdn_elf elf;
	char soname[LONGEST];

	(void)size;
	if (!dynamic || !pdn_library_read(info, &elf))
		return 0;
	copy_name(soname, elf.soname);
	if (n->is_user	? !needs(&elf, dynamic, NULL, n->soname)
	    : n->soname ? !pdn_elf_same(soname, n->soname)
			: !pdn_is_in_library(info, n->address))
		return 0;
	needs(&elf, dynamic, n->names, NULL);
	copy_name(n->its, soname);
	return 1;
}

/* Breadth first, as the loader searches; the names there are so far, and what follows from them. */
static void *search(const struct looking *l, struct names *names)
{
	for (unsigned i = 0; i < names->count; i++) {
		struct needed n = {.names = names, .soname = names->list[i]};

		for (unsigned found = 0; found < l->count; found++)
			if (pdn_elf_same(l->found[found].soname, names->list[i]))
				return l->found[found].function;
		pdn_each_library(look_at_needed, &n);
	}
	return NULL;
}

bool pdn_is_needed(const char *soname)
{
	char cut[LONGEST];
	struct needed n = {.soname = cut, .is_user = true};

	copy_name(cut, soname);
	return pdn_each_library(look_at_needed, &n);
}

/* A library that was loaded because another needs it is searched for in what that one needs. */
#define MOST_USERS 4

static void *by_what_is_needed(const struct looking *l)
{
	struct names names = {0};
	struct needed n = {.names = &names, .address = l->caller};
	void *function = NULL;
	char its[LONGEST];

	if (!pdn_each_library(look_at_needed, &n))
		return NULL;
	function = search(l, &names);
	for (unsigned i = 0; i < MOST_USERS && !function && n.its[0]; i++) {
		copy_name(its, n.its);
		names.count = 0;
		n = (struct needed){.names = &names, .soname = its, .is_user = true};
		if (!pdn_each_library(look_at_needed, &n))
			break;
		add_name(&names, n.its);
		function = search(l, &names);
	}
	return function;
}

static void *definition_for(struct looking *l)
{
	void *function;

	pdn_each_library(look, l);
	if (l->at_start || l->count == 0)
		return l->at_start;
	if (l->callers)
		return l->callers;
	function = l->count == 1 ? NULL : by_what_is_needed(l);
	return function ? function : l->found[0].function;
}

void *pdn_definition_for(const void *caller, const char *name, const char *mark, void **behind)
{
	struct looking l = {.name = name, .mark = mark, .caller = caller};
	void *function = definition_for(&l);

	*behind = l.marked;
	return function;
}

void *pdn_definition_of_any_kind(const void *caller, const char *name)
{
	struct looking l = {.name = name, .mark = "", .caller = caller, .any_kind = true};

	return definition_for(&l);
}

void *pdn_only_definition(const char *name)
{
	struct looking l = {.name = name, .mark = ""};

	pdn_each_library(look, &l);
	return l.count == 1 && !l.at_start ? l.found[0].function : NULL;
}

static int defines(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct pdn_elf elf;

	(void)size;
	return !pdn_is_this_library(info->dlpi_addr) && pdn_library_read(info, &elf) &&
	       pdn_elf_defines(&elf, arg);
}

bool pdn_is_defined_elsewhere(const char *name)
{
	return pdn_each_library(defines, (void *)name);
}

/* ---- answers --------------------------------------------------------------------------------- */

#define ANSWERS 64u

/* The key is stored last, and 0 while the answer changes. */
static struct {
	uintptr_t key;
	void *answer;
} answers[ANSWERS];

static uintptr_t key_of(const void *caller, unsigned number)
{
	return (uintptr_t)caller * 1024 + number + 1;
}

static unsigned place_of(uintptr_t key)
{
	return (unsigned)(key * 0x9e3779b97f4a7c15u >> 58);
}

bool pdn_answer_known(const void *caller, unsigned number, void **answer)
{
	uintptr_t key = key_of(caller, number);
	unsigned place = place_of(key);

	if (__atomic_load_n(&answers[place].key, __ATOMIC_ACQUIRE) != key)
		return false;
	*answer = __atomic_load_n(&answers[place].answer, __ATOMIC_ACQUIRE);
	/* Relaxed: ordered by the acquire; it has not changed since the first look. */
	return __atomic_load_n(&answers[place].key, __ATOMIC_RELAXED) == key;
}

void pdn_answer_keep(const void *caller, unsigned number, void *answer)
{
	uintptr_t key = key_of(caller, number);
	unsigned place = place_of(key);

	__atomic_store_n(&answers[place].key, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&answers[place].answer, answer, __ATOMIC_RELEASE);
	__atomic_store_n(&answers[place].key, key, __ATOMIC_RELEASE);
}

void pdn_answers_forget(void)
{
	for (unsigned i = 0; i < ANSWERS; i++)
		__atomic_store_n(&answers[i].key, 0, __ATOMIC_RELAXED);
}
