// SPDX-License-Identifier: MIT
/*
 * Tests the reading of a library's dynamic section, whose pointers the loader may have relocated or
 * not, wherever the library was linked to be: as most are, from 0 on; as gVisor's vDSO, at the end
 * of all addresses; and as a program that is not relocatable.
 */
#define _GNU_SOURCE
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "hook/loader/loaded/symtab.h"
#include "tests/unit/support/suite.h"

/* An image in memory: tables before the dynamic section and behind it. */
static struct {
	char before[4096];
	ElfW(Dyn) dynamic[5];
	char behind[4096];
} image;

enum { SYMBOLS = 512, STRINGS = 1024, HASH = sizeof(image) - 2048 };

static void fill(uint64_t origin)
{
	image.dynamic[0] = (ElfW(Dyn)){.d_tag = DT_SYMTAB, .d_un.d_ptr = origin + SYMBOLS};
	image.dynamic[1] = (ElfW(Dyn)){.d_tag = DT_STRTAB, .d_un.d_ptr = origin + STRINGS};
	image.dynamic[2] = (ElfW(Dyn)){.d_tag = DT_GNU_HASH, .d_un.d_ptr = origin + HASH};
	image.dynamic[3] = (ElfW(Dyn)){.d_tag = DT_SONAME, .d_un.d_val = 7};
}

/* The image is linked to be at `linked`. */
static void read_of(uint64_t linked)
{
	uint64_t here = (uint64_t)(uintptr_t)&image;

	for (int relocated = 0; relocated < 2; relocated++) {
		struct pdn_elf elf;

		fill(relocated ? here : linked);
		ck_assert(pdn_elf_read(&elf, here - linked, image.dynamic));
		ck_assert_ptr_eq(elf.symbol, (char *)&image + SYMBOLS);
		ck_assert_ptr_eq(elf.string, (char *)&image + STRINGS);
		ck_assert_ptr_eq(elf.hash, (char *)&image + HASH);
		ck_assert_ptr_eq(elf.soname, (char *)&image + STRINGS + 7);
	}
}

START_TEST(linked_at_0)
{
	read_of(0);
}
END_TEST

START_TEST(linked_at_the_end_of_all_addresses)
{
	read_of(0xffffffffff700000);
}
END_TEST

START_TEST(linked_where_it_is)
{
	read_of((uint64_t)(uintptr_t)&image);
}
END_TEST

START_TEST(linked_beside_where_it_is)
{
	read_of((uint64_t)(uintptr_t)&image - (1 << 20));
	read_of((uint64_t)(uintptr_t)&image + (1 << 20));
}
END_TEST

/* A symbol without a type may be an assembler's function: it is taken for neither. */
START_TEST(what_a_name_is)
{
	static const char names[] = "\0variable\0function\0untyped\0elsewhere\0";
	const ElfW(Sym) symbols[] = {
		{0},
		{.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), .st_shndx = 1},
		{.st_name = 10, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1},
		{.st_name = 19, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), .st_shndx = 1},
		{.st_name = 27, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT)},
	};
	/* One bucket, and all symbols in it. */
	static const uint32_t hash[] = {1, 5, 1, 0, 2, 3, 4, 0};
	const struct pdn_elf elf = {
		.base = 4096, .symbol = symbols, .string = names, .old_hash = hash};

	for (const char *name = names + 1; *name; name += strlen(name) + 1) {
		bool is_variable = strcmp(name, "variable") == 0,
		     is_function = strcmp(name, "function") == 0, variable;
		void *any = pdn_elf_any(&elf, name, pdn_elf_hash(name), &variable);

		ck_assert(!any == !(is_variable || is_function));
		ck_assert(variable == is_variable);
		ck_assert(!pdn_elf_find(&elf, name) == !is_function);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("symtab");
	TCase *reading = suite_case(suite, "reading", NULL, NULL);

	tcase_add_test(reading, linked_at_0);
	tcase_add_test(reading, linked_at_the_end_of_all_addresses);
	tcase_add_test(reading, linked_where_it_is);
	tcase_add_test(reading, linked_beside_where_it_is);
	tcase_add_test(suite_case(suite, "finding", NULL, NULL), what_a_name_is);
	return run_suite(suite);
}
