/* SPDX-License-Identifier: MIT */
/*
 * ibv_reg_dmabuf_mr of a dma-buf that the program has exported itself, and that the cache knows.
 * test_verbs_dmabuf_left has the calls that are left to libibverbs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dmabuf_test.h"

/* ---- one registration ---- */

START_TEST(the_second_one_is_the_first_one)
{
	struct ibv_mr *first, *second;

	begin_with_export();
	first = reg_at(8192, KIB(64));
	ck_assert_int_ne(last_call(RECORDER_REG_DMABUF_MR).fd,
			 fd); /* the region's, which all share */
	second = reg_at(8192, KIB(64));
	ck_assert_ptr_ne(first, second);
	ck_assert_uint_eq(first->lkey, second->lkey);
	ck_assert_uint_eq(first->rkey, second->rkey);
	ck_assert_uint_eq(first->handle, second->handle);
	must_deregister(first);
	must_deregister(second);
	for (unsigned i = 0; i < 10000; i++)
		once(8192, KIB(64));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(dereg_calls(), 0);
	ck_assert_uint_eq(stats().regions, 1);
}
END_TEST

START_TEST(it_covers_exactly_what_the_program_named)
{
	struct ibv_mr *mr;

	begin_with_export();
	mr = reg(pd, 5000, 10000, 77 * KIB(4) + 5000 % KIB(4), fd, ALL_ACCESS);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 5000);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, 10000);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).iova, 77 * KIB(4) + 5000 % KIB(4));
	must_deregister(mr);
	mr = reg_at(5000, 10000);
	gpu_fill(p, 'a', MIB(4));
	gpu_fill(p + 5000, 'b', 5000);
	ck_assert_int_eq(recorder_copy(mr->lkey, p + 5000, mr->rkey, p + 10000, 5000), RECORDER_OK);
	ck_assert(gpu_holds(p + 10000, 'b', 5000));
	ck_assert(gpu_holds(p + 15000, 'a', KIB(64)));
	ck_assert_int_eq(recorder_copy(mr->lkey, p + 5000, mr->rkey, p + 14999, 2),
			 RECORDER_REMOTE_ERROR);
	ck_assert_int_eq(recorder_copy(mr->lkey, p + 4999, mr->rkey, p + 5000, 2),
			 RECORDER_LOCAL_ERROR);
	must_deregister(mr);
}
END_TEST

