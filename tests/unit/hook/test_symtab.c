// SPDX-License-Identifier: MIT
/*
 * Tests the reading of a library's dynamic section, whose pointers the loader may have relocated or
 * not, wherever the library was linked to be: as most are, from 0 on; as gVisor's vDSO, at the end
 * of all addresses; and as a program that is not relocatable.
 */
#define _GNU_SOURCE
#include <check.h>
#include <stdint.h>

#include "hook/loader/symtab.h"
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

int main(void)
{
	Suite *suite = suite_create("symtab");
	TCase *reading = suite_case(suite, "reading", NULL, NULL);

	tcase_add_test(reading, linked_at_0);
	tcase_add_test(reading, linked_at_the_end_of_all_addresses);
	tcase_add_test(reading, linked_where_it_is);
	tcase_add_test(reading, linked_beside_where_it_is);
	return run_suite(suite);
}
