/* SPDX-License-Identifier: MIT */
/*
 * Registrations of parts of an allocation that is larger than the pin space: on windows of it, by
 * ibv_reg_mr and by the program's own dma-buf.
 */
#include <string.h>
#include <unistd.h>

#include "verbs_test.h"

#define SPACE MIB(64) /* main() */
#define LARGE MIB(512)

static CUdeviceptr p;

static void alloc_large(void)
{
	begin();
	p = gpu_alloc(LARGE);
}

static void end_large(void)
{
	gpu_free(p);
	ck_assert_int_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().bytes, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(host_calls(), 0);
}

/* One after the other all of it is registered; ranges that fit together stay registered. */
START_TEST(all_of_it_can_be_registered)
{
	alloc_large();
	for (uint64_t at = 0; at < LARGE; at += MIB(1)) {
		register_once(pd, p + at, MIB(1), ALL_ACCESS);
		ck_assert_uint_le(stats().bytes, SPACE);
	}
	ck_assert_uint_le(dmabuf_calls(), 2 * 8 * LARGE / SPACE);
	for (uint64_t at = 0; at < MIB(32); at += MIB(1))
		register_once(pd, p + at, MIB(1), ALL_ACCESS);
	uint64_t before = dmabuf_calls();
	for (uint64_t at = 0; at < MIB(32); at += MIB(1))
		register_once(pd, p + at, MIB(1), ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), before);
	end_large();
}
END_TEST

/* A window begins behind the address that the program frees. */
START_TEST(a_window_of_what_a_stream_frees_later)
{
	alloc_large();
	register_once(pd, p + MIB(200), MIB(1), ALL_ACCESS);
	OK(cuMemFreeAsync(p, NULL));
	register_once(pd, p + MIB(400), MIB(1), ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().bytes, 0);
	OK(cuStreamSynchronize(NULL));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)(p + MIB(400)), MIB(1), ALL_ACCESS));
	ck_assert_uint_eq(sim_used_bytes(0), 0);
}
END_TEST

/* The card moves bytes from one window to another, and within one that crosses a boundary. */
START_TEST(a_window_is_the_memory)
{
	static const uint64_t at[] = {MIB(3), MIB(200) + 4096, MIB(256) - MIB(2), LARGE - MIB(4)};
	struct ibv_mr *mr[4];

	alloc_large();
	for (unsigned i = 0; i < 4; i++)
		mr[i] = must_register(pd, p + at[i], MIB(4), ALL_ACCESS);
	for (unsigned i = 0; i < 4; i++) {
		unsigned to = (i + 1) % 4;
		uint64_t source = p + at[i] + MIB(1), target = p + at[to] + MIB(3);

		gpu_fill(source, (char)('A' + i), KIB(4));
		ck_assert_int_eq(recorder_copy(mr[i]->lkey, source, mr[to]->rkey, target, KIB(4)),
				 RECORDER_OK);
		ck_assert(gpu_holds(target, (char)('A' + i), KIB(4)));
	}
	for (unsigned i = 0; i < 4; i++)
		must_deregister(mr[i]);
	end_large();
}
END_TEST