START_TEST(whatever_differs_is_another_one)
{
	struct ibv_pd *other;
	unsigned made = 0;

	begin_with_export();
	other = ibv_alloc_pd(device);
	for (unsigned round = 0; round < 2; round++) {
		once(0, 8192);
		once(0, 8193);
		once(4096, 8192);
		must_deregister(reg(pd, 0, 8192, 0, fd, ALL_ACCESS));
		must_deregister(reg(other, 0, 8192, p, fd, ALL_ACCESS));
		must_deregister(reg(pd, 0, 8192, p, fd, IBV_ACCESS_LOCAL_WRITE));
		must_deregister(reg(pd, 0, 8192, p, fd, ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING));
		ck_assert_int_eq(last_call(RECORDER_REG_DMABUF_MR).access,
				 ALL_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
		if (!round)
			made = dmabuf_calls();
	}
	ck_assert_uint_eq(made, 7);
	ck_assert_uint_eq(dmabuf_calls(), 7);
}
END_TEST

/* The same bytes by other descriptors: a duplicate, a second export, an export of another range. */
START_TEST(every_descriptor_of_the_memory_finds_the_same)
{
	int other, again, part;

	begin_with_export();
	other = dup(fd);
	again = export_range(p, MIB(4), 0);
	part = export_range(p + KIB(64), KIB(128), 0);
	once(KIB(64), 8192);
	close(fd);
	must_deregister(reg(pd, KIB(64), 8192, p + KIB(64), other, ALL_ACCESS));
	must_deregister(reg(pd, KIB(64), 8192, p + KIB(64), again, ALL_ACCESS));
	must_deregister(reg(pd, 0, 8192, p + KIB(64), part, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
}
END_TEST

START_TEST(the_program_may_close_its_descriptor)
{
	struct ibv_mr *mr;

	begin_with_export();
	mr = reg_at(0, MIB(4));
	close(fd);
	gpu_fill(p, 'x', KIB(64));
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + MIB(1), KIB(64)), RECORDER_OK);
	ck_assert(gpu_holds(p + MIB(1), 'x', KIB(64)));
	must_deregister(mr);
	/* UCX, NCCL and others export again for each registration. */
	for (unsigned i = 0; i < 3000; i++) {
		fd = export_range(p, MIB(4), 0);
		mr = reg_at(0, MIB(4));
		close(fd);
		must_deregister(mr);
	}
	ck_assert_uint_eq(dmabuf_calls(), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* A small buffer's export is rounded out to whole pages. */
START_TEST(a_range_that_is_rounded_out_to_pages)
{
	CUdeviceptr small;
	int by;

	begin();
	small = gpu_alloc(5000);
	by = export_range(small, 8192, 0);
	must_deregister(reg(pd, 0, 8192, small, by, ALL_ACCESS));
	must_deregister(reg(pd, 0, 8192, small, by, ALL_ACCESS));
	must_deregister(reg(pd, 0, 5000, small, by, ALL_ACCESS));
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).length, 5000);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	close(by);
	gpu_free(small);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/* Of an export's pages it has less than half. */
START_TEST(an_allocation_much_smaller_than_a_page)
{
	CUdeviceptr small;
	int by;

	begin();
	small = gpu_alloc(16);
	by = export_range(small, 4096, 0);
	must_deregister(reg(pd, 0, 16, small, by, ALL_ACCESS));
	must_deregister(reg(pd, 0, 16, small, by, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	close(by);
	gpu_free(small);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/*
 * The export begins in the pages of a neighbour: it belongs to the allocation in its middle, and
 * ends with that.
 */
START_TEST(a_range_that_begins_in_the_page_of_a_neighbour)
{
	CUdeviceptr neighbour, small;
	int by;

	begin();
	neighbour = gpu_alloc(1024);
	small = gpu_alloc(3072);
	ck_assert_uint_eq(small, neighbour + 1024);
	ck_assert_uint_eq(neighbour % 4096, 0);
	by = export_range(neighbour, 4096, 0);
	for (unsigned i = 0; i < 2; i++)
		must_deregister(reg(pd, 0, 4096, neighbour, by, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	close(by);
	gpu_free(small);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	gpu_free(neighbour);
}
END_TEST

static unsigned open_descriptors(void)
{
	unsigned count = 0;

	for (int number = 0; number < 20000; number++)
		count += fcntl(number, F_GETFD) >= 0;
	return count;
}

/* All are made from the region's, which takes one descriptor at most; not from the program's. */
START_TEST(it_is_made_from_the_regions_dmabuf)
{
	struct ibv_mr *mr;
	unsigned before;
	int part;

	begin_with_export();
	part = export_range(p + KIB(64), KIB(128), 0);
	before = open_descriptors();
	mr = reg(pd, 4096, 8192, p + KIB(64) + 4096, part, ALL_ACCESS);
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, KIB(64) + 4096);
	must_deregister(mr);
	for (uint64_t i = 0; i < 20; i++)
		once(i * 4096, 4096);
	ck_assert_uint_le(open_descriptors(), before + 1);
	close(part);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(open_descriptors(), before - 2);
}
END_TEST

START_TEST(pool_memory)
{
	CUdeviceptr q;
	int by;

	begin();
	OK(cuMemAllocAsync(&q, MIB(4), NULL));
	by = export_range(q, MIB(4), 0);
	for (unsigned i = 0; i < 2; i++)
		must_deregister(reg(pd, 4096, 4096, q + 4096, by, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	close(by);
	OK(cuMemFreeAsync(q, NULL));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(mapped_memory_of_two_handles)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle[2];
	CUdeviceptr at;
	int by;

	begin();
	OK(cuMemAddressReserve(&at, MIB(4), 0, 0, 0));
	for (unsigned i = 0; i < 2; i++) {
		OK(cuMemCreate(&handle[i], MIB(2), &prop, 0));
		OK(cuMemMap(at + i * MIB(2), MIB(2), 0, handle[i], 0));
	}
	by = export_range(at, MIB(4), 0);
	for (unsigned i = 0; i < 2; i++)
		must_deregister(reg(pd, MIB(1), MIB(2), at + MIB(1), by, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 1);
	close(by);
	OK(cuMemUnmap(at + MIB(2), MIB(2)));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/* ---- from the program's own dma-buf ---- */

/*
 * Another mapping for the card: from the program's own dma-buf, and cached all the same. The range
 * begins elsewhere, as the simulated driver has one file for all exports.
 */
START_TEST(an_export_with_flags)
{
	struct ibv_mr *mr;
	int pcie;

	begin_with_export();
	once(MIB(1) + 4096, 8192);
	pcie = export_range(p + MIB(1), MIB(3), CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
	mr = reg(pd, 4096, 8192, p + MIB(1) + 4096, pcie, ALL_ACCESS);
	/* From a duplicate: its offset is that of the program's call. */
	ck_assert_uint_eq(last_call(RECORDER_REG_DMABUF_MR).addr, 4096);
	ck_assert_int_ne(last_call(RECORDER_REG_DMABUF_MR).fd, pcie);
	ck_assert_int_eq(fcntl(last_call(RECORDER_REG_DMABUF_MR).fd, F_GETFD), -1);
	must_deregister(mr);
	must_deregister(reg(pd, 4096, 8192, p + MIB(1) + 4096, pcie, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 2);
	close(fd);
	close(pcie);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

static int number, other_file;

static void give_number_away(void *arg)
{
	(void)arg;
	ck_assert_int_eq(dup2(other_file, number), number);
}

/* A thread of the program closes its descriptor during the call, and opens another one. */
START_TEST(a_number_that_passes_to_another_file_meanwhile)
{
	struct ibv_mr *mr;
	CUdeviceptr q;
	int kept;

	begin();
	p = gpu_alloc(MIB(4));
	q = gpu_alloc(MIB(4));
	gpu_fill(p, 'p', KIB(64));
	gpu_fill(q, 'q', KIB(64));
	other_file = export_range(q, MIB(2), CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
	number = export_range(p, MIB(2), CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
	kept = dup(number);
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, give_number_away, NULL);
	must_deregister(reg(pd, 0, KIB(64), p, number, ALL_ACCESS));
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, NULL, NULL);
	/* The cached registration is right all the same. */
	mr = reg(pd, 0, KIB(64), p, kept, ALL_ACCESS);
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + KIB(32), KIB(4)), RECORDER_OK);
	ck_assert(gpu_holds(p + KIB(32), 'p', KIB(4)));
	gpu_fill(p, 'n', KIB(4));
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + KIB(32), KIB(4)), RECORDER_OK);
	ck_assert(gpu_holds(p + KIB(32), 'n', KIB(4)));
	ck_assert(gpu_holds(q, 'q', KIB(64)));
	must_deregister(mr);
	/* And the number stands for the other memory now. */
	mr = reg(pd, 0, KIB(64), q, number, ALL_ACCESS);
	ck_assert_int_eq(recorder_copy(mr->lkey, q, mr->rkey, q + KIB(32), KIB(4)), RECORDER_OK);
	ck_assert(gpu_holds(p + KIB(32), 'n', KIB(4)));
	must_deregister(mr);
	close(kept);
	close(number);
	close(other_file);
	gpu_free(p);
	gpu_free(q);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* ---- its end ---- */

static bool freed_first;

static void look(void *arg)
{
	(void)arg;
	freed_first = sim_calls("cuMemFree_v2") != 0;
}

START_TEST(an_idle_one_ends_before_the_driver_frees)
{
	begin_with_export();
	once(0, MIB(4));
	close(fd);
	recorder_meanwhile(RECORDER_DEREG_MR, look, NULL);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert(!freed_first);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* PINDOWN_HELD=keep: test_verbs_modes.c. */
START_TEST(a_held_one_ends_before_the_driver_frees_too)
{
	struct ibv_mr *mr;

	begin_with_export();
	mr = reg_at(0, 8192);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	must_deregister(mr);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(dereg_calls(), 1);
}
END_TEST

START_TEST(domains_and_devices_end_with_idle_ones)
{
	begin_with_export();
	once(0, 8192);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	pd = ibv_alloc_pd(device);
	once(0, 8192);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(given_back_twice)
{
	struct ibv_mr *mr;

	begin_with_export();
	mr = reg_at(0, 8192);
	must_deregister(mr);
	ck_assert_int_eq(ibv_dereg_mr(mr), EINVAL);
	once(0, 8192);
	ck_assert_uint_eq(dmabuf_calls(), 1);
	ck_assert_uint_eq(dereg_calls(), 0);
}
END_TEST

START_TEST(it_can_not_be_changed_as_no_dmabuf_can)
{
	struct ibv_mr *mr;

	begin_with_export();
	mr = reg_at(0, 8192);
	ck_assert_int_eq(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
		IBV_REREG_MR_ERR_INPUT);
	ck_assert_int_eq(errno, EINVAL);
	must_deregister(mr);
	/* Its structure may be given out again, for a registration that can. */
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE),
		0);
	must_deregister(mr);
}
END_TEST

START_TEST(a_card_that_is_full_gets_room)
{
	begin_with_export();
	recorder_limit(0, 1);
	for (uint64_t i = 0; i < 4; i++)
		once(i * 4096, 4096);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	/* And for one that is left to libibverbs. */
	must_deregister(reg(pd, 0, 4096, 0, memfd_create("unknown", 0), ALL_ACCESS));
}
END_TEST

/* ---- processes and threads ---- */

START_TEST(a_child_leaves_its_parents_alone)
{
	struct ibv_mr *mr;
	int status;
	pid_t child;

	begin_with_export();
	mr = reg_at(0, 4096);
	child = fork();
	if (child == 0) {
		unsigned before = dereg_calls();

		_exit(ibv_dereg_mr(mr) == 0 && dereg_calls() == before ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	must_deregister(mr);
}
END_TEST

/* Each has memory of its own, which another one may get at the same address. */
static void *register_and_free(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	for (unsigned i = 0; i < 500; i++) {
		CUdeviceptr own = gpu_alloc(MIB(2));
		int by = export_range(own, MIB(2), 0);
		struct ibv_mr *mr[2];

		gpu_fill(own, (char)i, 4096);
		for (unsigned k = 0; k < 2; k++)
			mr[k] = reg(pd, k * 4096, 4096, own + k * 4096, by, ALL_ACCESS);
		close(by);
		ck_assert_int_eq(recorder_copy(mr[0]->lkey, own, mr[1]->rkey, own + 4096, 4096),
				 RECORDER_OK);
		ck_assert(gpu_holds(own + 4096, (char)i, 4096));
		must_deregister(mr[0]);
		must_deregister(mr[1]);
		gpu_free(own);
	}
	return NULL;
}

START_TEST(threads_that_register_and_free)
{
	begin();
	in_four_threads(register_and_free);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: dma-bufs of the program's own");
	TCase *tc = verbs_case(suite, "one registration");

	setenv("SIM_EXPORT_PCIE", "1", 1);
	tcase_add_test(tc, the_second_one_is_the_first_one);
	tcase_add_test(tc, it_covers_exactly_what_the_program_named);
	tcase_add_test(tc, whatever_differs_is_another_one);
	tcase_add_test(tc, every_descriptor_of_the_memory_finds_the_same);
	tcase_add_test(tc, the_program_may_close_its_descriptor);
	tcase_add_test(tc, a_range_that_is_rounded_out_to_pages);
	tcase_add_test(tc, an_allocation_much_smaller_than_a_page);
	tcase_add_test(tc, a_range_that_begins_in_the_page_of_a_neighbour);
	tcase_add_test(tc, it_is_made_from_the_regions_dmabuf);
	tcase_add_test(tc, pool_memory);
	tcase_add_test(tc, mapped_memory_of_two_handles);
	tc = verbs_case(suite, "from the program's own dma-buf");
	tcase_add_test(tc, an_export_with_flags);
	tcase_add_test(tc, a_number_that_passes_to_another_file_meanwhile);
	tc = verbs_case(suite, "its end");
	tcase_add_test(tc, an_idle_one_ends_before_the_driver_frees);
	tcase_add_test(tc, a_held_one_ends_before_the_driver_frees_too);
	tcase_add_test(tc, domains_and_devices_end_with_idle_ones);
	tcase_add_test(tc, given_back_twice);
	tcase_add_test(tc, it_can_not_be_changed_as_no_dmabuf_can);
	tcase_add_test(tc, a_card_that_is_full_gets_room);
	tc = verbs_case(suite, "processes and threads");
	tcase_add_test(tc, a_child_leaves_its_parents_alone);
	tcase_add_test(tc, threads_that_register_and_free);
	return run_verbs_tests(argc, argv, suite);
}
