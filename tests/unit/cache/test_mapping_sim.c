/* SPDX-License-Identifier: MIT */
/*
 * Which way a region's dma-buf leads to the memory, and that one dma-buf serves all cards, on the
 * simulated driver. The cards' and GPUs' places in the machine are links in a folder that stands
 * for sysfs.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/backend/backend.h"
#include "cache/base/process/descriptor.h"
#include "cache/base/thread/lock.h"
#include "cache/hook_events.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "tests/unit/support/sim_test.h"

#define GPU_0 "pci0009:00/0009:00:00.0/0000:01:00.0"

static char sysfs[] = "/tmp/pindown-mapping-XXXXXX";
static char near_card[128], far_card[128], lost_card[128];

static void make_folder(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void make_link(const char *name, const char *place)
{
	char path[128], target[256];

	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	snprintf(target, sizeof(target), "../../../devices/%s", place);
	ck_assert_int_eq(symlink(target, path), 0);
}

static void make_card(char *path, size_t size, const char *name, const char *place)
{
	char link[64], target[200];

	snprintf(path, size, "%s/class/infiniband/%s", sysfs, name);
	snprintf(link, sizeof(link), "class/infiniband/%s", name);
	snprintf(target, sizeof(target), "%s/infiniband/%s", place, name);
	make_link(link, target);
}

static void make_machine(void)
{
	static const char *const folders[] = {"class", "class/infiniband", "bus", "bus/pci",
					      "bus/pci/devices"};

	ck_assert_ptr_nonnull(mkdtemp(sysfs));
	for (unsigned i = 0; i < 5; i++)
		make_folder(folders[i]);
	make_link("bus/pci/devices/0000:01:00.0", GPU_0);
	make_link("bus/pci/devices/0000:02:00.0", "pci0019:00/0019:00:00.0/0000:02:00.0");
	make_card(near_card, sizeof(near_card), "near", "pci0009:00/0009:00:00.0/0009:02:00.0");
	make_card(far_card, sizeof(far_card), "far", "pci0009:00/0009:00:01.0/0009:03:00.0");
	snprintf(lost_card, sizeof(lost_card), "%s/class/infiniband/lost", sysfs);
}

static void remove_machine(void)
{
	char command[80];

	snprintf(command, sizeof(command), "rm -rf %s", sysfs);
	ck_assert_int_eq(system(command), 0);
}

#define EXPORTS() sim_calls("cuMemGetHandleForAddressRange")

enum machine { X86, GRACE, GRACE_OLD, GRACE_NOT_BY_DEFAULT };

static void begin_on(enum machine machine, const char *setting)
{
	static const int options[][3] = {
		[X86] = {1, 0, 0},
		[GRACE] = {1, 1, 1},
		[GRACE_OLD] = {1, 2, 1},
		[GRACE_NOT_BY_DEFAULT] = {0, 1, 1},
	};

	setenv("PINDOWN_BACKEND", "dmabuf", 1);
	setenv("PINDOWN_LOG", "quiet", 1);
	if (setting)
		setenv("PINDOWN_DMABUF_MAPPING", setting, 1);
	make_machine();
	start_cuda();
	sim_set_mappings(options[machine][0], options[machine][1], options[machine][2]);
}

/* The mapping that a card gets: 'p' over PCIe, 'd' as the driver chooses. */
static char lent_to(pindown_region *region, const char *card)
{
	struct pdn_loan loan;
	char mapping;

	ck_assert_int_eq(pdn_dmabuf_lend(region, card, &loan), PINDOWN_OK);
	mapping = sim_dmabuf_is_pcie(loan.fd) ? 'p' : 'd';
	ck_assert_int_eq(loan.pcie, mapping == 'p');
	pdn_dmabuf_end_loan(region, &loan, true);
	return mapping;
}

static char lent_new(const char *card)
{
	CUdeviceptr p = alloc(MIB(2));
	pindown_region *region = must_get(p, 1);
	char mapping = lent_to(region, card);

	pindown_put(region);
	OK(sim_free(p));
	return mapping;
}

/* ---- the topology ---- */

