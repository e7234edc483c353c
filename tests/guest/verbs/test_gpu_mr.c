// SPDX-License-Identifier: MIT
/*
 * GPU memory over RDMA, by a program that knows nothing of pindown: it allocates memory with
 * cuMemAlloc, registers it with ibv_reg_mr, and lets the RDMA device move it. It is run under
 * libpindown.so.
 */
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include "gpu_memory.h"

static struct ibv_mr *must_reg(struct ibv_pd *pd, CUdeviceptr ptr, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)ptr, size, ALL_ACCESS);

	if (!mr)
		fail("ibv_reg_mr of GPU memory: %s", strerror(errno));
	check_equal((uintptr_t)mr->addr, ptr);
	check_equal(mr->length, size);
	return mr;
}

TEST(bytes_move_between_gpu_buffers)
{
	struct connection pair = connect_pair();
	struct ibv_mr *mr[2], *host;
	CUdeviceptr from, to;
	char data[SIZE];

	start_cuda();
	from = gpu_buffer(SIZE, 31);
	to = gpu_buffer(SIZE, 32);
	mr[0] = must_reg(pair.pd, from, SIZE);
	mr[1] = must_reg(pair.pd, to, SIZE);
	host = ibv_reg_mr(pair.pd, data, SIZE, ALL_ACCESS);
	check(host);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(mr[0]), remote(mr[1]), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 31), SIZE);
	check_equal(rdma(&pair, IBV_WR_RDMA_READ, local(host), remote(mr[1]), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(differs(data, SIZE, 31), SIZE);
	check_equal(ibv_dereg_mr(mr[0]), 0);
	check_equal(ibv_dereg_mr(mr[1]), 0);
	check_equal(ibv_dereg_mr(host), 0);
	check_equal(cuMemFree_v2(from), CUDA_SUCCESS);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
	disconnect(&pair);
}

/* One registration and one request move bytes across the end of a mapping. */
TEST(bytes_move_between_mappings)
{
	struct connection pair = connect_pair();
	unsigned long made = hca_count("dmabuf_mrs");
	CUdeviceptr from, to, at;
	struct ibv_mr *mr[2];
	char data[SIZE];

	start_cuda();
	from = gpu_mappings(33);
	to = gpu_mappings(34);
	mr[0] = must_reg(pair.pd, from + BLOCK - SIZE / 2, SIZE);
	at = to + BLOCK - SIZE / 2;
	mr[1] = must_reg(pair.pd, at, SIZE);
	check_equal(hca_count("dmabuf_mrs"), made + 2);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(mr[0]), remote(mr[1]), SIZE),
		    IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 2; i++)
		check_equal(cuMemcpyDtoH_v2(data + i * SIZE / 2, at + i * SIZE / 2, SIZE / 2),
			    CUDA_SUCCESS);
	check_equal(differs(data, SIZE, 33), SIZE);
	check_equal(ibv_dereg_mr(mr[0]), 0);
	check_equal(ibv_dereg_mr(mr[1]), 0);
	/* The end of the part is the end of the registration. */
	check_equal(cuMemUnmap(from + BLOCK, BLOCK), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 1);
	check_equal(cuMemUnmap(from, BLOCK), CUDA_SUCCESS);
	check_equal(cuMemUnmap(to, 2 * BLOCK), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
	disconnect(&pair);
}

TEST(ten_thousand_registrations_are_one)
{
	struct connection pair = connect_pair();
	unsigned long made = hca_count("dmabuf_mrs");
	struct ibv_mr *mr, *other;
	CUdeviceptr ptr, to;
	uint32_t key;

	start_cuda();
	ptr = gpu_buffer(16 * PAGE, 41);
	mr = must_reg(pair.pd, ptr, 16 * PAGE);
	key = mr->rkey;
	check_equal(ibv_dereg_mr(mr), 0);
	for (unsigned i = 1; i < 10000; i++) {
		mr = must_reg(pair.pd, ptr + i, PAGE);
		check_equal(mr->rkey, key);
		check_equal(ibv_dereg_mr(mr), 0);
	}
	check_equal(hca_count("dmabuf_mrs"), made + 1);
	check_equal(hca_count("live_mrs"), 1);

	/* And it works for its memory. */
	to = gpu_buffer(SIZE, 42);
	mr = must_reg(pair.pd, ptr, SIZE);
	other = must_reg(pair.pd, to, SIZE);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(mr), remote(other), SIZE), IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 41), SIZE);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(ibv_dereg_mr(other), 0);
	check_equal(hca_count("dmabuf_mrs"), made + 2);
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	disconnect(&pair);
}

