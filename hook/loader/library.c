/* SPDX-License-Identifier: MIT */
/* The libraries whose functions we wrap: finding and holding them; the definitions behind us. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "hook/loader/asker.h"
#include "hook/hook.h"
#include "hook/loader/library.h"
#include "hook/loader/loaded.h"

struct search {
	const char *name;	     /* of the wanted function, or the wanted library's soname */
	const struct link_map *held; /* this library and no other of that name; or NULL */
	unsigned index;		     /* of the library that is looked at */
	unsigned skip;		     /* this many of that soname */
	bool at_start;
	const void *address; /* in the wanted library */
	void *found;
	struct pdn_elf elf;
	uintptr_t begin, end;
};

static int look_for_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	search->at_start = pdn_was_at_start(search->index++);
	if ((search->held && search->held->l_addr != info->dlpi_addr) ||
	    !pdn_library_read(info, &search->elf) ||
	    !pdn_elf_same(search->elf.soname, search->name) || search->skip-- > 0)
		return 0;
	pdn_library_extent(info, &search->begin, &search->end);
	return 1;
}

/*
 * Threads that come here at the same time store the same values, word by word, instead of taking a
 * lock: a child forked meanwhile would wait for a thread that it does not have. So they are read as
 * words, too, or by symtab.c, which no sanitizer sees.
 */
static void store(struct pdn_library *library, const struct search *found)
{
	typedef uintptr_t word __attribute__((may_alias));
	const word *from = (const word *)&found->elf;
	word *to = (word *)&library->elf;

	_Static_assert(sizeof(library->elf) % sizeof(word) == 0, "whole words");
	for (size_t i = 0; i < sizeof(library->elf) / sizeof(word); i++)
		__atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
	__atomic_store_n(&library->at_start, found->at_start, __ATOMIC_RELAXED);
	__atomic_store_n(&library->begin, found->begin, __ATOMIC_RELAXED);
	__atomic_store_n(&library->size, found->end - found->begin, __ATOMIC_RELAXED);
	/* Release pairs with the acquire in pdn_library_known(). */
	__atomic_store_n(&library->known, true, __ATOMIC_RELEASE);
}

bool pdn_library_find(struct pdn_library *library)
{
	struct search search = {.name = library->soname};

	if (__builtin_expect(pdn_library_known(library), 1))
		return true;
	if (!pdn_each_library(look_for_library, &search))
		return false;
	store(library, &search);
	return true;
}

static void *open_loaded(const char *soname)
{
	int error = errno;
	void *handle = pdn_loader_of_libc()->dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);

	errno = error;
	return handle;
}

static bool find_held(struct pdn_library *library, void *handle)
{
	struct search search = {.name = library->soname, .held = handle};

	if (!handle)
		return false; /* the dlopen that was loading it has failed */
	if (!pdn_each_library(look_for_library, &search)) {
		pdn_loader_of_libc()->dlclose(handle); /* of another soname */
		return false;
	}
	store(library, &search);
	/* The program has it open, or the loader is in a call of its; see pdn_library_hold(). */
	pdn_loader_of_libc()->dlclose(handle);
	return true;
}

bool pdn_library_find_ready(struct pdn_library *library)
{
	struct search search = {.name = library->soname};

	if (__builtin_expect(pdn_library_known(library), 1))
		return true;
	if (!pdn_each_library(look_for_library, &search))
		return false;
	/* In a child without that lock there is no other thread that could be loading it. */
	if (!search.at_start && pdn_loader_lock_works())
		return find_held(library, open_loaded(library->soname));
	store(library, &search);
	return true;
}

/* ---- by what it is -------------------------------------------------------------------------- */

static int look_at_address(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	search->at_start = pdn_was_at_start(search->index++);
	if (!pdn_is_in_library(info, search->address))
		return 0;
	pdn_library_extent(info, &search->begin, &search->end);
	search->found =
		!pdn_is_this_library(info->dlpi_addr) && pdn_library_read(info, &search->elf)
			? pdn_elf_find(&search->elf, search->name)
			: NULL;
	return 1;
}

/* Threads that come to the same library store the same; any other one is not the first. */
bool pdn_library_is(struct pdn_library *library, const char *mark, const void *address)
{
	struct search search = {.name = mark, .address = address};
	uintptr_t none = 0;

	if (pdn_library_known(library))
		return pdn_library_has(library, address);
	pdn_each_library(look_at_address, &search);
	if (!search.found)
		return false;
	/* Acquire pairs with the release in pdn_library_forget(). */
	if (!__atomic_compare_exchange_n(&library->claimed, &none, search.begin, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) &&
	    none != search.begin)
		return false;
	store(library, &search);
	return true;
}

bool pdn_library_has_gone(const struct pdn_library *library)
{
	const uintptr_t begin = PDN_OF_LIBRARY(library, begin);
	struct search search = {.name = "", .address = (const void *)begin};

	if (!pdn_library_known(library) || __atomic_load_n(&library->held, __ATOMIC_RELAXED))
		return false;
	return !pdn_each_library(look_at_address, &search) || search.begin != begin ||
	       search.elf.symbol != PDN_OF_LIBRARY(library, elf.symbol);
}

void pdn_library_forget(struct pdn_library *library)
{
	__atomic_store_n(&library->known, false, __ATOMIC_RELAXED);
	/* Release: who claims it sees what was stored before. */
	__atomic_store_n(&library->claimed, 0, __ATOMIC_RELEASE);
}

bool pdn_library_of_soname(const char *soname, unsigned nth, struct pdn_library *library)
{
	struct search search = {.name = soname, .skip = nth};

	*library = (struct pdn_library){.soname = soname};
	if (!pdn_each_library(look_for_library, &search))
		return false;
	store(library, &search);
	return true;
}

/* ---- held ------------------------------------------------------------------------------------ */

static void *open_again(const struct pdn_library *library)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (!pdn_loader_of_libc()->dladdr1((const void *)PDN_OF_LIBRARY(library, begin), &info,
					   (void **)&map, RTLD_DL_LINKMAP) ||
	    !map)
		return NULL;
	return open_loaded(map->l_name);
}

bool pdn_library_is_ready(const struct pdn_library *library)
{
	void *handle;

	if (PDN_OF_LIBRARY(library, at_start) || !pdn_loader_lock_works())
		return true;
	handle = open_again(library);
	if (handle)
		pdn_loader_of_libc()->dlclose(handle);
	return handle;
}

void pdn_library_hold(struct pdn_library *library)
{
	/* Relaxed: holding it twice does no harm. */
	if (__atomic_load_n(&library->held, __ATOMIC_RELAXED) || !pdn_library_known(library))
		return;
	if (open_again(library))
		__atomic_store_n(&library->held, true, __ATOMIC_RELAXED);
}

bool pdn_library_has(const struct pdn_library *library, const void *address)
{
	return pdn_library_known(library) &&
	       (uintptr_t)address - PDN_OF_LIBRARY(library, begin) < PDN_OF_LIBRARY(library, size);
}