START_TEST(near_is_below_the_same_bridge)
{
	begin_on(GRACE, NULL);
	ck_assert(pdn_mapping_is_near(0, near_card));
	ck_assert(!pdn_mapping_is_near(0, far_card)); /* the same host bridge only */
	ck_assert(!pdn_mapping_is_near(1, near_card));
	ck_assert(!pdn_mapping_is_near(0, lost_card));
	ck_assert(!pdn_mapping_is_near(0, ""));
	ck_assert(!pdn_mapping_is_near(7, near_card));
	remove_machine();
}
END_TEST

START_TEST(each_card_gets_its_own_mapping)
{
	begin_on(GRACE, NULL);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(lent_new(near_card), 'p');
		ck_assert_int_eq(lent_new(far_card), 'd');
		ck_assert_int_eq(lent_new(lost_card), 'd');
	}
	remove_machine();
}
END_TEST

START_TEST(the_same_region_for_both_kinds)
{
	begin_on(GRACE, NULL);
	CUdeviceptr p = alloc(MIB(2));
	pindown_region *region = must_get(p, 1);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(lent_to(region, near_card), 'p');
		ck_assert_int_eq(lent_to(region, far_card), 'd');
	}
	ck_assert_uint_eq(sim_open_exports(0), 1);
	ck_assert_int_eq(pindown_region_is_live(region), 1);
	pindown_put(region);
	remove_machine();
}
END_TEST

/* One that is in use stays, and the other card gets one for itself. */
START_TEST(both_kinds_at_once)
{
	struct pdn_loan near_loan, far_loan;

	begin_on(GRACE, NULL);
	CUdeviceptr p = alloc(MIB(2));
	pindown_region *region = must_get(p, 1);
	ck_assert_int_eq(pdn_dmabuf_lend(region, near_card, &near_loan), PINDOWN_OK);
	ck_assert_int_eq(pdn_dmabuf_lend(region, far_card, &far_loan), PINDOWN_OK);
	ck_assert(sim_dmabuf_is_pcie(near_loan.fd));
	ck_assert(!sim_dmabuf_is_pcie(far_loan.fd));
	ck_assert_uint_eq(sim_open_exports(0), 2);
	pdn_dmabuf_end_loan(region, &far_loan, true);
	ck_assert_uint_eq(sim_open_exports(0), 1);
	ck_assert(sim_dmabuf_is_pcie(near_loan.fd));
	pdn_dmabuf_end_loan(region, &near_loan, true);
	pindown_put(region);
	OK(sim_free(p));
	ck_assert_uint_eq(sim_open_exports(0), 0);
	remove_machine();
}
END_TEST

static struct gate lent, may_end;
static struct pdn_loan own_loan;

static void lend_both(void *region)
{
	struct pdn_loan near_loan;

	ck_assert_int_eq(pdn_dmabuf_lend(region, near_card, &near_loan), PINDOWN_OK);
	ck_assert_int_eq(pdn_dmabuf_lend(region, far_card, &own_loan), PINDOWN_OK);
	ck_assert_int_ge(own_loan.own.fd, 0);
	gate_open(&lent);
	gate_wait(&may_end);
	pdn_dmabuf_end_loan(region, &own_loan, true);
	pdn_dmabuf_end_loan(region, &near_loan, true);
}

/* A fork that waits no longer for the end of the loan: its child does not keep the memory. */
START_TEST(a_fork_during_a_loan)
{
	struct worker worker;
	int status;
	pid_t child;

	begin_on(GRACE, NULL);
	pdn_fork_wait_ns = 1000000;
	gate_init(&lent);
	gate_init(&may_end);
	pindown_region *region = must_get(alloc(MIB(2)), 1);
	worker_start(&worker, lend_both, region);
	gate_wait(&lent);
	pdn_fork_prepare();
	child = fork();
	if (child == 0) {
		pdn_fork_child();
		_exit(pdn_descriptor_is(own_loan.own.fd, own_loan.own.fd_identity));
	}
	pdn_fork_parent();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	gate_open(&may_end);
	worker_join(&worker);
	pindown_put(region);
	remove_machine();
}
END_TEST

