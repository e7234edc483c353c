// SPDX-License-Identifier: MIT
/*
 * Finds calls of dlopen() with RTLD_DEEPBIND in x86-64 code. Such a call goes through a slot of the
 * global offset table: directly (call *slot), or by a stub (jmp *slot) in the procedure linkage
 * table.
 */
#define _GNU_SOURCE
#include "tools/check/deepbind.h"

#include <dlfcn.h>
#include <elf.h>
#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	SLOTS = 4,
	STUBS = 8,
	WINDOW = 48 /* bytes before a call that are searched for its arguments */
};

struct dlopen_in {
	uint64_t slots[SLOTS], stubs[STUBS];
	unsigned slot_count, stub_count;
};

static const char *symbol_name(Elf *elf, const GElf_Shdr *relocations, size_t number)
{
	Elf_Scn *section = elf_getscn(elf, relocations->sh_link);
	Elf_Data *data = section ? elf_getdata(section, NULL) : NULL;
	GElf_Shdr header;
	GElf_Sym symbol;

	if (!data || !gelf_getshdr(section, &header) || !gelf_getsym(data, (int)number, &symbol))
		return NULL;
	return elf_strptr(elf, header.sh_link, symbol.st_name);
}

static void find_slots(struct dlopen_in *found, Elf *elf, Elf_Scn *section, const GElf_Shdr *header)
{
	Elf_Data *data = elf_getdata(section, NULL);
	GElf_Rela relocation;

	for (int i = 0; data && gelf_getrela(data, i, &relocation); i++) {
		uint64_t type = GELF_R_TYPE(relocation.r_info);
		const char *name;

		if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)
			continue;
		name = symbol_name(elf, header, GELF_R_SYM(relocation.r_info));
		if (name && strcmp(name, "dlopen") == 0 && found->slot_count < SLOTS)
			found->slots[found->slot_count++] = relocation.r_offset;
	}
}

static bool is_one_of(const uint64_t *list, unsigned count, uint64_t value)
{
	for (unsigned i = 0; i < count; i++)
		if (list[i] == value)
			return true;
	return false;
}

static int32_t displacement(const unsigned char *at)
{
	int32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* The address to which the last four bytes of an instruction at code[i] refer. */
static uint64_t refers_to(const unsigned char *code, size_t i, unsigned length, uint64_t address)
{
	return address + i + length + (uint64_t)(int64_t)displacement(code + i + length - 4);
}

static void find_stubs(struct dlopen_in *found, const unsigned char *code, size_t size,
		       uint64_t address)
{
	static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

	for (size_t i = 0; i + 6 <= size && found->stub_count + 1 < STUBS; i++) {
		bool bnd = i && code[i - 1] == 0xf2;
		size_t start = i - bnd;

		if (code[i] != 0xff || code[i + 1] != 0x25 ||
		    !is_one_of(found->slots, found->slot_count, refers_to(code, i, 6, address)))
			continue;
		found->stubs[found->stub_count++] = address + start;
		if (start >= 4 && memcmp(code + start - 4, endbr64, 4) == 0)
			found->stubs[found->stub_count++] = address + start - 4;
	}
}

/* The last constant that the code before a call puts into %esi; 0 when there is none. */
static uint32_t second_argument(const unsigned char *code, size_t call)
{
	size_t first = call > WINDOW ? call - WINDOW : 0;

	for (size_t i = call; i-- > first;)
		if (code[i] == 0xbe && i + 5 <= call &&
		    (uint32_t)displacement(code + i + 1) < 0x10000)
			return (uint32_t)displacement(code + i + 1);
	return 0;
}

static bool calls_dlopen(const struct dlopen_in *found, const unsigned char *code, size_t i,
			 size_t size, uint64_t address)
{
	if ((code[i] == 0xe8 || code[i] == 0xe9) && i + 5 <= size)
		return is_one_of(found->stubs, found->stub_count, refers_to(code, i, 5, address));
	if (code[i] == 0xff && i + 6 <= size && code[i + 1] == 0x15)
		return is_one_of(found->slots, found->slot_count, refers_to(code, i, 6, address));
	return false;
}

static unsigned count_calls(const struct dlopen_in *found, const unsigned char *code, size_t size,
			    uint64_t address)
{
	unsigned count = 0;

	for (size_t i = 0; i < size; i++)
		if (calls_dlopen(found, code, i, size, address))
			count += (second_argument(code, i) & RTLD_DEEPBIND) != 0;
	return count;
}

enum pass { SLOTS_IN_RELOCATIONS, STUBS_IN_CODE, CALLS_IN_CODE };

static unsigned go_through(struct dlopen_in *found, Elf *elf, enum pass pass)
{
	Elf_Scn *section = NULL;
	unsigned count = 0;

	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr header;
		Elf_Data *data;

		if (!gelf_getshdr(section, &header))
			continue;
		if (pass == SLOTS_IN_RELOCATIONS) {
			if (header.sh_type == SHT_RELA)
				find_slots(found, elf, section, &header);
			continue;
		}
		if (header.sh_type != SHT_PROGBITS || !(header.sh_flags & SHF_EXECINSTR) ||
		    !(data = elf_rawdata(section, NULL)) || !data->d_buf)
			continue;
		if (pass == STUBS_IN_CODE)
			find_stubs(found, data->d_buf, data->d_size, header.sh_addr);
		else
			count += count_calls(found, data->d_buf, data->d_size, header.sh_addr);
	}
	return count;
}

unsigned count_deepbind_calls(Elf *elf)
{
	struct dlopen_in found = {.slot_count = 0};
	GElf_Ehdr header;

	if (!gelf_getehdr(elf, &header) || header.e_machine != EM_X86_64)
		return 0;
	go_through(&found, elf, SLOTS_IN_RELOCATIONS);
	if (!found.slot_count)
		return 0;
	go_through(&found, elf, STUBS_IN_CODE);
	return go_through(&found, elf, CALLS_IN_CODE);
}