TEST(a_reused_address_is_registered_anew)
{
	struct connection pair = connect_pair();
	unsigned long made = hca_count("dmabuf_mrs");
	struct ibv_mr *mr, *source;
	struct place old;
	CUdeviceptr from, to, again;

	start_cuda();
	from = gpu_buffer(SIZE, 51);
	to = gpu_buffer(2 * PAGE, 52);
	source = must_reg(pair.pd, from, SIZE);
	mr = must_reg(pair.pd, to, SIZE);
	old = remote(mr);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(hca_count("live_mrs"), 2);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 1); /* deregistered when the free returns */

	again = gpu_buffer(2 * PAGE, 53);
	check_equal(again, to);
	mr = must_reg(pair.pd, again, SIZE);
	check_equal(hca_count("dmabuf_mrs"), made + 3);
	check(mr->rkey != old.key);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(source), old, SIZE),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(again, 53), SIZE);
	reconnect(&pair);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(source), remote(mr), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(again, 51), SIZE);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(ibv_dereg_mr(source), 0);
	disconnect(&pair);
}

TEST(each_access_is_a_registration_of_its_own)
{
	struct connection pair = connect_pair();
	unsigned long made = hca_count("dmabuf_mrs");
	struct ibv_mr *all, *readable;
	CUdeviceptr from, to;

	start_cuda();
	from = gpu_buffer(SIZE, 61);
	to = gpu_buffer(SIZE, 62);
	all = must_reg(pair.pd, from, SIZE);
	readable = ibv_reg_mr(pair.pd, (void *)from, SIZE, IBV_ACCESS_REMOTE_READ);
	check(readable && readable->rkey != all->rkey);
	check_equal(hca_count("dmabuf_mrs"), made + 2);
	check_equal(ibv_dereg_mr(readable), 0);
	readable = ibv_reg_mr(pair.pd, (void *)to, SIZE, IBV_ACCESS_REMOTE_READ);
	check(readable);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(all), remote(readable), 8),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(to, 62), SIZE);
	check_equal(ibv_dereg_mr(readable), 0);
	check_equal(ibv_dereg_mr(all), 0);
	check(!ibv_reg_mr(pair.pd, (void *)to, SIZE, ALL_ACCESS | IBV_ACCESS_ON_DEMAND));
	disconnect(&pair);
}

static int change(struct ibv_mr *mr, int flags, struct ibv_pd *pd, const void *addr, size_t length)
{
	return ibv_rereg_mr(mr, flags, pd, (void *)addr, length, 0);
}

/* pindown's ibv_mr, with a registration of host memory behind it, and then of GPU memory again. */
TEST(gpu_memory_becomes_host_memory_and_back)
{
	struct connection pair = connect_pair();
	struct ibv_pd *other = ibv_alloc_pd(pair.context);
	struct ibv_mr *mr, *target;
	CUdeviceptr from, to;
	struct place old;
	char *data = aligned_alloc(PAGE, SIZE);

	check(other && data);
	start_cuda();
	fill(data, SIZE, 91);
	from = gpu_buffer(SIZE, 92);
	to = gpu_buffer(SIZE, 93);
	target = must_reg(pair.pd, to, SIZE);
	mr = must_reg(other, from, SIZE);
	old = remote(mr);
	check_equal(change(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD, pair.pd,
			   data, SIZE),
		    0);
	check(mr->addr == data);
	check_equal(ibv_dealloc_pd(other), 0); /* it has left that */
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(mr), remote(target), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 91), SIZE);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(target), old, SIZE),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(from, 92), SIZE);
	reconnect(&pair);

	check_equal(change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)from, SIZE), 0);
	free(data);
	check_equal(hca_count("live_mrs"), 2); /* from and to */
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(mr), remote(target), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 92), SIZE);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(ibv_dereg_mr(target), 0);
	check_equal(cuMemFree_v2(from), CUDA_SUCCESS);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
	disconnect(&pair);
}

