/* SPDX-License-Identifier: MIT */
/* The libraries whose functions we wrap: finding and holding them; the definitions behind us. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>

#include "hook/loader/asker.h"
#include "hook/hook.h"
#include "hook/loader/library.h"
#include "hook/loader/loaded.h"

extern const char __ehdr_start; /* of this library; the linker's */

struct search {
	const char *name;	     /* of the wanted function, or the wanted library's soname */
	const struct link_map *held; /* this library and no other of that name; or NULL */
	unsigned index;		     /* of the library that is looked at */
	bool behind_us, at_start;
	void *found;
	struct pdn_elf elf;
	uintptr_t begin, end;
};

static bool read_elf(const struct dl_phdr_info *info, struct pdn_elf *elf)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return pdn_elf_read(
				elf, info->dlpi_addr,
				(const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
	return false;
}

static bool is_this_library(const struct dl_phdr_info *info)
{
	return info->dlpi_addr == (uintptr_t)&__ehdr_start;
}

static void measure(const struct dl_phdr_info *info, uintptr_t *begin, uintptr_t *end)
{
	*begin = UINTPTR_MAX;
	*end = 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		if (at < *begin)
			*begin = at;
		if (at + segment->p_memsz > *end)
			*end = at + segment->p_memsz;
	}
}

static int look_for_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	search->at_start = pdn_was_at_start(search->index++);
	if ((search->held && search->held->l_addr != info->dlpi_addr) ||
	    !read_elf(info, &search->elf) || !pdn_elf_same(search->elf.soname, search->name))
		return 0;
	measure(info, &search->begin, &search->end);
	return 1;
}

/* The libraries that the program started with are in the order in which names are looked up. */
static int look_behind_us(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	if (!pdn_was_at_start(search->index++))
		return 1;
	if (is_this_library(info))
		search->behind_us = true;
	else if (search->behind_us && read_elf(info, &search->elf))
		search->found = pdn_elf_find(&search->elf, search->name);
	return search->found != NULL;
}

/*
 * Threads that come here at the same time store the same values, word by word, instead of taking a
 * lock: a child forked meanwhile would wait for a thread that it does not have.
 */
static void store(struct pdn_library *library, const struct search *found)
{
	const struct pdn_elf *elf = &found->elf;

	__atomic_store_n(&library->elf.base, elf->base, __ATOMIC_RELAXED);
	__atomic_store_n(&library->elf.symbol, elf->symbol, __ATOMIC_RELAXED);
	__atomic_store_n(&library->elf.string, elf->string, __ATOMIC_RELAXED);
	__atomic_store_n(&library->elf.hash, elf->hash, __ATOMIC_RELAXED);
	__atomic_store_n(&library->elf.version, elf->version, __ATOMIC_RELAXED);
	__atomic_store_n(&library->elf.soname, elf->soname, __ATOMIC_RELAXED);
	__atomic_store_n(&library->elf.symbolic, elf->symbolic, __ATOMIC_RELAXED);
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
	__atomic_store_n(&library->held, true, __ATOMIC_RELAXED);
	store(library, &search);
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

void pdn_library_hold(struct pdn_library *library)
{
	/* Relaxed: holding it twice does no harm. */
	if (__atomic_load_n(&library->held, __ATOMIC_RELAXED) || !pdn_library_known(library))
		return;
	if (open_loaded(library->soname))
		__atomic_store_n(&library->held, true, __ATOMIC_RELAXED);
}

void *pdn_library_next(const struct pdn_library *library, const char *name)
{
	struct search search = {.name = name};

	if (!pdn_library_known(library))
		return NULL;
	pdn_each_library(look_behind_us, &search);
	/* Loaded later than the program, the library may be in other libraries' scope only. */
	return search.found ? search.found : pdn_elf_find(&library->elf, name);
}

bool pdn_library_has(const struct pdn_library *library, const void *address)
{
	return pdn_library_known(library) && (uintptr_t)address - library->begin < library->size;
}

bool pdn_library_defines(const struct pdn_library *library, const char *name)
{
	return pdn_library_known(library) && pdn_elf_defines(&library->elf, name);
}
