// SPDX-License-Identifier: MIT
/*
 * GPU memory over RDMA: a program that makes memory with cuMemAlloc, registers it with verbs, and lets
 * the RDMA device move it. It knows nothing of pindown, but for the tests that begin with "explicit",
 * which call it themselves; the boot says which run without it.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include "connection.h"
#include "cuda_abi.h"
#include "guest.h"
#include "pindown.h"

#define SIZE  8192u
#define BLOCK (2 * MIB) /* the driver's smallest piece of memory */

static void start_cuda(void)
{
	CUcontext context;

	check_equal(cuInit(0), CUDA_SUCCESS);
	check_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	check_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static CUdeviceptr gpu_buffer(size_t size, uint64_t seed)
{
	CUdeviceptr ptr = 0;
	char *data = malloc(size);

	check_equal(cuMemAlloc_v2(&ptr, size), CUDA_SUCCESS);
	fill(data, size, seed);
	check_equal(cuMemcpyHtoD_v2(ptr, data, size), CUDA_SUCCESS);
	free(data);
	return ptr;
}

/* Where the GPU's memory differs from the pattern; SIZE: nowhere. */
static size_t gpu_differs(CUdeviceptr ptr, uint64_t seed)
{
	char data[SIZE];

	check_equal(cuMemcpyDtoH_v2(data, ptr, SIZE), CUDA_SUCCESS);
	return differs(data, SIZE, seed);
}

static struct place at(const struct ibv_mr *mr)
{
	return (struct place){(uintptr_t)mr->addr, mr->lkey};
}

static struct place remote(const struct ibv_mr *mr)
{
	return (struct place){(uintptr_t)mr->addr, mr->rkey};
}

static struct ibv_mr *must_reg(struct ibv_pd *pd, CUdeviceptr ptr, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)ptr, size, ALL_ACCESS);

	if (!mr)
		fail("ibv_reg_mr of GPU memory: %s", strerror(errno));
	check_equal((uintptr_t)mr->addr, ptr);
	check_equal(mr->length, size);
	return mr;
}

/* ---- without pindown ---- */

TEST(registration_of_gpu_memory_fails)
{
	struct connection pair = connect_pair();
	CUdeviceptr ptr;

	start_cuda();
	ptr = gpu_buffer(SIZE, 1);
	check(!ibv_reg_mr(pair.pd, (void *)ptr, SIZE, ALL_ACCESS));
	check_equal(errno, EFAULT);
	check_equal(hca_count("live_mrs"), 0);
}

/* ---- a program that asks pindown for the dma-buf itself ---- */

static struct {
	int (*get)(uint64_t addr, size_t length, unsigned flags, pindown_region **region);
	void (*put)(pindown_region *region);
	int (*dmabuf)(pindown_region *region, uint64_t addr, int *fd, uint64_t *offset);
} pd;

static void *find(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);

	if (!function)
		fail("no %s: this test wants libpindown.so", name);
	return function;
}

static void find_pindown(void)
{
	*(void **)&pd.get = find("pindown_get");
	*(void **)&pd.put = find("pindown_put");
	*(void **)&pd.dmabuf = find("pindown_region_dmabuf");
}

static struct ibv_mr *reg_dmabuf(struct ibv_pd *domain, CUdeviceptr ptr, pindown_region **region)
{
	struct ibv_mr *mr;
	uint64_t offset;
	int fd;

	check_equal(pd.get(ptr, SIZE, 0, region), PINDOWN_OK);
	check_equal(pd.dmabuf(*region, ptr, &fd, &offset), PINDOWN_OK);
	mr = ibv_reg_dmabuf_mr(domain, offset, SIZE, ptr, fd, ALL_ACCESS);
	if (!mr)
		fail("ibv_reg_dmabuf_mr: %s", strerror(errno));
	return mr;
}

