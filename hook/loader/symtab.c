/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <elf.h>
#include <stddef.h>

#include "hook/loader/symtab.h"

bool pd_elf_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/*
 * glibc relocates the pointers of the dynamic section in place, but not at once, and not
 * everywhere.
 */
static const void *in_object(ElfW(Addr) base, ElfW(Addr) pointer)
{
	return (const void *)(pointer < base ? base + pointer : pointer);
}

bool pd_elf_read(struct pd_elf *object, ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
	size_t soname = 0;

	*object = (struct pd_elf){.base = base};
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
		switch (dynamic->d_tag) {
		case DT_SYMTAB:
			object->symbol = in_object(base, dynamic->d_un.d_ptr);
			break;
		case DT_STRTAB:
			object->string = in_object(base, dynamic->d_un.d_ptr);
			break;
		case DT_GNU_HASH:
			object->hash = in_object(base, dynamic->d_un.d_ptr);
			break;
		case DT_VERSYM:
			object->version = in_object(base, dynamic->d_un.d_ptr);
			break;
		case DT_SONAME:
			soname = dynamic->d_un.d_val;
			break;
		case DT_SYMBOLIC:
			object->symbolic = true;
			break;
		case DT_FLAGS:
			object->symbolic |= dynamic->d_un.d_val & DF_SYMBOLIC;
			break;
		}
	if (!object->symbol || !object->string || !object->hash)
		return false;
	object->soname = soname ? object->string + soname : "";
	return true;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static bool is_function(const struct pd_elf *object, uint32_t index)
{
	const ElfW(Sym) *symbol = &object->symbol[index];

	return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
}

/* Bit 15 of a version: not the default one. */
static bool is_default(const struct pd_elf *object, uint32_t index)
{
	return !(object->version && object->version[index] & 0x8000);
}

/*
 * The symbol's index, or 0. The layout of DT_GNU_HASH: number of buckets, first symbol, words of
 * the Bloom filter, its shift; the filter; the buckets; for each symbol its hash, whose lowest bit
 * marks the end of a bucket.
 */
static uint32_t find(const struct pd_elf *object, const char *name, bool any_version)
{
	const uint32_t *table = object->hash;
	uint32_t wanted = gnu_hash(name), buckets = table[0], from = table[1];
	const ElfW(Addr) *filter = (const void *)&table[4];
	const uint32_t *bucket = (const void *)&filter[table[2]];
	const uint32_t *hash = &bucket[buckets];

	if (!buckets)
		return 0;
	for (uint32_t i = bucket[wanted % buckets]; i >= from; i++) {
		if ((hash[i - from] | 1) == (wanted | 1) && is_function(object, i) &&
		    (any_version || is_default(object, i)) &&
		    pd_elf_same(object->string + object->symbol[i].st_name, name))
			return i;
		if (hash[i - from] & 1)
			break;
	}
	return 0;
}

void *pd_elf_find(const struct pd_elf *object, const char *name)
{
	uint32_t index = find(object, name, false);

	return index ? (void *)(object->base + object->symbol[index].st_value) : NULL;
}

bool pd_elf_defines(const struct pd_elf *object, const char *name)
{
	return find(object, name, true) != 0;
}