/* The device's address for the memory is the program's choice, not its real address. */
TEST(an_iova_of_the_programs_own)
{
	struct connection pair = connect_pair();
	CUdeviceptr from, to;
	struct ibv_mr *source, *mr;
	struct place there;

	start_cuda();
	from = gpu_buffer(SIZE, 71);
	to = gpu_buffer(4 * PAGE, 72);
	source = must_reg(pair.pd, from, SIZE);
	mr = ibv_reg_mr_iova(pair.pd, (void *)(to + PAGE), SIZE, 0x40000000, ALL_ACCESS);
	if (!mr)
		fail("ibv_reg_mr_iova: %s", strerror(errno));
	there = (struct place){0x40000000, mr->rkey};
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(source), there, SIZE), IBV_WC_SUCCESS);
	check_equal(gpu_differs(to + PAGE, 71), SIZE);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(ibv_dereg_mr(source), 0);
	disconnect(&pair);
}

/* A key is valid for the whole allocation; with PINDOWN_VERBS=exact, for its own pages. */
TEST(how_far_a_key_reaches)
{
	const char *verbs = getenv("PINDOWN_VERBS");
	bool exact = verbs && !strcmp(verbs, "exact");
	struct connection pair = connect_pair();
	struct ibv_mr *source, *part;
	struct place behind;
	CUdeviceptr from, to;

	start_cuda();
	from = gpu_buffer(SIZE, 81);
	to = gpu_buffer(BLOCK, 82);
	source = must_reg(pair.pd, from, SIZE);
	part = must_reg(pair.pd, to, SIZE);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(source), remote(part), SIZE),
		    IBV_WC_SUCCESS);
	behind = (struct place){to + SIZE, part->rkey};
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(source), behind, SIZE),
		    exact ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
}

/* Each region that a program has registered at any time, and none twice. */
TEST(many_buffers)
{
	struct connection pair = connect_pair();
	unsigned long made = hca_count("dmabuf_mrs");
	CUdeviceptr ptr[32];

	start_cuda();
	for (unsigned i = 0; i < 32; i++)
		ptr[i] = gpu_buffer(i % 2 ? BLOCK : 3 * PAGE, 100 + i);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 32; i++)
			check_equal(ibv_dereg_mr(must_reg(pair.pd, ptr[i], SIZE)), 0);
		check_equal(hca_count("dmabuf_mrs"), made + 32);
	}
	for (unsigned i = 0; i < 32; i++) {
		check_equal(hca_count("live_mrs"), 32 - i);
		check_equal(cuMemFree_v2(ptr[i]), CUDA_SUCCESS);
	}
	check_equal(hca_count("live_mrs"), 0);
	disconnect(&pair);
}

