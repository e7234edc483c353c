// SPDX-License-Identifier: MIT
/*
 * verbs: the cost of the verbs wrappers, in ns, on a libibverbs that does nothing: for host memory,
 * by turns straight and through the wrapper in one process (see calls.c); and for GPU memory that
 * is registered already, by address and by a dma-buf, with one thread and with two on one region.
 * Linked with libcuda.so.1 and libibverbs.so.1; it knows nothing of pindown.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calls.h"
#include "straight.h"
#include "hook/verbs/abi.h"

#define BATCH	256u
#define BATCHES 401u
#define PAIRS	5000u /* short, so that few rounds are interrupted */
#define ROUNDS	101u
#define BYTES	((size_t)64 << 20)
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access);
int ibv_dereg_mr(struct ibv_mr *mr);

static struct calls {
	typeof(ibv_reg_mr) *reg;
	typeof(ibv_reg_dmabuf_mr) *reg_dmabuf;
	typeof(ibv_dereg_mr) *dereg;
	typeof(cuMemGetHandleForAddressRange) *export;
	typeof(cuMemAlloc_v2) *alloc;
	typeof(cuMemFree_v2) *free;
} linked = {ibv_reg_mr,	   ibv_reg_dmabuf_mr, ibv_dereg_mr, cuMemGetHandleForAddressRange,
	    cuMemAlloc_v2, cuMemFree_v2},
  straight, *use = &linked;

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
static int dmabuf; /* all of the memory */

static void by_address(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, (void *)(gpu + i % 1000 * 4096), 4096, ACCESS);

		if (!mr || ibv_dereg_mr(mr) != 0)
			stop("ibv_reg_mr", 0);
	}
}

/* All name the same range: by a dma-buf, each range is a registration of its own. */
static void by_dmabuf(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, BYTES, gpu, dmabuf, ACCESS);

		if (!mr || ibv_dereg_mr(mr) != 0)
			stop("ibv_reg_dmabuf_mr", 0);
	}
}

/* The system calls that tell which file the descriptor is. A real dma-buf has no position. */
static void by_system(unsigned count)
{
	struct stat st;

	for (unsigned i = 0; i < count; i++) {
		if (syscall(SYS_fstat, dmabuf, &st) != 0)
			stop("fstat", 0);
		if (S_ISREG(st.st_mode))
			syscall(SYS_lseek, dmabuf, 0, SEEK_CUR);
	}
}

/* What is measured by turns, as a busy machine changes its speed. */
static void (*const measured[])(unsigned count) = {by_address, by_system, by_dmabuf};

#define MEASURED (sizeof(measured) / sizeof(measured[0]))

static double time_of_pairs(void (*pairs)(unsigned count))
{
	double begin;

	pthread_barrier_wait(&start_line);
	begin = now_ns();
	pairs(PAIRS);
	return (now_ns() - begin) / PAIRS;
}

/* arg: an array of medians. */
static void *work(void *arg)
{
	static __thread double rounds[MEASURED][ROUNDS];

	use_context();
	for (unsigned m = 0; m < MEASURED; m++)
		measured[m](PAIRS);
	for (unsigned i = 0; i < ROUNDS; i++)
		for (unsigned m = 0; m < MEASURED; m++)
			rounds[m][i] = time_of_pairs(measured[m]);
	for (unsigned m = 0; m < MEASURED; m++)
		((double *)arg)[m] = median(rounds[m], ROUNDS);
	return NULL;
}

static void measure_cached(unsigned threads)
{
	double ns[2][MEASURED] = {{0}};
	pthread_t thread[2];
	char name[100];

	pthread_barrier_init(&start_line, NULL, threads);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, ns[i]) != 0)
			stop("no thread", 0);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&start_line);
	snprintf(name, sizeof(name), "ibv_reg_mr+ibv_dereg_mr, cached, %u threads", threads);
	print_measure(name, (ns[0][0] + ns[1][0]) / threads);
	snprintf(name, sizeof(name), "ibv_reg_dmabuf_mr+dereg, cached, %u threads", threads);
	printf("kernel\t");
	print_measure(name, (ns[0][1] + ns[1][1]) / threads);
	print_measure(name, (ns[0][2] + ns[1][2]) / threads);
}

/* ---- a dma-buf for each registration, as most middleware makes it ---------------------------- */

static void export_batch(void)
{
	for (unsigned i = 0; i < BATCH; i++) {
		int fd;

		must(use->export(&fd, gpu, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		     "cuMemGetHandleForAddressRange");
		mrs[0] = use->reg_dmabuf(pd, 0, BYTES, gpu, fd, ACCESS);
		close(fd);
		if (use->dereg(mrs[0]) != 0)
			stop("ibv_dereg_mr", 0);
	}
}

static void measure_exports(void)
{
	static double times[2][BATCHES];

	for (unsigned i = 0; i < 2 * BATCHES; i++) {
		unsigned is_straight = (i ^ i >> 1) & 1;

		use = is_straight ? &straight : &linked;
		times[is_straight][i / 2] = time_of(export_batch);
	}
	print_both("export, ibv_reg_dmabuf_mr, close, dereg", times[0], times[1]);
}

/* ---- allocations beside a dma-buf ------------------------------------------------------------ */

static void alloc_batch(void)
{
	for (unsigned i = 0; i < BATCH; i++) {
		CUdeviceptr addr;

		must(use->alloc(&addr, 65536), "cuMemAlloc");
		must(use->free(addr), "cuMemFree");
	}
}

/* A block of the driver stays, as it has another allocation. */
static void measure_allocs(const char *name)
{
	static double times[2][BATCHES];
	CUdeviceptr neighbour;

	must(cuMemAlloc_v2(&neighbour, 65536), "cuMemAlloc");
	for (unsigned i = 0; i < 2 * BATCHES; i++) {
		unsigned is_straight = (i ^ i >> 1) & 1;

		use = is_straight ? &straight : &linked;
		times[is_straight][i / 2] = time_of(alloc_batch);
	}
	must(cuMemFree_v2(neighbour), "cuMemFree");
	print_both(name, times[0], times[1]);
}

int main(void)
{
	open_driver();
	straight.reg = in_library("libibverbs.so.1", "ibv_reg_mr");
	straight.reg_dmabuf = in_library("libibverbs.so.1", "ibv_reg_dmabuf_mr");
	straight.dereg = in_library("libibverbs.so.1", "ibv_dereg_mr");
	straight.export = in_library("libcuda.so.1", "cuMemGetHandleForAddressRange");
	straight.alloc = in_library("libcuda.so.1", "cuMemAlloc_v2");
	straight.free = in_library("libcuda.so.1", "cuMemFree_v2");
	pd = ibv_alloc_pd(NULL);
	must(cuMemAlloc_v2(&gpu, BYTES), "cuMemAlloc");
	measure_host();
	measure_allocs("alloc+free, 64 KiB, no dma-buf");
	must(linked.export(&dmabuf, gpu, BYTES, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
	     "cuMemGetHandleForAddressRange");
	measure_allocs("alloc+free, 64 KiB, a dma-buf of another");
	measure_cached(1);
	measure_cached(2);
	measure_exports();
	close(dmabuf);
	must(cuMemFree_v2(gpu), "cuMemFree");
	return 0;
}