/* The choice for the last card is that of the next pin: no export is made for nothing. */
START_TEST(the_choice_is_remembered)
{
	uint64_t before;

	begin_on(GRACE, NULL);
	ck_assert_int_eq(lent_new(near_card), 'p');
	ck_assert_uint_eq(EXPORTS(), 2);
	for (int i = 0; i < 4; i++) {
		before = EXPORTS();
		ck_assert_int_eq(lent_new(near_card), 'p');
		ck_assert_uint_eq(EXPORTS(), before + 1);
	}
	remove_machine();
}
END_TEST

/* ---- refusals ---- */

START_TEST(the_flag_is_not_tried_where_it_does_not_matter)
{
	begin_on(X86, NULL);
	sim_set_mappings(1, 1, 0);
	ck_assert_int_eq(lent_new(near_card), 'd');
	ck_assert_uint_eq(EXPORTS(), 1);
	remove_machine();
}
END_TEST

/* Asked for by the setting, and refused: three calls once, and then one for each export. */
START_TEST(a_driver_that_refuses_the_flag)
{
	begin_on(_i ? GRACE_OLD : X86, "pcie");
	ck_assert_int_eq(lent_new(far_card), 'd');
	ck_assert_uint_eq(EXPORTS(), 3);
	ck_assert_int_eq(lent_new(near_card), 'd');
	ck_assert_uint_eq(EXPORTS(), 4);
	remove_machine();
}
END_TEST

START_TEST(a_driver_that_does_not_know_the_flag)
{
	uint64_t before;

	begin_on(GRACE_OLD, NULL);
	ck_assert_int_eq(lent_new(near_card), 'd');
	before = EXPORTS();
	ck_assert_int_eq(lent_new(near_card), 'd');
	ck_assert_uint_eq(EXPORTS(), before + 1);
	remove_machine();
}
END_TEST

START_TEST(a_driver_that_refuses_the_default)
{
	begin_on(GRACE_NOT_BY_DEFAULT, _i ? "default" : NULL);
	ck_assert_int_eq(lent_new(far_card), 'p');
	ck_assert_int_eq(lent_new(near_card), 'p');
	remove_machine();
}
END_TEST

/* Freed memory is refused with the same error: the mapping is not given up for it. */
START_TEST(a_refusal_that_does_not_come_again)
{
	begin_on(GRACE, "pcie");
	ck_assert_int_eq(sim_fail("cuMemGetHandleForAddressRange:1=CUDA_ERROR_INVALID_VALUE"), 0);
	ck_assert_int_eq(lent_new(far_card), 'p');
	ck_assert_int_eq(lent_new(far_card), 'p');
	remove_machine();
}
END_TEST

/* Nor for a refusal that is followed by another failure. */
START_TEST(a_refusal_and_then_another_failure)
{
	begin_on(GRACE, "pcie");
	ck_assert_int_eq(sim_fail("cuMemGetHandleForAddressRange:1=CUDA_ERROR_INVALID_VALUE,"
				  "cuMemGetHandleForAddressRange:3=CUDA_ERROR_OUT_OF_MEMORY"),
			 0);
	lent_new(far_card);
	ck_assert(pdn_mapping_is_possible(0, true));
	ck_assert_int_eq(lent_new(far_card), 'p');
	remove_machine();
}
END_TEST

START_TEST(memory_that_only_the_default_exports)
{
	begin_on(GRACE, "pcie");
	ck_assert_int_eq(lent_new(near_card), 'p');
	CUdeviceptr p = alloc(MIB(2));
	sim_set_mappings(1, 0, 1);
	pindown_region *region = must_get(p, 1);
	int fd;
	ck_assert_int_eq(pdn_dmabuf_borrow_default(region, &fd), PINDOWN_OK);
	ck_assert(!sim_dmabuf_is_pcie(fd));
	pdn_dmabuf_return(region, true);
	pindown_put(region);
	sim_set_mappings(1, 1, 1);
	ck_assert_int_eq(lent_new(near_card), 'p');
	remove_machine();
}
END_TEST

START_TEST(memory_that_can_not_be_exported_at_all)
{
	begin_on(GRACE, "pcie");
	CUdeviceptr p = alloc(MIB(2));
	sim_set_mappings(0, 0, 1);
	must_refuse(p, 1, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), CUDA_ERROR_NOT_SUPPORTED);
	remove_machine();
}
END_TEST

