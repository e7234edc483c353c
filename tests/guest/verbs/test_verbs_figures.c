// SPDX-License-Identifier: MIT
/*
 * The cost of a registration of GPU memory from the cache, and when the kernel makes it, in
 * instructions of the process and the kernel together; run in the boot "figures" under
 * libpindown.so.
 */
#include "tests/guest/figures.h"
#include "gpu_memory.h"
#include "cache/pindown.h"

#define PAIRS 1000u

static void pair_of(struct ibv_pd *pd, CUdeviceptr ptr, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)ptr, size, ALL_ACCESS);

	if (!mr)
		fail("ibv_reg_mr: %s", strerror(errno));
	check_equal(ibv_dereg_mr(mr), 0);
}

static void pair_of_dmabuf(struct ibv_pd *pd, int fd, CUdeviceptr ptr, size_t size)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, 0, size, ptr, fd, ALL_ACCESS);

	if (!mr)
		fail("ibv_reg_dmabuf_mr: %s", strerror(errno));
	check_equal(ibv_dereg_mr(mr), 0);
}

static void cost_of(struct ibv_pd *pd, const char *name, size_t size)
{
	CUdeviceptr ptr = gpu_buffer(size, 1);
	uint64_t cached, kernel, cold, offset;
	pindown_region *region;
	unsigned long made;
	int fd;

	pair_of(pd, ptr, size);
	made = hca_count("dmabuf_mrs");
	cached = min_time(for (unsigned i = 0; i < PAIRS; i++) pair_of(pd, ptr, size)) / PAIRS;
	check_equal(hca_count("dmabuf_mrs"), made);
	check_equal(pindown_get(ptr, size, 0, &region), PINDOWN_OK);
	check_equal(pindown_region_dmabuf(region, ptr, &fd, &offset), PINDOWN_OK);
	kernel = min_time(pair_of_dmabuf(pd, fd, ptr, size));
	pindown_put(region);
	cold = min_time(pindown_flush(); pair_of(pd, ptr, size));
	printf("%-8s %14llu %14llu %14llu %8llu\n", name, (unsigned long long)cached,
	       (unsigned long long)kernel, (unsigned long long)cold,
	       (unsigned long long)(kernel / cached));
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
}

TEST(cached_and_made, .seconds = 200)
{
	struct connection pair = connect_pair();

	clock_must_count();
	start_cuda();
	printf("instructions of a registration and its end; kernel: ibv_reg_dmabuf_mr of a dma-buf "
	       "that\n"
	       "is there; all: unpin, pin, export and that\n"
	       "region           cached         kernel            all    ratio\n");
	cost_of(pair.pd, "64 KiB", 64 * KIB);
	cost_of(pair.pd, "2 MiB", 2 * MIB);
	cost_of(pair.pd, "64 MiB", 64 * MIB);
	fflush(stdout);
	disconnect(&pair);
}
