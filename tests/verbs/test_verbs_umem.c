/* SPDX-License-Identifier: MIT */
/* Umems of GPU memory: what comes from the cache, and what is left to libmlx5. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs_test.h"

#define WRITE	      IBV_ACCESS_LOCAL_WRITE
#define PAGES	      (UINT64_MAX & ~4095ull) /* as libmlx5 passes them for mlx5dv_devx_umem_reg */
#define plain_calls() recorder_calls(RECORDER_UMEM_REG)
#define ex_calls()    recorder_calls(RECORDER_UMEM_REG_EX)
#define ends()	      recorder_calls(RECORDER_UMEM_DEREG)

static CUdeviceptr p; /* 4 MiB */
static int fd;	      /* all of it */

static void begin_with_export(void)
{
	begin();
	p = gpu_alloc(MIB(4));
	OK(cuMemGetHandleForAddressRange(&fd, p, MIB(4), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
}

static struct mlx5dv_devx_umem *reg(CUdeviceptr addr, size_t size)
{
	struct mlx5dv_devx_umem *umem;

	errno = 4321;
	umem = mlx5dv_devx_umem_reg(device, (void *)addr, size, WRITE);
	ck_assert_msg(umem != NULL, "errno %d", errno);
	ck_assert_int_eq(errno, 4321);
	return umem;
}

static struct mlx5dv_devx_umem_in by_dmabuf(uint64_t offset, size_t size)
{
	return (struct mlx5dv_devx_umem_in){
		.addr = (void *)offset,
		.size = size,
		.access = WRITE,
		.pgsz_bitmap = PAGES,
		.comp_mask = MLX5DV_UMEM_MASK_DMABUF,
		.dmabuf_fd = fd,
	};
}

static struct mlx5dv_devx_umem *reg_in(struct mlx5dv_devx_umem_in in)
{
	struct mlx5dv_devx_umem *umem;

	errno = 4321;
	umem = mlx5dv_devx_umem_reg_ex(device, &in);
	ck_assert_msg(umem != NULL, "errno %d", errno);
	ck_assert_int_eq(errno, 4321);
	return umem;
}

static void dereg(struct mlx5dv_devx_umem *umem)
{
	errno = 4321;
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(umem), 0);
	ck_assert_int_eq(errno, 4321);
}

/* ---- one umem ---- */

START_TEST(by_address)
{
	struct mlx5dv_devx_umem *first, *second;
	struct recorder_call call;

	begin_with_export();
	first = reg(p + 5000, 10000);
	second = reg(p + 5000, 10000);
	ck_assert_ptr_ne(first, second);
	ck_assert_uint_eq(first->umem_id, second->umem_id);
	ck_assert_uint_eq(plain_calls(), 0); /* which can't do it */
	ck_assert_uint_eq(ex_calls(), 1);
	call = last_call(RECORDER_UMEM_REG_EX);
	ck_assert_uint_eq(call.addr, 5000); /* exactly what the program named */
	ck_assert_uint_eq(call.length, 10000);
	ck_assert_int_eq(call.access, WRITE);
	ck_assert_uint_eq(call.flags, PAGES);
	gpu_fill(p + 5000, 'x', 1);
	ck_assert_int_eq(recorder_umem_bytes(first->umem_id)[0], 'x');
	dereg(first);
	dereg(second);
	dereg(reg(p + 5000, 10000));
	ck_assert_uint_eq(ex_calls(), 1);
	ck_assert_uint_eq(ends(), 0);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(ends(), 1);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(by_a_dmabuf)
{
	struct mlx5dv_devx_umem *first, *second;

	begin_with_export();
	first = reg_in(by_dmabuf(8192, KIB(64)));
	second = reg_in(by_dmabuf(8192, KIB(64)));
	ck_assert_uint_eq(first->umem_id, second->umem_id);
	ck_assert_uint_eq(ex_calls(), 1);
	ck_assert_int_ne(last_call(RECORDER_UMEM_REG_EX).fd, fd); /* the region's */
	ck_assert_uint_eq(last_call(RECORDER_UMEM_REG_EX).addr, 8192);
	close(fd);
	gpu_fill(p + 8192, 'y', 1);
	ck_assert_int_eq(recorder_umem_bytes(first->umem_id)[0], 'y');
	dereg(first);
	dereg(second);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(another_one_for_each_difference)
{
	struct mlx5dv_devx_umem_in in;
	struct ibv_context *other;
	unsigned made = 0;

	begin_with_export();
	other = open_device(1);
	for (unsigned round = 0; round < 2; round++) {
		dereg(reg(p, 8192));
		dereg(reg(p, 8193));
		dereg(reg(p + 64, 8192));
		dereg(mlx5dv_devx_umem_reg(device, (void *)p, 8192,
					   WRITE | IBV_ACCESS_REMOTE_WRITE));
		dereg(mlx5dv_devx_umem_reg(other, (void *)p, 8192, WRITE));
		in = by_dmabuf(0, 8192);
		in.pgsz_bitmap = 4096;
		dereg(reg_in(in));
		if (!round)
			ck_assert_uint_eq(last_call(RECORDER_UMEM_REG_EX).flags, 4096);
		in.pgsz_bitmap = 8192;
		dereg(reg_in(in));
		if (!round)
			made = ex_calls();
	}
	ck_assert_uint_eq(made, 7);
	ck_assert_uint_eq(ex_calls(), 7);
}
END_TEST

/* By address it is as mlx5dv_devx_umem_reg with the same page sizes. */
START_TEST(by_address_in_the_extended_call)
{
	struct mlx5dv_devx_umem_in in = {.size = 4096, .access = WRITE, .pgsz_bitmap = PAGES};

	begin_with_export();
	in.addr = (void *)(p + 4096);
	in.dmabuf_fd = 12345; /* not named by the mask */
	dereg(reg_in(in));
	dereg(reg(p + 4096, 4096));
	ck_assert_uint_eq(ex_calls(), 1);
	ck_assert_uint_eq(last_call(RECORDER_UMEM_REG_EX).addr, 4096);
}
END_TEST

/* libmlx5 reads the structure that the program's umem is in. */
START_TEST(exported_to_another_process)
{
	struct mlx5dv_devx_umem *umem;
	uint32_t data[2];

	begin_with_export();
	umem = reg(p, 4096);
	ck_assert_int_eq(mlx5dv_devx_umem_export(umem, data), 0);
	ck_assert_uint_eq(data[1], umem->umem_id);
	ck_assert_uint_eq(data[0], 0x10000 + umem->umem_id); /* the recording libmlx5's handle */
	dereg(umem);
}
END_TEST

/* Another mapping for the card: from the program's own dma-buf, and cached all the same. */
START_TEST(an_export_with_flags)
{
	struct mlx5dv_devx_umem_in in;

	begin_with_export();
	close(fd);
	OK(cuMemGetHandleForAddressRange(&fd, p + MIB(1), MIB(1),
					 CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					 CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE));
	in = by_dmabuf(4096, 8192);
	dereg(reg_in(in));
	dereg(reg_in(in));
	ck_assert_uint_eq(ex_calls(), 1);
	ck_assert_int_ne(last_call(RECORDER_UMEM_REG_EX).fd, fd); /* a duplicate of it */
	ck_assert_uint_eq(last_call(RECORDER_UMEM_REG_EX).addr, 4096);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 0);
}
END_TEST

/* ---- its end ---- */

static bool freed_first;

static void look(void *arg)
{
	(void)arg;
	freed_first = sim_calls("cuMemFree_v2") != 0;
}

START_TEST(an_idle_umem_ends_before_the_driver_frees)
{
	begin_with_export();
	dereg(reg(p, 4096));
	recorder_meanwhile(RECORDER_UMEM_DEREG, look, NULL);
	gpu_free(p);
	ck_assert_uint_eq(ends(), 1);
	ck_assert(!freed_first);
}
END_TEST

START_TEST(a_held_umem_is_kept_and_counted)
{
	struct mlx5dv_devx_umem *umem;

	begin_with_export();
	umem = reg(p, 8192);
	close(fd);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	ck_assert_uint_eq(sim_kept_bytes(0), MIB(4));
	dereg(umem);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(a_device_ends_with_its_umems)
{
	struct mlx5dv_devx_umem *held;

	begin_with_export();
	dereg(reg(p, 4096));
	held = reg(p, 8192);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(ends(), 1);
	device = open_device(0); /* at the same address */
	dereg(reg(p, 8192));
	ck_assert_uint_eq(ex_calls(), 3);
	dereg(held);
	ck_assert_uint_eq(ends(), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 0);
}
END_TEST

START_TEST(deregistered_twice)
{
	struct mlx5dv_devx_umem *umem;

	begin_with_export();
	umem = reg(p, 8192);
	dereg(umem);
	ck_assert_int_eq(mlx5dv_devx_umem_dereg(umem), EINVAL);
	dereg(reg(p, 8192));
	ck_assert_uint_eq(ex_calls(), 1);
	ck_assert_uint_eq(ends(), 0);
}
END_TEST

/* A provider may look at the members of its own, behind those of libibverbs. */
static void give_back(struct ibv_mr *mr)
{
	const uint64_t *providers = (const void *)((const char *)mr + sizeof(struct pdn_verbs_mr));

	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(providers[i], 0);
	must_deregister(mr);
}

/* Regions and umems take turns in the same records, also as the cache's own. */
START_TEST(records_are_used_again)
{
	begin_with_export();
	for (unsigned i = 0; i < 20; i++) {
		CUdeviceptr q = gpu_alloc(MIB(2));

		dereg(reg(q, 4096));
		gpu_free(q);
		give_back(must_register(pd, p, 4096, WRITE));
	}
	ck_assert_uint_eq(ex_calls(), 20);
	for (unsigned i = 0; i < 1000; i++) {
		dereg(reg(p, 8192));
		give_back(must_register(pd, p, 8192, WRITE));
		dereg(reg_in(by_dmabuf(0, 4096)));
		give_back(ibv_reg_dmabuf_mr(pd, 0, 4096, p, fd, WRITE));
	}
	ck_assert_uint_eq(ex_calls(), 22);
	ck_assert_uint_eq(dmabuf_calls(), 2);
}
END_TEST

/* An object of the card still uses it, which the program has not ended in time. */
START_TEST(a_umem_that_the_card_still_needs)
{
	struct mlx5dv_devx_umem *umem, *other;
	CUdeviceptr q;
	uint32_t id;

	begin_with_export();
	close(fd);
	q = gpu_alloc(MIB(2));
	other = reg(q, 4096);
	umem = reg(p, 8192);
	id = umem->umem_id;
	ck_assert(recorder_umem_use(id, true));
	dereg(umem);
	gpu_free(p);
	ck_assert_uint_eq(ends(), 2); /* it is asked twice: see the next test */
	ck_assert_uint_eq(recorder_open_umems(), 2);
	dereg(reg(q, 8192)); /* the card refuses again */
	ck_assert_uint_eq(ends(), 3);
	ck_assert_uint_eq(recorder_open_umems(), 3);
	ck_assert(recorder_umem_use(id, false));
	dereg(other);
	ck_assert_uint_eq(ends(), 4);
	ck_assert_uint_eq(recorder_open_umems(), 2);
	dereg(reg(q, 4096));
	ck_assert_uint_eq(ends(), 4);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* The object ends just after the refusal: no later dereg is needed. */
START_TEST(a_umem_that_the_card_needs_for_a_moment)
{
	begin_with_export();
	close(fd);
	dereg(reg(p, 8192));
	recorder_fail(RECORDER_UMEM_DEREG, 1, EBUSY);
	gpu_free(p);
	ck_assert_uint_eq(ends(), 2);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

static CUdeviceptr elsewhere;
static unsigned asked;
static uint32_t needed;

/* In another thread's place: after the second refusal, and before the umem counts as stuck. */
static void end_the_object(void *arg)
{
	(void)arg;
	if (++asked != 2)
		return;
	ck_assert(recorder_umem_use(needed, false));
	recorder_fail(RECORDER_UMEM_DEREG, 0, 0);
	dereg(reg(elsewhere, 4096));
}

START_TEST(a_dereg_while_the_card_refuses)
{
	struct mlx5dv_devx_umem *umem;

	begin_with_export();
	close(fd);
	elsewhere = gpu_alloc(MIB(2));
	umem = reg(p, 8192);
	needed = umem->umem_id;
	ck_assert(recorder_umem_use(needed, true));
	dereg(umem);
	recorder_fail(RECORDER_UMEM_DEREG, 2, EBUSY);
	recorder_meanwhile(RECORDER_UMEM_DEREG, end_the_object, NULL);
	gpu_free(p);
	ck_assert_uint_eq(ends(), 3);
	ck_assert_uint_eq(recorder_open_umems(), 1); /* the one elsewhere */
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

START_TEST(a_device_that_ends_with_a_stuck_umem)
{
	struct mlx5dv_devx_umem *umem;

	begin_with_export();
	umem = reg(p, 8192);
	ck_assert(recorder_umem_use(umem->umem_id, true));
	dereg(umem);
	gpu_free(p);
	ck_assert_uint_eq(ends(), 2);
	ck_assert_int_eq(ibv_close_device(device), 0);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	device = open_device(0); /* at the same address */
	p = gpu_alloc(MIB(4));
	dereg(reg(p, 8192));
	ck_assert_uint_eq(ends(), 2);
}
END_TEST

/* ---- what is left to libmlx5 ---- */

START_TEST(host_memory_is_libmlx5s_own)
{
	char *host = malloc(8192);
	struct mlx5dv_devx_umem_in in = {.size = 8192, .access = WRITE, .pgsz_bitmap = 4096};

	begin();
	for (unsigned i = 0; i < 2; i++)
		dereg(reg((uintptr_t)host, 8192));
	ck_assert_uint_eq(plain_calls(), 2);
	ck_assert_uint_eq(last_call(RECORDER_UMEM_REG).addr, (uintptr_t)host);
	ck_assert_uint_eq(ex_calls(), 0);
	in.addr = host;
	dereg(reg_in(in));
	ck_assert_uint_eq(last_call(RECORDER_UMEM_REG_EX).flags, 4096);
	ck_assert_uint_eq(ends(), 3);
	free(host);
}
END_TEST

START_TEST(a_dmabuf_that_is_not_known)
{
	struct mlx5dv_devx_umem_in in;

	begin_with_export();
	in = by_dmabuf(0, 4096);
	in.dmabuf_fd = memfd_create("unknown", MFD_CLOEXEC);
	dereg(reg_in(in));
	dereg(reg_in(in));
	ck_assert_uint_eq(ex_calls(), 2);
	ck_assert_uint_eq(ends(), 2);
	ck_assert_int_eq(last_call(RECORDER_UMEM_REG_EX).fd, in.dmabuf_fd);
	ck_assert_uint_eq(stats().misses, 0);
}
END_TEST

START_TEST(what_libmlx5_refuses)
{
	struct mlx5dv_devx_umem_in in;
	char *host = malloc(4096);

	begin_with_export();
	in = by_dmabuf(0, 4096);
	in.comp_mask |= 1 << 5;
	errno = 0;
	ck_assert_ptr_null(mlx5dv_devx_umem_reg_ex(device, &in));
	ck_assert_int_eq(errno, EOPNOTSUPP);
	in = by_dmabuf(0, 4096);
	in.dmabuf_fd = -1;
	errno = 0;
	ck_assert_ptr_null(mlx5dv_devx_umem_reg_ex(device, &in));
	ck_assert_int_eq(errno, EBADF);
	errno = 0;
	ck_assert_ptr_null(mlx5dv_devx_umem_reg(device, (void *)p, 4096, IBV_ACCESS_ON_DEMAND));
	ck_assert_int_eq(errno, EINVAL);
	errno = 0;
	ck_assert_ptr_null(mlx5dv_devx_umem_reg(device, (void *)p, 0, WRITE));
	ck_assert_int_eq(errno, EINVAL);
	/* A card that can't do it by dma-buf: its answer to the program's own call. */
	recorder_fail(RECORDER_UMEM_REG_EX, UINT32_MAX, EOPNOTSUPP);
	errno = 0;
	ck_assert_ptr_null(mlx5dv_devx_umem_reg(device, (void *)p, 4096, WRITE));
	ck_assert_int_eq(errno, EFAULT);
	dereg(reg((uintptr_t)host, 4096));
	/* It is no limit of the card for regions. */
	register_once(pd, p, 4096, WRITE);
	free(host);
}
END_TEST

START_TEST(a_umem_of_memory_allocated_behind_pindown)
{
	CUresult (*alloc)(CUdeviceptr *, size_t);

	begin();
	alloc = (CUresult(*)(CUdeviceptr *, size_t))unwatched("cuMemAlloc_v2");
	OK(alloc(&p, MIB(4)));
	dereg(reg(p, 4096));
	ck_assert_uint_eq(plain_calls(), 1);
	ck_assert_uint_eq(ex_calls(), 1);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_umems(), 0);
}
END_TEST

/* The regions that are cached may be the reason. */
START_TEST(a_card_without_room_for_a_umem)
{
	char *host = malloc(4096);

	begin_with_export();
	register_once(pd, p, 4096, WRITE);
	recorder_fail(RECORDER_UMEM_REG, 1, ENOMEM);
	dereg(reg((uintptr_t)host, 4096));
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(plain_calls(), 2);
	recorder_fail(RECORDER_UMEM_REG, 1, ENOMEM);
	errno = 0;
	ck_assert_ptr_null(mlx5dv_devx_umem_reg(device, host, 4096, WRITE));
	ck_assert_int_eq(errno, ENOMEM);
	free(host);
}
END_TEST

/* ---- processes and threads ---- */

START_TEST(a_child_leaves_its_parents_umems_alone)
{
	struct mlx5dv_devx_umem *umem, *stuck;
	CUdeviceptr q;
	int status;
	pid_t child;

	begin_with_export();
	umem = reg(p, 4096);
	q = gpu_alloc(MIB(2));
	stuck = reg(q, 4096);
	ck_assert(recorder_umem_use(stuck->umem_id, true));
	dereg(stuck);
	gpu_free(q);
	child = fork();
	if (child == 0) {
		unsigned before = ends();

		_exit(mlx5dv_devx_umem_dereg(umem) == 0 && ends() == before ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(recorder_open_umems(), 2);
	ck_assert_uint_eq(ends(), 2);
	dereg(umem);
	ck_assert_uint_eq(ends(), 3); /* of the stuck one, which the card still needs */
}
END_TEST

static void *register_and_free(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	for (unsigned i = 0; i < 300; i++) {
		CUdeviceptr own = gpu_alloc(MIB(2));
		struct mlx5dv_devx_umem *umem[2];

		gpu_fill(own, (char)i, 1);
		for (unsigned k = 0; k < 2; k++)
			umem[k] = mlx5dv_devx_umem_reg(device, (void *)own, 4096, WRITE);
		ck_assert_int_eq(recorder_umem_bytes(umem[0]->umem_id)[0], (char)i);
		dereg(umem[0]);
		dereg(umem[1]);
		gpu_free(own);
	}
	return NULL;
}

START_TEST(threads_that_register_umems_and_free)
{
	begin();
	in_four_threads(register_and_free);
	ck_assert_uint_eq(recorder_open_umems(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: umems");
	TCase *tc = verbs_case(suite, "one umem");

	setenv("SIM_EXPORT_PCIE", "1", 1);
	tcase_add_test(tc, by_address);
	tcase_add_test(tc, by_a_dmabuf);
	tcase_add_test(tc, another_one_for_each_difference);
	tcase_add_test(tc, by_address_in_the_extended_call);
	tcase_add_test(tc, exported_to_another_process);
	tcase_add_test(tc, an_export_with_flags);
	tc = verbs_case(suite, "its end");
	tcase_add_test(tc, an_idle_umem_ends_before_the_driver_frees);
	tcase_add_test(tc, a_held_umem_is_kept_and_counted);
	tcase_add_test(tc, a_device_ends_with_its_umems);
	tcase_add_test(tc, deregistered_twice);
	tcase_add_test(tc, records_are_used_again);
	tcase_add_test(tc, a_umem_that_the_card_still_needs);
	tcase_add_test(tc, a_umem_that_the_card_needs_for_a_moment);
	tcase_add_test(tc, a_dereg_while_the_card_refuses);
	tcase_add_test(tc, a_device_that_ends_with_a_stuck_umem);
	tc = verbs_case(suite, "left to libmlx5");
	tcase_add_test(tc, host_memory_is_libmlx5s_own);
	tcase_add_test(tc, a_dmabuf_that_is_not_known);
	tcase_add_test(tc, what_libmlx5_refuses);
	tcase_add_test(tc, a_umem_of_memory_allocated_behind_pindown);
	tcase_add_test(tc, a_card_without_room_for_a_umem);
	tc = verbs_case(suite, "processes and threads");
	tcase_add_test(tc, a_child_leaves_its_parents_umems_alone);
	tcase_add_test(tc, threads_that_register_umems_and_free);
	return run_verbs_tests(argc, argv, suite);
}
