/* SPDX-License-Identifier: MIT */
/*
 * The ends of registrations: with their memory, their protection domain, their device; and a
 * program's ibv_mr that it deregisters late or twice, or passes to other code.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/descriptors.h"
#include "verbs_test.h"

static CUdeviceptr p; /* 4 MiB */

static void begin_with_memory(void)
{
	begin();
	p = gpu_alloc(MIB(4));
}

/* ---- the memory ---- */

START_TEST(the_end_of_a_context_deregisters)
{
	begin_with_memory();
	register_once(pd, p, 4096, ALL_ACCESS);
	OK(cuCtxDestroy_v2(cuda));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
}
END_TEST

static bool still_open; /* still open during the driver's free */

static void look(void *arg)
{
	(void)arg;
	still_open = sim_calls("cuMemFree_v2") != 0;
}

START_TEST(it_is_deregistered_before_the_driver_frees)
{
	begin_with_memory();
	register_once(pd, p, 4096, ALL_ACCESS);
	still_open = true;
	recorder_meanwhile(RECORDER_DEREG_MR, look, NULL);
	gpu_free(p);
	ck_assert(!still_open);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
}
END_TEST

START_TEST(a_flush_deregisters_what_is_not_in_use)
{
	struct ibv_mr *mr;
	CUdeviceptr q;

	begin_with_memory();
	q = gpu_alloc(MIB(2));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	register_once(pd, q, 4096, ALL_ACCESS);
	pindown_flush();
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	pindown_flush();
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/* More of this: test_verbs_retire.c; PINDOWN_HELD=keep: test_verbs_modes.c. */
START_TEST(a_region_that_the_program_holds_ends_too)
{
	struct ibv_mr *mr, *again;
	CUdeviceptr q;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	q = gpu_alloc(MIB(4));
	ck_assert_uint_ne(q, p);
	again = must_register(pd, q, 4096, ALL_ACCESS);
	must_deregister(mr);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	must_deregister(again);
}
END_TEST

/* The card owns the dma-buf once it is registered. */
START_TEST(registrations_take_no_descriptors)
{
	struct ibv_mr *mr[300];
	CUdeviceptr q[300];

	begin();
	allow_descriptors(64);
	for (int i = 0; i < 300; i++) {
		q[i] = gpu_alloc(MIB(2));
		mr[i] = must_register(pd, q[i], 4096, ALL_ACCESS);
	}
	ck_assert_uint_eq(recorder_open_mrs(), 300);
	ck_assert_uint_eq(stats().regions, 300);
	must_deregister(must_register(pd, q[0], 4096, 0)); /* it is there for another one, too */
	for (int i = 0; i < 300; i++) {
		gpu_fill(q[i], (char)i, 10);
		must_deregister(mr[i]);
		gpu_free(q[i]);
	}
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
}
END_TEST

/*
 * The program holds all regions, so that eviction frees no space: the program gets the error of the
 * original call, for now.
 */
START_TEST(a_process_without_descriptors)
{
	begin_with_memory();
	allow_descriptors(128);
	take_descriptors_but(0);
	ck_assert_ptr_null(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_int_eq(errno, EFAULT);
	recorder_peermem(true);
	must_deregister(ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS));
	ck_assert_uint_eq(dmabuf_calls(), 0);
	give_descriptors_back();
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 1);
}
END_TEST

/* A region with one half of the process's limit stays; one without any is left alone. */
START_TEST(what_is_idle_with_a_descriptor_goes)
{
	pindown_region *region;

	begin();
	allow_descriptors(64);
	for (int i = 0; i < 50; i++)
		register_once(pd, gpu_alloc(MIB(2)), 4096, ALL_ACCESS);
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(pindown_get(gpu_alloc(MIB(2)), 1, 0, &region), PINDOWN_OK);
		pindown_put(region);
	}
	ck_assert_uint_eq(stats().regions, 50 + 32);
	ck_assert_uint_eq(stats().evictions, 50 - 32);
	ck_assert_uint_eq(recorder_open_mrs(), 50);
}
END_TEST

/* ---- the protection domain and the device ---- */

START_TEST(a_domain_with_idle_registrations_can_go)
{
	begin_with_memory();
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().regions, 1); /* its pin stays for others */
	pd = ibv_alloc_pd(device);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 3);
}
END_TEST

