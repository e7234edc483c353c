/* SPDX-License-Identifier: MIT */
/* The libraries whose functions we wrap: finding and holding them. */
#include "hook/loader/library.h"

#include "hook/loader/loaded/loaded.h"

static struct pdn_library made_of(const struct pdn_loaded *loaded)
{
	const struct pdn_extent extent = pdn_loaded_extent(loaded);

	return (struct pdn_library){
		.elf = loaded->elf,
		.begin = extent.begin,
		.size = extent.end - extent.begin,
		.known = true,
		.at_start = loaded->at_start,
	};
}

/*
 * Threads that come here at the same time store the same values, word by word, instead of taking a
 * lock: a child forked meanwhile would wait for a thread that it does not have. So they are read as
 * words, too, or by symtab.c, which no sanitizer sees.
 */
static bool store(struct pdn_library *library, const struct pdn_library *found)
{
	typedef uintptr_t word __attribute__((may_alias));
	const word *from = (const word *)&found->elf;
	word *to = (word *)&library->elf;

	_Static_assert(sizeof(library->elf) % sizeof(word) == 0, "whole words");
	for (size_t i = 0; i < sizeof(library->elf) / sizeof(word); i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
	__atomic_store_n(&library->at_start, found->at_start, __ATOMIC_RELAXED);
	__atomic_store_n(&library->begin, found->begin, __ATOMIC_RELAXED);
	__atomic_store_n(&library->size, found->size, __ATOMIC_RELAXED);
	/* Release pairs with the acquire in pdn_library_known(). */
	__atomic_store_n(&library->known, true, __ATOMIC_RELEASE);
	return true;
}

/* ---- by its name ----------------------------------------------------------------------------- */

struct wanted {
	const char *soname;
	unsigned skip; /* this many of that soname */
};

static bool has_soname(const struct pdn_loaded *loaded, void *arg)
{
	struct wanted *wanted = arg;

	return loaded->readable && pdn_elf_same(loaded->elf.soname, wanted->soname) &&
	       wanted->skip-- == 0;
}

bool pdn_library_of_soname(const char *soname, unsigned nth, struct pdn_library *library)
{
	struct wanted wanted = {soname, nth};
	struct pdn_loaded loaded;

	if (!pdn_find_loaded(&loaded, has_soname, &wanted))
		return false;
	*library = made_of(&loaded);
	library->soname = soname;
	return true;
}

bool pdn_library_find(struct pdn_library *library)
{
	struct pdn_library found;

	return __builtin_expect(pdn_library_known(library), 1) ||
	       (pdn_library_of_soname(library->soname, 0, &found) && store(library, &found));
}

bool pdn_library_find_ready(struct pdn_library *library)
{
	struct pdn_library found;

	return __builtin_expect(pdn_library_known(library), 1) ||
	       (pdn_library_of_soname(library->soname, 0, &found) && pdn_library_is_ready(&found) &&
		store(library, &found));
}

/* ---- by what it is -------------------------------------------------------------------------- */

/* Threads that come to the same library store the same; any other one is not the first. */
bool pdn_library_is(struct pdn_library *library, const char *mark, const void *address)
{
	struct pdn_library found;
	struct pdn_loaded loaded;
	uintptr_t none = 0;

	if (pdn_library_known(library))
		return pdn_library_has(library, address);
	if (!pdn_find_loaded(&loaded, pdn_has_address, (void *)address) || loaded.is_ours ||
	    !loaded.readable || !pdn_elf_find(&loaded.elf, mark))
		return false;
	found = made_of(&loaded);
	/* Acquire pairs with the release in pdn_library_forget(). */
	return (__atomic_compare_exchange_n(&library->claimed, &none, found.begin, false,
					    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) ||
		none == found.begin) &&
	       store(library, &found);
}

bool pdn_library_has_gone(const struct pdn_library *library)
{
	void *begin = (void *)PDN_OF_LIBRARY(library, begin);
	struct pdn_loaded loaded;

	return pdn_library_known(library) && !__atomic_load_n(&library->held, __ATOMIC_RELAXED) &&
	       (!pdn_find_loaded(&loaded, pdn_has_address, begin) ||
		loaded.elf.dynamic != PDN_OF_LIBRARY(library, elf.dynamic));
}

void pdn_library_forget(struct pdn_library *library)
{
	__atomic_store_n(&library->known, false, __ATOMIC_RELAXED);
	/* Release: who claims it sees what was stored before. */
	__atomic_store_n(&library->claimed, 0, __ATOMIC_RELEASE);
}

/* ---- held ------------------------------------------------------------------------------------ */

/* The file of the library that is at its place. It may be just being loaded: then this waits. */
static const char *file_of(const struct pdn_library *library)
{
	const struct link_map *map = pdn_map_of((const void *)PDN_OF_LIBRARY(library, begin));

	return map && map->l_ld == PDN_OF_LIBRARY(library, elf.dynamic) ? map->l_name : NULL;
}

bool pdn_library_is_ready(const struct pdn_library *library)
{
	const char *file;

	if (PDN_OF_LIBRARY(library, at_start) || !pdn_loader_lock_works())
		return true; /* in such a child no other thread could be loading it */
	file = file_of(library);
	/* The program has it open, or the loader is in a call of its; see pdn_library_hold(). */
	return file && pdn_handle_of(file);
}

void pdn_library_hold(struct pdn_library *library)
{
	const char *file;

	/* Relaxed: holding it twice does no harm. */
	if (__atomic_load_n(&library->held, __ATOMIC_RELAXED) || !pdn_library_known(library))
		return;
	file = file_of(library);
	if (file && pdn_open_loaded(file))
		__atomic_store_n(&library->held, true, __ATOMIC_RELAXED);
}

bool pdn_library_has(const struct pdn_library *library, const void *address)
{
	return pdn_library_known(library) &&
	       (uintptr_t)address - PDN_OF_LIBRARY(library, begin) < PDN_OF_LIBRARY(library, size);
}
