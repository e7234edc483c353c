/* SPDX-License-Identifier: MIT */
/* Reading a loaded library's dynamic section and its table of symbols. */
#define _GNU_SOURCE
#include <elf.h>
#include <stddef.h>

#include "cache/base/visible.h"
#include "hook/loader/symtab.h"

PDN_STARTS bool pdn_elf_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static ElfW(Addr) distance(ElfW(Addr) a, ElfW(Addr) b)
{
	return a < b ? b - a : a - b;
}

/*
 * glibc relocates the pointers of the dynamic section in place, but not at once, and not
 * everywhere: not those of the vDSO, which gVisor links at the end of all addresses. A table is
 * near the dynamic section, so the nearer of the two meanings is right.
 */
static const void *in_library(ElfW(Addr) base, const ElfW(Dyn) * dynamic, ElfW(Addr) pointer)
{
	ElfW(Addr) here = (ElfW(Addr))dynamic, moved = base + pointer;

	return (const void *)(distance(moved, here) < distance(pointer, here) ? moved : pointer);
}

PDN_STARTS bool pdn_elf_read(struct pdn_elf *elf, ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
	size_t soname = 0;

	*elf = (struct pdn_elf){.base = base};
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			elf->symbol = in_library(base, dynamic, dynamic->d_un.d_ptr);
			break;
		case DT_STRTAB:
			elf->string = in_library(base, dynamic, dynamic->d_un.d_ptr);
			break;
		case DT_GNU_HASH:
			elf->hash = in_library(base, dynamic, dynamic->d_un.d_ptr);
			break;
		case DT_HASH: /* the number of buckets, and that of the symbols */
			elf->symbols = ((const uint32_t *)in_library(base, dynamic,
								     dynamic->d_un.d_ptr))[1];
			break;
		case DT_VERSYM:
			elf->version = in_library(base, dynamic, dynamic->d_un.d_ptr);
			break;
		case DT_SONAME:
			soname = dynamic->d_un.d_val;
			break;
		case DT_SYMBOLIC:
			elf->symbolic = true;
			break;
		case DT_FLAGS:
			elf->symbolic |= dynamic->d_un.d_val & DF_SYMBOLIC;
			break;
		}
	if (!elf->symbol || !elf->string || !elf->hash)
		return false;
	elf->soname = soname ? elf->string + soname : "";
	return true;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static bool is_function(const struct pdn_elf *elf, uint32_t index)
{
	const ElfW(Sym) *symbol = &elf->symbol[index];

	return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

/* Bit 15 of a version: not the default one. */
static bool is_default(const struct pdn_elf *elf, uint32_t index)
{
	return !(elf->version && elf->version[index] & 0x8000);
}

static bool is_the(const struct pdn_elf *elf, uint32_t index, const char *name, bool any_version)
{
	return is_function(elf, index) && (any_version || is_default(elf, index)) &&
	       pdn_elf_same(elf->string + elf->symbol[index].st_name, name);
}

/* The same as find(), of a library that has DT_HASH alone. */
static uint32_t find_in_all(const struct pdn_elf *elf, const char *name, bool any_version)
{
	for (uint32_t i = 1; elf->symbol && elf->string && i < elf->symbols; i++)
		if (is_the(elf, i, name, any_version))
			return i;
	return 0;
}

/*
 * The symbol's index, or 0. The layout of DT_GNU_HASH: number of buckets, first symbol, words of
 * the Bloom filter, its shift; the filter; the buckets; for each symbol its hash, whose lowest bit
 * marks the end of a bucket.
 */
PDN_STARTS static uint32_t find(const struct pdn_elf *elf, const char *name, bool any_version)
{
	const uint32_t *table = elf->hash, *bucket, *hash;
	uint32_t wanted = gnu_hash(name), buckets, from;

	if (!table)
		return find_in_all(elf, name, any_version);
	buckets = table[0];
	from = table[1];
	if (!buckets)
		return 0;
	bucket = &table[4] + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table));
	hash = &bucket[buckets];
	for (uint32_t i = bucket[wanted % buckets]; i >= from; i++) {
		if ((hash[i - from] | 1) == (wanted | 1) && is_the(elf, i, name, any_version))
			return i;
		if (hash[i - from] & 1)
			break;
	}
	return 0;
}

void *pdn_elf_find(const struct pdn_elf *elf, const char *name)
{
	uint32_t index = find(elf, name, false);

	return index ? (void *)(elf->base + elf->symbol[index].st_value) : NULL;
}

PDN_STARTS bool pdn_elf_defines(const struct pdn_elf *elf, const char *name)
{
	return find(elf, name, true) != 0;
}