START_TEST(a_domain_in_use_is_busy_as_without_us)
{
	struct ibv_mr *mr, *other;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	other = must_register(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	must_deregister(other);
	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	must_deregister(mr);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(other_domains_keep_theirs)
{
	struct ibv_pd *other;

	begin_with_memory();
	other = ibv_alloc_pd(device);
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(other, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	register_once(other, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
}
END_TEST

START_TEST(an_imported_domain_goes_with_its_registrations)
{
	struct ibv_pd *imported;

	begin_with_memory();
	imported = ibv_import_pd(device, pd->handle);
	register_once(imported, p, 4096, ALL_ACCESS);
	ibv_unimport_pd(imported);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(a_device_is_closed_with_nothing_left)
{
	begin_with_memory();
	register_once(pd, p, 4096, ALL_ACCESS);
	register_once(ibv_alloc_pd(device), p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_uint_eq(dereg_calls(), 2);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 2);
}
END_TEST

/* The kernel has ended it, and libibverbs has freed its structure. */
START_TEST(what_was_in_use_ends_with_its_device)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 0);
	ck_assert_uint_eq(stats().regions, 0);
}
END_TEST

START_TEST(a_device_that_does_not_close_keeps_what_is_in_use)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	recorder_fail(RECORDER_CLOSE_DEVICE, 1, EIO);
	ck_assert_int_eq(ibv_close_device(device), -1);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 1);
}
END_TEST

/* ---- what is held when its domain goes, and another one lies there ---- */

/*
 * Registers p in the domain at the address of `gone`, where a registration with this key is held.
 */
static void must_be_new(const void *gone, struct ibv_pd *in, const struct ibv_mr *held)
{
	unsigned before = dmabuf_calls();
	struct ibv_mr *mr;

	ck_assert_ptr_eq(in, gone);
	mr = must_register(in, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), before + 1);
	ck_assert_uint_ne(mr->rkey, held->rkey);
	must_deregister(mr);
	register_once(in, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), before + 1); /* the new registration is found */
}

START_TEST(a_domain_in_a_dead_ones_place_is_given_none_of_its_keys)
{
	struct ibv_mr *held, *shared;
	struct ibv_pd *parent;

	begin_with_memory();
	parent = recorder_parent_domain(pd);
	held = must_register(parent, p, 4096, ALL_ACCESS);
	shared = must_register(parent, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(shared->rkey, held->rkey);
	ck_assert_int_eq(ibv_dealloc_pd(parent), 0);
	must_be_new(parent, ibv_alloc_pd(open_device(1)), held);
	must_deregister(shared);
	ck_assert_uint_eq(recorder_open_mrs(), 2);
	/* Nobody can ask for it any more, so it does not wait for its next use. */
	must_deregister(held);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(nor_is_one_in_an_imported_ones_place)
{
	struct ibv_mr *held;
	struct ibv_pd *imported;

	begin_with_memory();
	imported = ibv_import_pd(device, pd->handle);
	held = must_register(imported, p, 4096, ALL_ACCESS);
	ibv_unimport_pd(imported);
	must_be_new(imported, ibv_alloc_pd(device), held);
	must_deregister(held);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
}
END_TEST

/* Two domains at one address, one after the other: one registration of each is still held. */
START_TEST(nor_is_the_third_one_there)
{
	struct ibv_mr *held[3];
	struct ibv_pd *parent;

	begin_with_memory();
	parent = recorder_parent_domain(pd);
	for (unsigned i = 0; i < 3; i++) {
		held[i] = must_register(parent, p, 4096, ALL_ACCESS);
		ck_assert_uint_eq(dmabuf_calls(), i + 1);
		ck_assert_int_eq(ibv_dealloc_pd(parent), 0);
		ck_assert_ptr_eq(recorder_parent_domain(pd), parent);
	}
	register_once(parent, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(recorder_open_mrs(), 4);
	for (unsigned i = 0; i < 3; i++)
		must_deregister(held[i]);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
}
END_TEST

START_TEST(nor_is_one_of_a_device_that_is_opened_again)
{
	struct ibv_mr *held, *mr;
	struct ibv_pd *old;

	begin_with_memory();
	old = recorder_parent_domain(pd);
	held = must_register(old, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_int_eq(ibv_dealloc_pd(old), 0); /* too late, and harmless */
	device = open_device(0);
	mr = must_register(ibv_alloc_pd(device), p, 4096, ALL_ACCESS);
	ck_assert_ptr_eq(mr->pd, old);
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 10), RECORDER_OK);
	must_deregister(held);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 1);
	ck_assert_uint_eq(recorder_strangers(), 0);
}
END_TEST

/* libibverbs would refuse, but it can't see it here. */
START_TEST(what_is_held_of_a_closed_device_is_not_found)
{
	begin_with_memory();
	must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_close_device(device), 0);
	must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
}
END_TEST

