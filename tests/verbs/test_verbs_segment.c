/* SPDX-License-Identifier: MIT */
/*
 * Tensors in a segment that is mapped piece by piece, as PyTorch's expandable segments are,
 * registered by ibv_reg_mr at each step of a program that knows nothing of pindown.
 */
#include "verbs_test.h"

#define TENSORS 40
#define TENSOR	MIB(3)
#define PIECE	MIB(2)
#define SEGMENT (TENSORS * TENSOR)
#define ROOM	MIB(256)

static CUdeviceptr segment;

static void map_piece(CUdeviceptr at)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, PIECE, &prop, 0));
	OK(cuMemMap(at, PIECE, 0, handle, 0));
	OK(cuMemRelease(handle));
	OK(cuMemSetAccess(at, PIECE, &access, 1));
}

static void make_segment(void)
{
	begin();
	OK(cuMemAddressReserve(&segment, ROOM, 0, 0, 0));
	for (uint64_t at = 0; at < SEGMENT; at += PIECE)
		map_piece(segment + at);
}

static void end_segment(void)
{
	OK(cuMemUnmap(segment, SEGMENT));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().bytes, 0);
	OK(cuMemAddressFree(segment, ROOM));
}

static void register_all_once(void)
{
	for (unsigned i = 0; i < TENSORS; i++)
		register_once(pd, segment + i * TENSOR, TENSOR, ALL_ACCESS);
}

/* A replaced region takes its idle registrations with it: they are made once more, and stay. */
START_TEST(registrations_of_tensors_converge)
{
	make_segment();
	register_all_once();
	register_all_once();
	ck_assert_uint_le(stats().misses, TENSORS);
	ck_assert_uint_eq(stats().bytes, SEGMENT);
	ck_assert_uint_le(dmabuf_calls(), 2 * TENSORS);
	uint64_t before = dmabuf_calls();
	for (unsigned step = 2; step < 10; step++)
		register_all_once();
	ck_assert_uint_eq(dmabuf_calls(), before);
	ck_assert_uint_eq(host_calls(), 0);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	end_segment();
}
END_TEST

/* The card moves a page of one tensor to the next one, by their registrations. */
static void move_to_next(struct ibv_mr *mr[TENSORS], unsigned from)
{
	unsigned to = (from + 1) % TENSORS;
	CUdeviceptr source = segment + from * TENSOR, target = segment + to * TENSOR + MIB(2);

	gpu_fill(source, (char)('A' + from), KIB(4));
	ck_assert_int_eq(recorder_copy(mr[from]->lkey, source, mr[to]->rkey, target, KIB(4)),
			 RECORDER_OK);
	ck_assert(gpu_holds(target, (char)('A' + from), KIB(4)));
}

/* Each tensor stays registered, on a live region or on a replaced one: all show the memory. */
START_TEST(held_registrations_stay_right)
{
	struct ibv_mr *mr[TENSORS];

	make_segment();
	for (unsigned i = 0; i < TENSORS; i++)
		mr[i] = must_register(pd, segment + i * TENSOR, TENSOR, ALL_ACCESS);
	ck_assert_uint_eq(stats().bytes - stats().kept_bytes, SEGMENT);
	ck_assert_uint_le(stats().bytes, 3 * SEGMENT);
	for (unsigned i = 0; i < TENSORS; i++)
		move_to_next(mr, i);
	for (unsigned i = 0; i < TENSORS; i++)
		must_deregister(mr[i]);
	ck_assert_uint_eq(stats().kept_bytes, 0);
	ck_assert_uint_eq(stats().bytes, SEGMENT);
	end_segment();
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: tensors in a segment");
	TCase *tc = verbs_case(suite, "segments");

	tcase_add_test(tc, registrations_of_tensors_converge);
	tcase_add_test(tc, held_registrations_stay_right);
	return run_verbs_tests(argc, argv, suite);
}
