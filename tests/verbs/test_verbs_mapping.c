/* SPDX-License-Identifier: MIT */
/*
 * The mapping of the dma-bufs that registrations are made from, where there are two; and one dma-
 * buf for all protection domains, cards and ways to register.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "hook/verbs/abi.h"
#include "verbs_test.h"

#define EXPORTS() sim_calls("cuMemGetHandleForAddressRange")

static bool wants_pcie; /* PINDOWN_DMABUF_MAPPING=pcie, instead of auto */

static void begin_with_mappings(void)
{
	begin();
	sim_set_mappings(1, 1, 1);
}

/* The card refuses one mapping with the driver's ENOTSUPP, and gets the other. */
START_TEST(a_card_that_refuses_a_mapping_gets_the_other)
{
	struct ibv_mr *mr;
	CUdeviceptr p;

	begin_with_mappings();
	recorder_refuse_mapping(wants_pcie);
	p = gpu_alloc(MIB(2));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	gpu_fill(p, 7, 100);
	must_deregister(mr);
	register_once(pd, p, 4096, ALL_ACCESS); /* from the cache */
	ck_assert_uint_eq(dmabuf_calls(), 2);
	gpu_free(p);
	ck_assert_uint_eq(sim_open_exports(0), 0);
}
END_TEST

START_TEST(where_there_is_one_mapping_it_is_asked_once)
{
	CUdeviceptr p;

	begin_with_mappings();
	sim_set_mappings(1, 0, 0);
	recorder_refuse_mapping(0);
	p = gpu_alloc(MIB(2));
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 2); /* the whole allocation, and the part */
	ck_assert_uint_eq(EXPORTS(), wants_pcie ? 3 : 1);
	gpu_free(p);
}
END_TEST

/* Without and with the flag: the program has chosen, and its registration has that mapping. */
START_TEST(the_programs_own_choice_stands)
{
	struct ibv_mr *mr;
	CUdeviceptr p;
	int fd = -1;

	begin_with_mappings();
	p = gpu_alloc(MIB(2));
	must_deregister(must_register(pd, p, 4096, ALL_ACCESS));
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(2), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					 _i ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0));
	recorder_refuse_mapping(!_i);
	mr = ibv_reg_dmabuf_mr(pd, 0, MIB(2), p, fd, ALL_ACCESS);
	ck_assert_ptr_nonnull(mr);
	must_deregister(mr);
	close(fd);
	gpu_free(p);
}
END_TEST

START_TEST(one_export_for_all)
{
	struct ibv_context *devices[2];
	struct ibv_mr *mr[6];
	struct ibv_pd *pds[6];
	unsigned made = 0;
	CUdeviceptr p;
	int fd = -1;

	begin_with_mappings();
	devices[0] = device;
	devices[1] = open_device(1);
	p = gpu_alloc(MIB(4));
	for (unsigned i = 0; i < 6; i++) {
		pds[i] = ibv_alloc_pd(devices[i % 2]);
		mr[made++] = must_register(pds[i], p + KIB(64) * i, 4096, ALL_ACCESS);
	}
	ck_assert_uint_eq(EXPORTS(), 1);
	ck_assert_uint_eq(sim_open_exports(0), 1);
	ck_assert_uint_eq(stats().exports_saved, 5);
	/*
	 * The program's own export is its own, but its registrations are from the same dma-buf, if
	 * that has the mapping that the program has chosen.
	 */
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(4), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	ck_assert_uint_eq(EXPORTS(), 2);
	for (unsigned i = 0; i < 6; i++) {
		struct ibv_mr *other = ibv_reg_dmabuf_mr(pds[i], 0, MIB(4), p, fd, ALL_ACCESS);

		ck_assert_ptr_nonnull(other);
		must_deregister(other);
	}
	close(fd);
	ck_assert_uint_eq(EXPORTS(), 2);
	ck_assert_uint_eq(stats().exports_saved, wants_pcie ? 5 : 11);
	for (unsigned i = 0; i < made; i++)
		must_deregister(mr[i]);
	gpu_free(p);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: mappings of dma-bufs");
	TCase *tc = verbs_case(suite, "which mapping");

	wants_pcie = strstr(argv[0], "_pcie") != NULL;
	setenv("PINDOWN_BACKEND", "dmabuf", 1);
	setenv("PINDOWN_DMABUF_MAPPING", wants_pcie ? "pcie" : "auto", 1);
	tcase_add_test(tc, a_card_that_refuses_a_mapping_gets_the_other);
	tcase_add_test(tc, where_there_is_one_mapping_it_is_asked_once);
	tcase_add_loop_test(tc, the_programs_own_choice_stands, 0, 2);
	tc = verbs_case(suite, "one dma-buf");
	tcase_add_test(tc, one_export_for_all);
	return run_verbs_tests(argc, argv, suite);
}
