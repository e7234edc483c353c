/* SPDX-License-Identifier: MIT */
/* Which definition a call or a look-up leads to: see scope.h. */
#define _GNU_SOURCE
#include "hook/loader/loaded/scope.h"

#include <stdint.h>

#include "cache/base/visible.h"
#include "hook/loader/loaded/loaded.h"
#include "hook/loader/yield.h"

/* ---- the libraries of the start -------------------------------------------------------------- */

PDN_STARTS void pdn_libraries_at_start(void)
{
	pdn_loaded_at_start();
	pdn_yield_at_load();
}

PDN_STARTS static bool is_us(const struct link_map *map)
{
	return map && pdn_is_this_library(map->l_addr);
}

/* We define each name that is asked about, even if it yields (yield.h). */
PDN_STARTS static bool defines(const struct link_map *map, const char *name)
{
	struct pdn_elf elf;

	return is_us(map) ||
	       (pdn_elf_read(&elf, map->l_addr, map->l_ld) && pdn_elf_defines(&elf, name));
}

/*
 * The next definition behind a library that the program started with, or behind us (NULL). Such
 * libraries come first in the loader's list, in the order in which names are looked up, and are
 * never unloaded: they can be walked without the loader's lock.
 */
PDN_STARTS static struct link_map *next_behind(const struct link_map *library, const char *name)
{
	bool passed = false;
	unsigned index = 0;

	for (struct link_map *map = _r_debug.r_map; map && pdn_was_at_start(index++);
	     map = map->l_next) {
		if (passed && defines(map, name))
			return map;
		passed |= library ? map == library : is_us(map);
	}
	return NULL;
}

PDN_STARTS bool pdn_is_first_definition(const char *name)
{
	return !defines(_r_debug.r_map, name) && is_us(next_behind(_r_debug.r_map, name));
}

const char *pdn_library_before_us(const char *name, const char *other_name)
{
	const struct link_map *map = _r_debug.r_map;
	const char *found = NULL;

	while ((map = next_behind(map, name)) && !is_us(map))
		if (!found && defines(map, other_name))
			found = map->l_name;
	return map ? found : NULL; /* without us it is another list */
}

void *pdn_next_definition(const char *name)
{
	const struct link_map *map = NULL;
	void *found = NULL;
	struct pdn_elf elf;

	/* One that has only hidden versions is passed over, as the loader does it. */
	while (!found && (map = next_behind(map, name)) != NULL)
		if (pdn_elf_read(&elf, map->l_addr, map->l_ld))
			found = pdn_elf_find(&elf, name);
	return found;
}

/* ---- who asks -------------------------------------------------------------------------------- */

static void find_place(struct pdn_asker *asker)
{
	bool passed_us = false;
	unsigned index = 0;

	asker->is_program = asker->map == _r_debug.r_map;
	for (const struct link_map *map = _r_debug.r_map;
	     map && pdn_was_at_start(index++) && !asker->at_start; map = map->l_next) {
		asker->at_start = map == asker->map;
		asker->before_us = asker->at_start && !passed_us;
		passed_us |= is_us(map);
	}
}

void pdn_asker_find(struct pdn_asker *asker, const void *caller)
{
	*asker = (struct pdn_asker){.map = pdn_map_of(caller)};
	if (!asker->map)
		return;
	asker->readable = pdn_elf_read(&asker->elf, asker->map->l_addr, asker->map->l_ld);
	find_place(asker);
}

bool pdn_asker_defines(const struct pdn_asker *asker, const char *name)
{
	return asker->readable && pdn_elf_defines(&asker->elf, name);
}

/* ---- in the order of what needs what --------------------------------------------------------- */

struct looking {
	const char *name, *mark;
	const void *caller;
	bool any_kind;
	/* Behind us, among those of the start: the first one, and the first with the mark. */
	void *at_start, *marked;
	/* In libraries that were opened later: the caller's own, the first, the one that is due. */
	void *callers, *first, *due;
	unsigned count;
};

static void *definition_in(const struct pdn_loaded *library, const struct looking *l)
{
	bool variable;

	if (!library->readable || library->is_ours)
		return NULL;
	return l->any_kind ? pdn_elf_any(&library->elf, l->name, pdn_elf_hash(l->name), &variable)
			   : pdn_elf_find(&library->elf, l->name);
}

static bool look(const struct pdn_loaded *library, void *arg)
{
	struct looking *l = arg;
	void *function = definition_in(library, l);

	if (!function || (library->at_start && !library->behind_us))
		return false;
	if (library->at_start) {
		if (!l->at_start)
			l->at_start = function;
		if (!l->marked && pdn_elf_defines(&library->elf, l->mark))
			l->marked = function;
		return false;
	}
	if (pdn_has_address(library, (void *)l->caller))
		l->callers = function;
	if (l->count++ == 0)
		l->first = function;
	return false;
}