/* The kernel holds the registered memory, and the process needs no descriptor for it. */
TEST(more_buffers_than_descriptors)
{
	struct connection pair = connect_pair();
	struct ibv_mr *mr[64];
	struct rlimit limit;
	CUdeviceptr ptr[64];

	start_cuda();
	works(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 32;
	works(setrlimit(RLIMIT_NOFILE, &limit));
	for (unsigned i = 0; i < 64; i++) {
		ptr[i] = gpu_buffer(BLOCK, i);
		mr[i] = must_reg(pair.pd, ptr[i], SIZE);
	}
	check_equal(hca_count("live_mrs"), 64);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, local(mr[1]), remote(mr[62]), SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(ptr[62], 1), SIZE);
	for (unsigned i = 0; i < 64; i++) {
		check_equal(ibv_dereg_mr(mr[i]), 0);
		check_equal(cuMemFree_v2(ptr[i]), CUDA_SUCCESS);
	}
	check_equal(hca_count("live_mrs"), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	disconnect(&pair);
}

TEST(a_protection_domain_takes_its_registrations_along)
{
	struct connection pair = connect_pair();
	struct ibv_pd *other = ibv_alloc_pd(pair.context);
	struct ibv_mr *mr;
	CUdeviceptr ptr;
	uint32_t key;

	check(other);
	start_cuda();
	ptr = gpu_buffer(SIZE, 1);
	mr = must_reg(other, ptr, SIZE);
	key = mr->rkey;
	check_equal(ibv_dereg_mr(mr), 0);
	mr = must_reg(pair.pd, ptr, SIZE);
	check(mr->rkey != key);
	check_equal(hca_count("live_mrs"), 2);
	check_equal(ibv_dealloc_pd(other), 0);
	check_equal(hca_count("live_mrs"), 1);
	check_equal(ibv_dealloc_pd(pair.pd), EBUSY); /* as always: it is in use */
	check_equal(ibv_dereg_mr(mr), 0);
	disconnect(&pair);
	check_equal(hca_count("live_mrs"), 0);
}

TEST(the_end_of_the_context)
{
	struct connection pair = connect_pair();
	CUdeviceptr ptr;

	start_cuda();
	ptr = gpu_buffer(BLOCK, 1);
	check_equal(ibv_dereg_mr(must_reg(pair.pd, ptr, SIZE)), 0);
	check_equal(hca_count("live_mrs"), 1);
	check_equal(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	disconnect(&pair);
}

TEST(a_device_without_dmabufs)
{
	struct ibv_context *context = open_device("rxe0");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_mr *mr;
	CUdeviceptr ptr;
	char host[64];

	check(pd);
	start_cuda();
	ptr = gpu_buffer(SIZE, 1);
	/* The original call runs, and fails without nvidia-peermem. */
	for (unsigned i = 0; i < 2; i++) {
		check(!ibv_reg_mr(pd, (void *)ptr, SIZE, ALL_ACCESS));
		check_equal(errno, EFAULT);
	}
	mr = ibv_reg_mr(pd, host, sizeof(host), ALL_ACCESS);
	check(mr);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(ibv_dealloc_pd(pd), 0);
	check_equal(ibv_close_device(context), 0);
}

static void registers_for_ever(void *arg)
{
	struct connection pair = connect_pair();
	int *pipes = arg;

	start_cuda();
	must_reg(pair.pd, gpu_buffer(BLOCK, 1), SIZE);
	check_equal(ibv_dereg_mr(must_reg(pair.pd, gpu_buffer(BLOCK, 2), SIZE)), 0);
	check_equal(write(pipes[1], "", 1), 1);
	for (;;)
		pause();
}

TEST(a_process_that_is_killed)
{
	int pipes[2], status;
	pid_t child;
	char byte;

	works(pipe(pipes));
	child = in_child(registers_for_ever, pipes);
	check_equal(read(pipes[0], &byte, 1), 1);
	check_equal(hca_count("live_mrs"), 2);
	works(kill(child, SIGKILL));
	check_equal(waitpid(child, &status, 0), child);
	/* The kernel may clean up after a dead process a moment later. */
	wait_until(hca_count("live_mrs") == 0 && gpu_count(SIM_GPU_PINS) == 0);
}

/* ---- threads: one frees memory and allocates it again, while others register it -------------- */

static struct {
	struct ibv_pd *pd;
	CUdeviceptr ptr;
	int stop;
} shared;

static void *registers(void *arg)
{
	unsigned long *done = arg;

	while (!__atomic_load_n(&shared.stop, __ATOMIC_ACQUIRE)) {
		CUdeviceptr ptr = __atomic_load_n(&shared.ptr, __ATOMIC_ACQUIRE);
		struct ibv_mr *mr = ibv_reg_mr(shared.pd, (void *)ptr, SIZE, ALL_ACCESS);

		/* There may be no memory at the moment. */
		if (mr)
			check_equal(ibv_dereg_mr(mr), 0);
		*done += mr != NULL;
	}
	return NULL;
}

TEST(frees_against_registrations, .seconds = 100)
{
	struct connection pair = connect_pair();
	unsigned long done[2] = {};
	pthread_t threads[2];

	start_cuda();
	shared.pd = pair.pd;
	shared.ptr = gpu_buffer(BLOCK, 1);
	for (unsigned i = 0; i < 2; i++)
		threads[i] = in_thread(registers, &done[i]);
	for (unsigned round = 0; round < 100; round++) {
		CUdeviceptr again = 0;
		unsigned long before = done[0] + done[1];

		check_equal(cuMemFree_v2(shared.ptr), CUDA_SUCCESS);
		check_equal(cuMemAlloc_v2(&again, BLOCK), CUDA_SUCCESS);
		/* Another address, if a registration has ended together with the memory. */
		__atomic_store_n(&shared.ptr, again, __ATOMIC_RELEASE);
		while (*(volatile unsigned long *)&done[0] + *(volatile unsigned long *)&done[1] <
		       before + 5)
			sched_yield();
	}
	__atomic_store_n(&shared.stop, 1, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 2; i++)
		thread_ends(threads[i]);
	check_equal(cuMemFree_v2(shared.ptr), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	disconnect(&pair);
}