TEST(explicit_dmabufs)
{
	struct connection pair = connect_pair();
	pindown_region *region[2];
	CUdeviceptr from, to;
	struct ibv_mr *mr[2];

	find_pindown();
	start_cuda();
	from = gpu_buffer(SIZE, 11);
	to = gpu_buffer(SIZE, 12);
	mr[0] = reg_dmabuf(pair.pd, from, &region[0]);
	mr[1] = reg_dmabuf(pair.pd, to, &region[1]);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, (struct place){from, mr[0]->lkey},
			 (struct place){to, mr[1]->rkey}, SIZE),
		    IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 11), SIZE);
	for (int i = 0; i < 2; i++) {
		check_equal(ibv_dereg_mr(mr[i]), 0);
		pd.put(region[i]);
	}
	disconnect(&pair);
}

/*
 * A device that can be told to stop: the key is dead when the free returns, though the program holds
 * it. The kernel learns of it because the driver gives the memory back, which small pieces share.
 */
TEST(explicit_a_free_revokes_the_key)
{
	struct connection pair = connect_pair();
	unsigned long revoked = hca_count("revoked");
	pindown_region *region[2];
	CUdeviceptr from, to, again;
	struct ibv_mr *mr[2];

	find_pindown();
	start_cuda();
	from = gpu_buffer(SIZE, 21);
	to = gpu_buffer(BLOCK, 22);
	mr[0] = reg_dmabuf(pair.pd, from, &region[0]);
	mr[1] = reg_dmabuf(pair.pd, to, &region[1]);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	check_equal(hca_count("revoked"), revoked + 1);
	again = gpu_buffer(BLOCK, 23);
	check_equal(again, to);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, (struct place){from, mr[0]->lkey},
			 (struct place){to, mr[1]->rkey}, SIZE),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(again, 23), SIZE);
	for (int i = 0; i < 2; i++) {
		check_equal(ibv_dereg_mr(mr[i]), 0);
		pd.put(region[i]);
	}
	disconnect(&pair);
}

/* ---- a program that only knows ibv_reg_mr, under libpindown.so ---- */

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
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, at(mr[0]), remote(mr[1]), SIZE), IBV_WC_SUCCESS);
	check_equal(gpu_differs(to, 31), SIZE);
	check_equal(rdma(&pair, IBV_WR_RDMA_READ, at(host), remote(mr[1]), SIZE), IBV_WC_SUCCESS);
	check_equal(differs(data, SIZE, 31), SIZE);
	check_equal(ibv_dereg_mr(mr[0]), 0);
	check_equal(ibv_dereg_mr(mr[1]), 0);
	check_equal(ibv_dereg_mr(host), 0);
	check_equal(cuMemFree_v2(from), CUDA_SUCCESS);
	check_equal(cuMemFree_v2(to), CUDA_SUCCESS);
	check_equal(hca_count("live_mrs"), 0);
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
	check_equal(gpu_count(SIM_GPU_PINS) != 0, 1);

	/* And it is good for what it is there for. */
	to = gpu_buffer(SIZE, 42);
	mr = must_reg(pair.pd, ptr, SIZE);
	other = must_reg(pair.pd, to, SIZE);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, at(mr), remote(other), SIZE), IBV_WC_SUCCESS);
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
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, at(source), old, SIZE), IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(again, 53), SIZE);
	reconnect(&pair);
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, at(source), remote(mr), SIZE), IBV_WC_SUCCESS);
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
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, at(all), remote(readable), 8),
		    IBV_WC_REM_ACCESS_ERR);
	check_equal(gpu_differs(to, 62), SIZE);
	check_equal(ibv_dereg_mr(readable), 0);
	check_equal(ibv_dereg_mr(all), 0);
	check(!ibv_reg_mr(pair.pd, (void *)to, SIZE, ALL_ACCESS | IBV_ACCESS_ON_DEMAND));
	disconnect(&pair);
}

/* The device's address for the memory is what the program says, not where it is. */
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
	check_equal(rdma(&pair, IBV_WR_RDMA_WRITE, at(source), there, SIZE), IBV_WC_SUCCESS);
	check_equal(gpu_differs(to + PAGE, 71), SIZE);
	check_equal(ibv_dereg_mr(mr), 0);
	check_equal(ibv_dereg_mr(source), 0);
	disconnect(&pair);
}