/* PINDOWN_HELD=keep: each keeps its own window until it is deregistered. */
START_TEST(held_registrations_keep_their_windows)
{
	alloc_large();
	struct ibv_mr *first = must_register(pd, p + MIB(100), MIB(1), ALL_ACCESS);
	struct ibv_mr *second = must_register(pd, p + MIB(400), MIB(1), ALL_ACCESS);

	register_once(pd, p + MIB(200), MIB(1), ALL_ACCESS);
	gpu_free(p);
	ck_assert_uint_eq(stats().kept_regions, 2);
	ck_assert_uint_eq(stats().regions, 2);
	must_deregister(first);
	ck_assert_uint_eq(stats().kept_regions, 1);
	must_deregister(second);
	ck_assert_uint_eq(stats().bytes, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/*
 * Otherwise all end with the memory, as one range, which goes back with the last of them. One
 * window has no held registration, and comes before, between or after the others.
 */
START_TEST(windows_of_an_allocation_are_one_range)
{
	static const unsigned at[3][3] = {{100, 400, 200}, {200, 100, 400}, {400, 200, 100}};
	struct ibv_mr *held[2] = {NULL};
	CUdeviceptr q;

	alloc_large();
	for (int i = 0, n = 0; i < 3; i++) {
		CUdeviceptr part = p + MIB(at[_i][i]);

		if (at[_i][i] == 200)
			register_once(pd, part, MIB(1), ALL_ACCESS);
		else
			held[n++] = must_register(pd, part, MIB(1), ALL_ACCESS);
	}
	end_large();
	ck_assert_uint_eq(stats().retired, 1);
	ck_assert_uint_eq(stats().retired_bytes, LARGE);
	must_deregister(held[0]);
	q = gpu_alloc(LARGE);
	ck_assert(q + LARGE <= p || p + LARGE <= q);
	gpu_free(q);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	must_deregister(held[1]);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	gpu_free(gpu_alloc(LARGE));
	ck_assert_uint_eq(sim_calls("cuMemAddressFree"), sim_calls("cuMemAddressReserve"));
}
END_TEST

/* Windows without held registrations lie below the one that has one, and end before it. */
START_TEST(idle_windows_leave_the_range_alone)
{
	struct ibv_mr *held;
	CUdeviceptr q;

	alloc_large();
	register_once(pd, p + MIB(100), MIB(1), ALL_ACCESS);
	register_once(pd, p + MIB(200), MIB(1), ALL_ACCESS);
	held = must_register(pd, p + MIB(400), MIB(1), ALL_ACCESS);
	end_large();
	ck_assert_uint_eq(stats().retired, 1);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	q = gpu_alloc(LARGE);
	ck_assert(q + LARGE <= p || p + LARGE <= q);
	gpu_free(q);
	must_deregister(held);
	ck_assert_uint_eq(stats().retired_ranges, 0);
}
END_TEST

/* A wider window replaces it while its registration is held; that is of the same memory. */
START_TEST(a_window_that_was_replaced_is_of_the_range)
{
	struct ibv_mr *first, *second;

	alloc_large();
	first = must_register(pd, p + MIB(100), MIB(1), ALL_ACCESS);
	second = must_register(pd, p + MIB(97), MIB(12), ALL_ACCESS);
	ck_assert_uint_ne(first->lkey, second->lkey);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	end_large();
	ck_assert_uint_eq(stats().retired, 1);
	must_deregister(second);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	must_deregister(first);
	ck_assert_uint_eq(stats().retired_ranges, 0);
}
END_TEST

/* Middleware's way: it exports a part of the memory, and registers by that descriptor. */
START_TEST(an_exported_part_is_registered_on_a_window)
{
	alloc_large();
	for (unsigned n = 0; n < 3; n++) {
		CUdeviceptr begin_of_part = p + MIB(301);
		int fd = -1;

		OK(cuMemGetHandleForAddressRange(&fd, begin_of_part, MIB(4),
						 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
		struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, MIB(1), MIB(2), begin_of_part + MIB(1),
						      fd, ALL_ACCESS);
		struct ibv_mr *other = must_register(pd, p, MIB(1), ALL_ACCESS);

		ck_assert_ptr_nonnull(mr);
		gpu_fill(begin_of_part + MIB(2), 'x', KIB(4));
		ck_assert_int_eq(
			recorder_copy(mr->lkey, begin_of_part + MIB(2), other->rkey, p, KIB(4)),
			RECORDER_OK);
		ck_assert(gpu_holds(p, 'x', KIB(4)));
		must_deregister(mr);
		must_deregister(other);
		close(fd);
	}
	ck_assert_uint_eq(stats().regions, 2);
	ck_assert_uint_eq(dmabuf_calls(), 2); /* the others came from the cache */
	end_large();
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: windows of an allocation");
	TCase *tc = verbs_case(suite, "windows");

	setenv("SIM_PIN_BYTES", "64M", 1); /* it is read when the driver is loaded again */
	if (strstr(argv[0], "_keep")) {
		setenv("PINDOWN_HELD", "keep", 1);
		tcase_add_test(tc, held_registrations_keep_their_windows);
		return run_verbs_tests(argc, argv, suite);
	}
	tcase_add_test(tc, all_of_it_can_be_registered);
	tcase_add_test(tc, a_window_is_the_memory);
	tcase_add_test(tc, a_window_of_what_a_stream_frees_later);
	tcase_add_loop_test(tc, windows_of_an_allocation_are_one_range, 0, 3);
	tcase_add_test(tc, idle_windows_leave_the_range_alone);
	tcase_add_test(tc, a_window_that_was_replaced_is_of_the_range);
	tcase_add_test(tc, an_exported_part_is_registered_on_a_window);
	return run_verbs_tests(argc, argv, suite);
}