/* A held registration keeps the domain and stays valid; a later one is registered again, once. */
START_TEST(a_domain_that_stayed_since_it_is_in_use)
{
	struct ibv_mr *held;

	begin_with_memory();
	held = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_int_eq(ibv_dealloc_pd(pd), EBUSY);
	ck_assert_int_eq(recorder_copy(held->lkey, p, held->rkey, p + 4096, 10), RECORDER_OK);
	for (unsigned i = 0; i < 3; i++)
		register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	must_deregister(held);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_int_eq(ibv_dealloc_pd(pd), 0);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/* Space is freed on the card: nothing ends, and held registrations are shared as before. */
START_TEST(making_room_leaves_what_is_held)
{
	struct ibv_mr *held, *shared;

	begin_with_memory();
	held = must_register(pd, p, 4096, ALL_ACCESS);
	register_once(pd, p, 4096, IBV_ACCESS_LOCAL_WRITE);
	recorder_limit(0, 2);
	must_deregister(must_register(pd, gpu_alloc(MIB(2)), 4096, ALL_ACCESS));
	ck_assert_uint_eq(dereg_calls(), 1);
	shared = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(shared->rkey, held->rkey);
	must_deregister(shared);
	must_deregister(held);
}
END_TEST

/* ---- other users of an ibv_mr ---- */

START_TEST(given_back_twice)
{
	struct ibv_mr *mr;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	must_deregister(mr);
	ck_assert_int_eq(ibv_dereg_mr(mr), EINVAL);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 1);
}
END_TEST

