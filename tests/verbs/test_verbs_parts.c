/* SPDX-License-Identifier: MIT */
/*
 * A region of several mappings, of which the program unmaps some: held registrations of the others
 * stay as they are, whatever PINDOWN_HELD says. The program's name selects that:
 * test_verbs_parts_revoke and so on.
 */
#include <string.h>

#include "tests/unit/support/suite.h"
#include "verbs_test.h"

#define CHUNK  MIB(2)
#define CHUNKS 8

static CUdeviceptr segment;
static const char *what; /* PINDOWN_HELD */

static bool is(const char *held)
{
	return strcmp(what, held) == 0;
}

static CUdeviceptr chunk(unsigned i)
{
	return segment + i * CHUNK;
}

static void map_chunk(unsigned i)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, CHUNK, &prop, 0));
	OK(cuMemMap(chunk(i), CHUNK, 0, handle, 0));
	OK(cuMemRelease(handle));
	OK(cuMemSetAccess(chunk(i), CHUNK, &access, 1));
}

static struct ibv_mr *register_chunks(unsigned first, unsigned count)
{
	return must_register(pd, chunk(first), count * CHUNK, ALL_ACCESS);
}

/* One region over all of the mappings, with one idle registration of it. */
static void make_segment(void)
{
	begin();
	OK(cuMemAddressReserve(&segment, CHUNKS * CHUNK, 0, 0, 0));
	for (unsigned i = 0; i < CHUNKS; i++)
		map_chunk(i);
	must_deregister(register_chunks(0, CHUNKS));
	ck_assert_uint_eq(stats().regions, 1);
}

static struct ibv_mr *mr, *other;
static unsigned from, count; /* of what is unmapped */

static void unmap(void)
{
	OK(cuMemUnmap(chunk(from), count * CHUNK));
}

/* How many lines about registrations a call of cuMemUnmap prints. */
static unsigned lines_of_unmap(unsigned first, unsigned n)
{
	const char *text;

	from = first;
	count = n;
	text = stderr_of(unmap);
	ck_assert_msg(!*text || strstr(text, "while the program holds"), "%s", text);
	return lines_of(text);
}

static void reaches(const struct ibv_mr *region, unsigned i)
{
	ck_assert_int_eq(recorder_copy(region->lkey, chunk(i), region->rkey, chunk(i) + 512, 10),
			 RECORDER_OK);
}

/* Its chunk is unmapped: is that told, and does it end? */
static void ends_with(struct ibv_mr *region, unsigned i)
{
	uint64_t before = stats().unprotected;
	unsigned open = recorder_open_mrs(), lines = lines_of_unmap(i, 1);

	ck_assert_uint_eq(recorder_open_mrs(), open - is("revoke"));
	ck_assert_uint_eq(stats().unprotected, before + is("retire"));
	ck_assert_uint_eq(lines, is("warn") || (is("retire") && before == 0));
	must_deregister(region);
}

START_TEST(a_registration_beside_what_is_unmapped)
{
	make_segment();
	mr = register_chunks(3, 1);
	ck_assert_uint_eq(lines_of_unmap(5, 1), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	ck_assert_uint_eq(stats().unprotected, 0);
	reaches(mr, 3);
	ck_assert_uint_eq(lines_of_unmap(0, 3), 0);
	ck_assert_uint_eq(lines_of_unmap(6, 2), 0);
	reaches(mr, 3);
	ends_with(mr, 3);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* One registration of the card's serves both. It can't end before the last of its users does. */
START_TEST(two_of_one_object)
{
	make_segment();
	mr = register_chunks(3, 1);
	other = register_chunks(5, 1);
	ck_assert_uint_eq(mr->lkey, other->lkey);
	lines_of_unmap(5, 1);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	reaches(mr, 3);
	must_deregister(other);
	reaches(mr, 3);
	lines_of_unmap(3, 1);
	ck_assert_uint_eq(recorder_open_mrs(), !is("revoke"));
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* A part of what it was asked for is unmapped, and the rest lives: it stays. */
START_TEST(one_over_several_chunks)
{
	make_segment();
	mr = register_chunks(2, 3);
	lines_of_unmap(4, 1);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	reaches(mr, 2);
	lines_of_unmap(3, 1);
	reaches(mr, 2);
	lines_of_unmap(2, 1);
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(all_of_the_region_at_once)
{
	make_segment();
	mr = register_chunks(3, 1);
	other = must_register(pd, chunk(5), CHUNK, IBV_ACCESS_LOCAL_WRITE);
	lines_of_unmap(0, CHUNKS);
	ck_assert_uint_eq(recorder_open_mrs(), is("revoke") ? 0 : 2);
	must_deregister(mr);
	must_deregister(other);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* What the program maps in a place that was unmapped is other memory. */
START_TEST(a_chunk_is_mapped_again)
{
	struct ibv_mr *again;

	make_segment();
	mr = register_chunks(3, 1);
	other = must_register(pd, chunk(5), CHUNK, IBV_ACCESS_LOCAL_WRITE);
	lines_of_unmap(5, 1);
	map_chunk(5);
	gpu_fill(chunk(5), 'n', KIB(4));
	again = register_chunks(5, 1);
	ck_assert_uint_ne(again->lkey, other->lkey);
	ck_assert_int_eq(recorder_copy(again->lkey, chunk(5), mr->rkey, chunk(3), KIB(4)),
			 RECORDER_OK);
	ck_assert(gpu_holds(chunk(3), 'n', KIB(4)));
	must_deregister(again);
	must_deregister(other);
	ends_with(mr, 3);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: parts of a region");
	TCase *tc = verbs_case(suite, "parts");

	what = strrchr(argv[0], '_') + 1;
	setenv("PINDOWN_HELD", what, 1);
	tcase_add_test(tc, a_registration_beside_what_is_unmapped);
	tcase_add_test(tc, two_of_one_object);
	tcase_add_test(tc, one_over_several_chunks);
	tcase_add_test(tc, all_of_the_region_at_once);
	tcase_add_test(tc, a_chunk_is_mapped_again);
	return run_verbs_tests(argc, argv, suite);
}