/* The next name that it needs; *at is NULL before the first one. */
static const char *next_needed(const struct pdn_loaded *library, const ElfW(Dyn) * *at)
{
	if (!library->readable)
		return NULL;
	for (*at = *at ? *at + 1 : library->elf.dynamic; (*at)->d_tag != DT_NULL; (*at)++)
		if ((*at)->d_tag == DT_NEEDED)
			return library->elf.string + (*at)->d_un.d_val;
	return NULL;
}

static bool needs(const struct pdn_loaded *library, void *soname)
{
	const ElfW(Dyn) *at = NULL;
	const char *name;

	while ((name = next_needed(library, &at)))
		if (pdn_elf_same(name, soname))
			return true;
	return false;
}

static bool has_soname(const struct pdn_loaded *library, void *soname)
{
	return library->readable && pdn_elf_same(library->elf.soname, soname);
}

#define MOST_NAMES 64u /* that one question leads through */

struct names {
	unsigned count;
	const char *list[MOST_NAMES];
};

static void add_name(struct names *names, const char *name)
{
	for (unsigned i = 0; i < names->count; i++)
		if (pdn_elf_same(names->list[i], name))
			return;
	if (names->count < MOST_NAMES)
		names->list[names->count++] = name;
}

/* Breadth first, as the loader searches: in this library, in those that it needs, and so on. */
static void *search(const struct looking *l, struct pdn_loaded library)
{
	struct names names = {0};
	void *function;

	for (unsigned i = 0;;) {
		const ElfW(Dyn) *at = NULL;
		const char *name;

		function = library.at_start ? NULL : definition_in(&library, l);
		if (function)
			return function;
		while ((name = next_needed(&library, &at)))
			add_name(&names, name);
		do {
			if (i == names.count)
				return NULL;
		} while (!pdn_find_loaded(&library, has_soname, (void *)names.list[i++]));
	}
}

#define MOST_USERS 4

/*
 * A library that was loaded because another needs it is searched for in what that one needs. This
 * is called in a walk of all libraries, so that their names stay.
 */
static bool follow(const struct pdn_loaded *any, void *arg)
{
	struct looking *l = arg;
	struct pdn_loaded library;
	bool found = pdn_find_loaded(&library, pdn_has_address, (void *)l->caller);

	(void)any;
	for (unsigned i = 0; found && !l->due && i <= MOST_USERS; i++) {
		l->due = search(l, library);
		found = library.readable && *library.elf.soname &&
			pdn_find_loaded(&library, needs, (void *)library.elf.soname);
	}
	return true;
}

static void *definition_for(struct looking *l)
{
	struct pdn_loaded any;

	pdn_find_loaded(&any, look, l);
	if (l->at_start || l->count == 0)
		return l->at_start;
	if (l->callers)
		return l->callers;
	if (l->count > 1)
		pdn_find_loaded(&any, follow, l);
	return l->due ? l->due : l->first;
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
	struct pdn_loaded any;

	pdn_find_loaded(&any, look, &l);
	return l.count == 1 && !l.at_start ? l.first : NULL;
}

/*
 * Was it opened itself, or loaded because another library needs it? Only an opened one has a search
 * list of its own.
 */
static bool may_be_brought_along(const struct pdn_asker *asker)
{
	struct pdn_loaded user;

	return asker->readable && *asker->elf.soname &&
	       pdn_find_loaded(&user, needs, (void *)asker->elf.soname);
}

struct link_map *pdn_asker_next(const struct pdn_asker *asker, const char *name)
{
	if (!asker->map || pdn_asker_defines(asker, name))
		return NULL;
	if (asker->at_start)
		return next_behind(asker->map, name);
	return may_be_brought_along(asker) ? NULL : asker->map;
}

/* ---- answers --------------------------------------------------------------------------------- */

#define ANSWERS 1024u

/* The key is 0 at first, and CHANGES while one thread stores the answer. */
#define CHANGES UINTPTR_MAX
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
	return (unsigned)(key * 0x9e3779b97f4a7c15u >> 54);
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
	uintptr_t old = __atomic_load_n(&answers[place].key, __ATOMIC_RELAXED);

	/* Another thread is storing here: this answer is asked for again. */
	if (old == CHANGES ||
	    !__atomic_compare_exchange_n(&answers[place].key, &old, CHANGES, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&answers[place].answer, answer, __ATOMIC_RELEASE);
	__atomic_store_n(&answers[place].key, key, __ATOMIC_RELEASE);
}

void pdn_answers_forget(void)
{
	for (unsigned i = 0; i < ANSWERS; i++) {
		uintptr_t old = __atomic_load_n(&answers[i].key, __ATOMIC_RELAXED);

		/* Its own thread's, while it changes: a call that is under way. */
		if (old && old != CHANGES)
			__atomic_compare_exchange_n(&answers[i].key, &old, 0, false,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
}
