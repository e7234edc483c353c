// SPDX-License-Identifier: MIT
/*
 * verbs: the cost of the verbs wrappers, in ns, on a libibverbs that does nothing: for host memory,
 * by turns straight and through the wrapper in one process (see calls.c); and for GPU memory that
 * is registered already, with one thread and with two on one region. Linked with libcuda.so.1 and
 * libibverbs.so.1; it knows nothing of pindown.
 */
#define _GNU_SOURCE
#include <pthread.h>

#include "calls.h"
#include "straight.h"
#include "hook/verbs/abi.h"

#define BATCH	256u
#define BATCHES 401u
#define PAIRS	20000u /* short, so that few rounds are interrupted */
#define ROUNDS	101u
#define BYTES	((size_t)64 << 20)
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
int ibv_dereg_mr(struct ibv_mr *mr);

static struct calls {
	typeof(ibv_reg_mr) *reg;
	typeof(ibv_dereg_mr) *dereg;
} linked = {ibv_reg_mr, ibv_dereg_mr}, straight, *use = &linked;

static struct ibv_pd *pd;
static char host[4096];
static struct ibv_mr *mrs[BATCH];
static CUdeviceptr gpu;

static void reg_batch(void)
{
	for (unsigned i = 0; i < BATCH; i++)
		mrs[i] = use->reg(pd, host, sizeof(host), ACCESS);
}

static void dereg_batch(void)
{
	for (unsigned i = 0; i < BATCH; i++)
		if (use->dereg(mrs[i]) != 0)
			stop("ibv_dereg_mr", 0);
}

static double time_of(void (*batch)(void))
{
	double begin = now_ns();

	batch();
	return (now_ns() - begin) / BATCH;
}

/* One row: the straight calls under a kind of their own, the linked ones under the runner's. */
static void print_both(const char *name, double *by_linked, double *by_straight)
{
	printf("direct\t");
	print_measure(name, median(by_straight, BATCHES));
	print_measure(name, median(by_linked, BATCHES));
}

static void measure_host(void)
{
	static double regs[2][BATCHES], deregs[2][BATCHES];

	for (unsigned i = 0; i < 2 * BATCHES; i++) {
		unsigned is_straight = (i ^ i >> 1) & 1; /* by turns, and each as often first */

		use = is_straight ? &straight : &linked;
		regs[is_straight][i / 2] = time_of(reg_batch);
		deregs[is_straight][i / 2] = time_of(dereg_batch);
	}
	print_both("ibv_reg_mr, host memory", regs[0], regs[1]);
	print_both("ibv_dereg_mr, host memory", deregs[0], deregs[1]);
}

/* ---- GPU memory ---------------------------------------------------------------------------- */

static pthread_barrier_t start_line;

static void pairs(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, (void *)(gpu + i % 1000 * 4096), 4096, ACCESS);

		if (!mr || ibv_dereg_mr(mr) != 0)
			stop("ibv_reg_mr", 0);
	}
}

static void *work(void *arg)
{
	static __thread double rounds[ROUNDS];

	use_context();
	pairs(PAIRS);
	for (unsigned i = 0; i < ROUNDS; i++) {
		double begin;

		pthread_barrier_wait(&start_line);
		begin = now_ns();
		pairs(PAIRS);
		rounds[i] = (now_ns() - begin) / PAIRS;
	}
	*(double *)arg = median(rounds, ROUNDS);
	return NULL;
}

static void measure_gpu(unsigned threads)
{
	pthread_t thread[2];
	double ns[2] = {0};
	char name[100];

	pthread_barrier_init(&start_line, NULL, threads);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, &ns[i]) != 0)
			stop("no thread", 0);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&start_line);
	snprintf(name, sizeof(name), "ibv_reg_mr+ibv_dereg_mr, cached, %u threads", threads);
	print_measure(name, (ns[0] + ns[1]) / threads);
}

int main(void)
{
	open_driver();
	straight.reg = (typeof(ibv_reg_mr) *)in_library("libibverbs.so.1", "ibv_reg_mr");
	straight.dereg = (typeof(ibv_dereg_mr) *)in_library("libibverbs.so.1", "ibv_dereg_mr");
	pd = ibv_alloc_pd(NULL);
	must(cuMemAlloc_v2(&gpu, BYTES), "cuMemAlloc");
	measure_host();
	measure_gpu(1);
	measure_gpu(2);
	must(cuMemFree_v2(gpu), "cuMemFree");
	return 0;
}
