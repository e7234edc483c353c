/* SPDX-License-Identifier: MIT */
/* Reading a loaded library's dynamic section and its table of symbols. */
#define _GNU_SOURCE
#include <elf.h>
#include <stddef.h>

#include "cache/base/visible.h"
#include "hook/loader/loaded/symtab.h"

PDN_STARTS bool pdn_elf_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

PDN_STARTS static bool begins_with(const char *name, const char *beginning)
{
	while (*beginning && *name == *beginning)
		name++, beginning++;
	return !*beginning;
}

/* "curl_easy_init" is none. */
PDN_STARTS bool pdn_elf_is_cuda_name(const char *name)
{
	return begins_with(name, "cu") && name[2] >= 'A' && name[2] <= 'Z';
}

PDN_STARTS bool pdn_elf_is_verb_name(const char *name)
{
	return begins_with(name, "ibv_") || begins_with(name, "mlx5dv_");
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
PDN_STARTS const void *pdn_elf_table(const struct pdn_elf *elf, ElfW(Addr) pointer)
{
	ElfW(Addr) here = (ElfW(Addr))elf->dynamic, moved = elf->base + pointer;

	return (const void *)(distance(moved, here) < distance(pointer, here) ? moved : pointer);
}

PDN_STARTS ElfW(Addr) pdn_elf_value(const ElfW(Dyn) * dynamic, size_t count, ElfW(Sxword) tag)
{
	for (size_t i = 0; i < count && dynamic[i].d_tag != DT_NULL; i++)
		if (dynamic[i].d_tag == tag)
			return dynamic[i].d_un.d_val;
	return 0;
}

PDN_STARTS bool pdn_elf_read(struct pdn_elf *elf, ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
	size_t soname = 0;

	*elf = (struct pdn_elf){.base = base, .dynamic = dynamic};
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			elf->symbol = pdn_elf_table(elf, dynamic->d_un.d_ptr);
			break;
		case DT_STRTAB:
			elf->string = pdn_elf_table(elf, dynamic->d_un.d_ptr);
			break;
		case DT_GNU_HASH:
			elf->hash = pdn_elf_table(elf, dynamic->d_un.d_ptr);
			break;
		case DT_HASH:
			elf->old_hash = pdn_elf_table(elf, dynamic->d_un.d_ptr);
			break;
		case DT_VERSYM:
			elf->version = pdn_elf_table(elf, dynamic->d_un.d_ptr);
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
	if (!elf->symbol || !elf->string || (!elf->hash && !elf->old_hash))
		return false;
	elf->soname = soname ? elf->string + soname : "";
	return true;
}

PDN_STARTS uint32_t pdn_elf_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

enum kind { FUNCTION, ANY_FUNCTION /* in any version */, ANYTHING };

/* Assemblers give no type to a function that is not said to be one. */
static bool is_variable(unsigned type)
{
	return type == STT_OBJECT || type == STT_COMMON;
}

/* Bit 15 of a version: not the default one. */
static bool is_default(const struct pdn_elf *elf, uint32_t index)
{
	return !(elf->version && elf->version[index] & 0x8000);
}

static bool is_the(const struct pdn_elf *elf, uint32_t index, const char *name, enum kind kind)
{
	const ElfW(Sym) *symbol = &elf->symbol[index];
	unsigned type = ELF64_ST_TYPE(symbol->st_info);

	return symbol->st_shndx != SHN_UNDEF &&
	       (type == STT_FUNC || (kind == ANYTHING && is_variable(type))) &&
	       (kind == ANY_FUNCTION || is_default(elf, index)) &&
	       pdn_elf_same(elf->string + symbol->st_name, name);
}

static uint32_t old_hash_of(const char *name)
{
	uint32_t hash = 0;

	for (; *name; name++) {
		hash = (hash << 4) + (unsigned char)*name;
		hash = (hash ^ (hash >> 24 & 0xf0)) & 0xfffffff;
	}
	return hash;
}

/*
 * The same as find(), of a library that has DT_HASH alone: numbers of buckets and of symbols; the
 * buckets; for each symbol the next one of its bucket.
 */
PDN_STARTS static uint32_t find_by_old_hash(const struct pdn_elf *elf, const char *name,
					    enum kind kind)
{
	const uint32_t *table = elf->old_hash, *next;
	uint32_t i = 0;

	if (!table || !table[0] || !elf->symbol || !elf->string)
		return 0;
	next = &table[2] + table[0];
	for (i = table[2 + old_hash_of(name) % table[0]]; i; i = next[i])
		if (is_the(elf, i, name, kind))
			break;
	return i;
}

/* Most names are in no table, and the filter says so at once. */
static bool may_have(const uint32_t *table, uint32_t hash)
{
	const uint64_t *filter = (const void *)&table[4];
	uint64_t word = filter[hash / 64 & (table[2] - 1)];

	return word >> hash % 64 & word >> (hash >> table[3]) % 64 & 1;
}

/*
 * The symbol's index, or 0. The layout of DT_GNU_HASH: number of buckets, first symbol, words of
 * the Bloom filter, its shift; the filter; the buckets; for each symbol its hash, whose lowest bit
 * marks the end of a bucket.
 */
PDN_STARTS static uint32_t find(const struct pdn_elf *elf, const char *name, uint32_t wanted,
				enum kind kind)
{
	const uint32_t *table = elf->hash, *bucket, *hash;
	uint32_t buckets, from;

	if (!table)
		return find_by_old_hash(elf, name, kind);
	buckets = table[0];
	from = table[1];
	if (!buckets || !may_have(table, wanted))
		return 0;
	bucket = &table[4] + table[2] * (sizeof(ElfW(Addr)) / sizeof(*table));
	hash = &bucket[buckets];
	for (uint32_t i = bucket[wanted % buckets]; i >= from; i++) {
		if ((hash[i - from] | 1) == (wanted | 1) && is_the(elf, i, name, kind))
			return i;
		if (hash[i - from] & 1)
			break;
	}
	return 0;
}

static void *address_of(const struct pdn_elf *elf, uint32_t index)
{
	return index ? (void *)(elf->base + elf->symbol[index].st_value) : NULL;
}

void *pdn_elf_find(const struct pdn_elf *elf, const char *name)
{
	return address_of(elf, find(elf, name, pdn_elf_hash(name), FUNCTION));
}

PDN_STARTS void *pdn_elf_any(const struct pdn_elf *elf, const char *name, uint32_t hash,
			     bool *variable)
{
	uint32_t index = find(elf, name, hash, ANYTHING);

	*variable = is_variable(ELF64_ST_TYPE(elf->symbol[index].st_info));
	return address_of(elf, index);
}

PDN_STARTS bool pdn_elf_defines(const struct pdn_elf *elf, const char *name)
{
	return find(elf, name, pdn_elf_hash(name), ANY_FUNCTION) != 0;
}
