/* SPDX-License-Identifier: MIT */
/*
 * The loader's own functions. We export dlsym, dlvsym and dlopen, so that a call of ours by name
 * would come back to us; the C library's dlvsym is therefore looked up by hand, in the C library's
 * own symbol table, and the others with it: the next definition after us, which may be another
 * interposer's.
 *
 * The first dlsym of a process may come from a sanitizer's runtime that is not ready yet, and that
 * stands before much of the C library. So nothing here calls a function of the C library by name,
 * and this file and lookup.c are never instrumented (build.mk).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "hook.h"

/* ---- one object's symbol table ----------------------------------------------------------------
 */

struct symbols {
	const ElfW(Sym) * symbol;
	const char *string;
	const uint32_t *hash;
	const ElfW(Half) * version;
	const char *soname;
};

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* glibc relocates the pointers of the dynamic section in place, but not on every machine. */
static const void *in_object(const struct link_map *map, ElfW(Addr) pointer)
{
	return (const void *)(pointer < map->l_addr ? map->l_addr + pointer : pointer);
}

static bool read_dynamic(const struct link_map *map, struct symbols *symbols)
{
	size_t soname = 0;

	*symbols = (struct symbols){.symbol = NULL};
	for (const ElfW(Dyn) *entry = map->l_ld; entry && entry->d_tag != DT_NULL; entry++)
		switch (entry->d_tag) {
		case DT_SYMTAB:
			symbols->symbol = in_object(map, entry->d_un.d_ptr);
			break;
		case DT_STRTAB:
			symbols->string = in_object(map, entry->d_un.d_ptr);
			break;
		case DT_GNU_HASH:
			symbols->hash = in_object(map, entry->d_un.d_ptr);
			break;
		case DT_VERSYM:
			symbols->version = in_object(map, entry->d_un.d_ptr);
			break;
		case DT_SONAME:
			soname = entry->d_un.d_val;
			break;
		}
	if (!symbols->symbol || !symbols->string || !symbols->hash)
		return false;
	symbols->soname = soname ? symbols->string + soname : "";
	return true;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

/* A default version, or none, and defined here. */
static bool usable(const struct symbols *symbols, uint32_t index)
{
	const ElfW(Sym) *symbol = &symbols->symbol[index];
	unsigned type = ELF64_ST_TYPE(symbol->st_info);

	return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC) &&
	       !(symbols->version && symbols->version[index] & 0x8000);
}

/*
 * The layout of DT_GNU_HASH: number of buckets, first symbol, words of the Bloom filter, its shift;
 * the filter; the buckets; for each symbol its hash, whose lowest bit marks the end of a bucket.
 */
static const ElfW(Sym) * find_symbol(const struct symbols *symbols, const char *name)
{
	uint32_t wanted = gnu_hash(name), buckets = symbols->hash[0], from = symbols->hash[1];
	const ElfW(Addr) *filter = (const void *)&symbols->hash[4];
	const uint32_t *bucket = (const void *)&filter[symbols->hash[2]];
	const uint32_t *hash = &bucket[buckets];

	if (!buckets)
		return NULL;
	for (uint32_t i = bucket[wanted % buckets]; i >= from; i++) {
		if ((hash[i - from] | 1) == (wanted | 1) && usable(symbols, i) &&
		    same(symbols->string + symbols->symbol[i].st_name, name))
			return &symbols->symbol[i];
		if (hash[i - from] & 1)
			break;
	}
	return NULL;
}

/* ---- the C library ------------------------------------------------------------------------------
 */

/* Before glibc 2.34 the loader's functions were in a library of their own. */
static bool is_libc(const char *soname)
{
	return same(soname, "libc.so.6") || same(soname, "libdl.so.2");
}

/*
 * The loader's list is read without its lock. Both libraries came with the program, or with us, and
 * are never unloaded; what is loaded later is appended behind them.
 */
void *pd_libc_function(const char *name)
{
	for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
		struct symbols symbols;
		const ElfW(Sym) * symbol;

		if (!read_dynamic(map, &symbols) || !is_libc(symbols.soname))
			continue;
		symbol = find_symbol(&symbols, name);
		if (symbol)
			return (void *)(map->l_addr + symbol->st_value);
	}
	return NULL;
}

/* ---- the next ones after us
 * ---------------------------------------------------------------------- */

/* The versions that the loader's functions have had: glibc 2.34 and newer, then older. */
#if defined(__x86_64__)
#define OLD_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLD_VERSION "GLIBC_2.17"
#else
#error "pindown knows the loader of x86-64 and aarch64 only"
#endif

typedef void *dlvsym_function(void *, const char *, const char *);

static void *next(dlvsym_function *look, const char *name)
{
	void *found = look ? look(RTLD_NEXT, name, "GLIBC_2.34") : NULL;

	if (!found && look)
		found = look(RTLD_NEXT, name, OLD_VERSION);
	return found ? found : pd_libc_function(name);
}

/* Threads that come here at once find the same. */
const struct pd_loader *pd_loader(void)
{
	static struct pd_loader loader;
	static bool ready;
	dlvsym_function *look;

	if (__builtin_expect(__atomic_load_n(&ready, __ATOMIC_ACQUIRE), 1))
		return &loader;
	look = (dlvsym_function *)pd_libc_function("dlvsym");
	__atomic_store_n((void **)&loader.dlsym, next(look, "dlsym"), __ATOMIC_RELAXED);
	__atomic_store_n((void **)&loader.dlvsym, next(look, "dlvsym"), __ATOMIC_RELAXED);
	__atomic_store_n((void **)&loader.dlopen, next(look, "dlopen"), __ATOMIC_RELAXED);
	__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	return &loader;
}