START_TEST(a_program_s_own_dmabuf_has_keys_of_its_own)
{
	struct ibv_mr *mr, *ours;
	int fd = -1;

	begin_with_memory();
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(4), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	mr = ibv_reg_dmabuf_mr(pd, 4096, 8192, p + 4096, fd, ALL_ACCESS);
	ck_assert_ptr_nonnull(mr);
	close(fd);
	ours = must_register(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
	ck_assert_uint_ne(ours->lkey, mr->lkey);
	must_deregister(ours);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_uint_eq(dereg_calls(), 2);
	errno = 0;
	ck_assert_ptr_null(ibv_reg_dmabuf_mr(pd, 0, 4096, p, -1, ALL_ACCESS));
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

START_TEST(an_imported_region_is_not_ours)
{
	struct ibv_mr *mr, *imported;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	imported = ibv_import_mr(pd, mr->handle);
	ck_assert_ptr_nonnull(imported);
	ibv_unimport_mr(imported);
	ck_assert_uint_eq(recorder_calls(RECORDER_UNIMPORT_MR), 1);
	ibv_unimport_mr(mr);
	ck_assert_uint_eq(recorder_calls(RECORDER_UNIMPORT_MR), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

START_TEST(a_registration_that_does_not_end_is_told)
{
	begin_with_memory();
	register_once(pd, p, 4096, ALL_ACCESS);
	recorder_fail(RECORDER_DEREG_MR, 1, EBUSY);
	gpu_free(p);
	ck_assert_uint_eq(recorder_failed(RECORDER_DEREG_MR), 1);
	ck_assert_uint_eq(stats().regions, 0);
	register_once(pd, gpu_alloc(MIB(4)), 4096, ALL_ACCESS);
}
END_TEST

/* ---- processes ---- */

/*
 * libibverbs is called just as it would be without pindown: also with an address at which the
 * parent had GPU memory, which is not mapped in the child.
 */
static bool registers_host_memory_in_child(void)
{
	static char host[4096];
	unsigned dmabufs = dmabuf_calls(), before = dereg_calls();
	struct ibv_mr *mr = ibv_reg_mr(pd, host, sizeof(host), ALL_ACCESS);

	if (!mr || mr->addr != host || ibv_dereg_mr(mr) != 0 || dereg_calls() != before + 1)
		return false;
	mr = ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS);
	return !mr && errno == EFAULT && dmabuf_calls() == dmabufs;
}

static void in_child(struct ibv_mr *mr)
{
	unsigned before = dereg_calls();

	if (ibv_dereg_mr(mr) != 0 || dereg_calls() != before)
		_exit(1);
	pindown_flush();
	if (dereg_calls() != before || stats().regions != 0)
		_exit(2);
	if (ibv_dealloc_pd(pd) != EBUSY || dereg_calls() != before)
		_exit(3);
	if (!registers_host_memory_in_child())
		_exit(4);
	exit(0);
}

START_TEST(a_child_leaves_its_parents_registrations_alone)
{
	struct ibv_mr *mr;
	int status;
	pid_t child;

	begin_with_memory();
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	register_once(pd, gpu_alloc(MIB(2)), 4096, ALL_ACCESS);
	child = fork();
	if (child == 0)
		in_child(mr);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(recorder_open_mrs(), 2);
	ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 10), RECORDER_OK);
	must_deregister(mr);
	register_once(pd, p, 4096, ALL_ACCESS);
	ck_assert_uint_eq(dmabuf_calls(), 2);
}
END_TEST

static struct ibv_mr *late;

/* Runs after libpindown's own destructor, and after the driver's. */
static void at_exit(void)
{
	if (ibv_dereg_mr(late) != 0 || ibv_dealloc_pd(pd) != 0)
		_exit(1);
}

START_TEST(a_program_that_tidies_up_at_exit)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		atexit(at_exit);
		begin_with_memory();
		late = must_register(pd, p, 4096, ALL_ACCESS);
		register_once(pd, gpu_alloc(MIB(2)), 4096, ALL_ACCESS);
		exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs, ends");
	TCase *tc = verbs_case(suite, "memory");

	tcase_add_test(tc, the_end_of_a_context_deregisters);
	tcase_add_test(tc, it_is_deregistered_before_the_driver_frees);
	tcase_add_test(tc, a_flush_deregisters_what_is_not_in_use);
	tcase_add_test(tc, a_region_that_the_program_holds_ends_too);
	tcase_add_test(tc, registrations_take_no_descriptors);
	tcase_add_test(tc, what_is_idle_with_a_descriptor_goes);
	tcase_add_test(tc, a_process_without_descriptors);
	tc = verbs_case(suite, "domains and devices");
	tcase_add_test(tc, a_domain_with_idle_registrations_can_go);
	tcase_add_test(tc, a_domain_in_use_is_busy_as_without_us);
	tcase_add_test(tc, other_domains_keep_theirs);
	tcase_add_test(tc, an_imported_domain_goes_with_its_registrations);
	tcase_add_test(tc, a_device_is_closed_with_nothing_left);
	tcase_add_test(tc, what_was_in_use_ends_with_its_device);
	tcase_add_test(tc, a_device_that_does_not_close_keeps_what_is_in_use);
	tc = verbs_case(suite, "another domain in its place");
	tcase_add_test(tc, a_domain_in_a_dead_ones_place_is_given_none_of_its_keys);
	tcase_add_test(tc, nor_is_one_in_an_imported_ones_place);
	tcase_add_test(tc, nor_is_the_third_one_there);
	tcase_add_test(tc, nor_is_one_of_a_device_that_is_opened_again);
	tcase_add_test(tc, what_is_held_of_a_closed_device_is_not_found);
	tcase_add_test(tc, a_domain_that_stayed_since_it_is_in_use);
	tcase_add_test(tc, making_room_leaves_what_is_held);
	tc = verbs_case(suite, "other users");
	tcase_add_test(tc, given_back_twice);
	tcase_add_test(tc, a_program_s_own_dmabuf_has_keys_of_its_own);
	tcase_add_test(tc, an_imported_region_is_not_ours);
	tcase_add_test(tc, a_registration_that_does_not_end_is_told);
	tc = verbs_case(suite, "processes");
	tcase_add_test(tc, a_child_leaves_its_parents_registrations_alone);
	tcase_add_test(tc, a_program_that_tidies_up_at_exit);
	return run_verbs_tests(argc, argv, suite);
}