START_TEST(a_setting_overrides_the_topology)
{
	begin_on(GRACE, _i ? "pcie" : "default");
	ck_assert_int_eq(lent_new(near_card), _i ? 'p' : 'd');
	ck_assert_int_eq(lent_new(far_card), _i ? 'p' : 'd');
	remove_machine();
}
END_TEST

/* ---- refusals by the card ---- */

START_TEST(the_other_mapping_is_lent_once)
{
	struct pdn_loan loan;

	begin_on(_i ? GRACE : X86, NULL);
	pindown_region *region = must_get(alloc(MIB(2)), 1);
	ck_assert_int_eq(pdn_dmabuf_lend(region, near_card, &loan), PINDOWN_OK);
	ck_assert_int_eq(sim_dmabuf_is_pcie(loan.fd), _i);
	ck_assert_int_eq(pdn_dmabuf_lend_other(region, &loan), _i);
	ck_assert_int_eq(sim_dmabuf_is_pcie(loan.fd), 0);
	ck_assert(!pdn_dmabuf_lend_other(region, &loan));
	pdn_dmabuf_end_loan(region, &loan, true);
	pindown_put(region);
	remove_machine();
}
END_TEST

/* ---- one for all ---- */

START_TEST(one_export_serves_all_cards)
{
	begin_on(X86, NULL);
	CUdeviceptr p = alloc(MIB(2));
	pindown_region *region = must_get(p, 1);
	for (int i = 0; i < 8; i++)
		lent_to(region, i % 2 ? near_card : far_card);
	ck_assert_uint_eq(EXPORTS(), 1);
	ck_assert_uint_eq(stats().exports_saved, 7);
	ck_assert_uint_eq(stats().dmabufs, 1);
	pindown_put(region);
	OK(sim_free(p));
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(stats().dmabufs, 0);
	remove_machine();
}
END_TEST

/* Those that are kept give way to pins, which keep theirs, before any region is evicted. */
START_TEST(kept_ones_give_way)
{
	enum { REGISTERED = 6, PINNED = 32 };
	struct rlimit limit;
	pindown_region *held[PINNED];

	begin_on(X86, NULL);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 64;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int i = 0; i < REGISTERED; i++) {
		pindown_region *region = must_get(alloc(MIB(2)), 1);

		lent_to(region, near_card);
		pindown_put(region);
	}
	ck_assert_uint_eq(stats().dmabufs, REGISTERED);
	for (int i = 0; i < PINNED; i++)
		held[i] = must_get(alloc(MIB(2)), 1);
	ck_assert_uint_eq(stats().dmabufs, PINNED);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_uint_eq(stats().regions, REGISTERED + PINNED);
	for (int i = 0; i < PINNED; i++)
		pindown_put(held[i]);
	remove_machine();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: mappings of dma-bufs");
	TCase *tc = sim_case(suite, "topology");

	tcase_add_test(tc, near_is_below_the_same_bridge);
	tcase_add_test(tc, each_card_gets_its_own_mapping);
	tcase_add_test(tc, the_same_region_for_both_kinds);
	tcase_add_test(tc, both_kinds_at_once);
	tcase_add_test(tc, a_fork_during_a_loan);
	tcase_add_test(tc, the_choice_is_remembered);
	tc = sim_case(suite, "refusals");
	tcase_add_test(tc, the_flag_is_not_tried_where_it_does_not_matter);
	tcase_add_loop_test(tc, a_driver_that_refuses_the_flag, 0, 2);
	tcase_add_test(tc, a_driver_that_does_not_know_the_flag);
	tcase_add_loop_test(tc, a_driver_that_refuses_the_default, 0, 2);
	tcase_add_test(tc, a_refusal_that_does_not_come_again);
	tcase_add_test(tc, a_refusal_and_then_another_failure);
	tcase_add_test(tc, memory_that_only_the_default_exports);
	tcase_add_test(tc, memory_that_can_not_be_exported_at_all);
	tcase_add_loop_test(tc, a_setting_overrides_the_topology, 0, 2);
	tcase_add_loop_test(tc, the_other_mapping_is_lent_once, 0, 2);
	tc = sim_case(suite, "one for all");
	tcase_add_test(tc, one_export_serves_all_cards);
	tcase_add_test(tc, kept_ones_give_way);
	return run_suite(suite);
}
