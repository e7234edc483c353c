/* SPDX-License-Identifier: MIT */
/* What the cache's tests on the simulated driver share. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <dlfcn.h>
#include <unistd.h>

#include "tests/unit/support/cache_test.h"
#include "hook/cuda/abi.h"
#include "tests/sim/sim.h"

#define OK(call) ck_assert_int_eq(call, CUDA_SUCCESS)

static CUcontext context;

static inline void *find_in_sim(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

/* Not in the fixture: a test sets its environment variables before. */
static inline void start_cuda(void)
{
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&context, 0, 0));
}

static inline void sim_begin(void)
{
	pdn_find_driver_symbol = find_in_sim;
	pdn_set_intercepting(true);
	expected_missed = 0;
	ck_assert_int_eq(pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child), 0);
}

static inline void sim_end(void)
{
	assert_books_balance();
	pindown_flush();
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}

/* ---- hook/'s part ---- */

static inline CUdeviceptr alloc(size_t size)
{
	CUdeviceptr p = 0;

	OK(cuMemAlloc_v2(&p, size));
	pdn_allocated(p, size);
	return p;
}

static inline CUresult sim_free(CUdeviceptr p)
{
	pdn_guard guard = pdn_end_range(p, 0);
	CUresult result = cuMemFree_v2(p);

	pdn_ended(guard);
	return result;
}

static inline CUdeviceptr alloc_async(size_t size)
{
	CUdeviceptr p = 0;

	OK(cuMemAllocAsync(&p, size, NULL));
	pdn_allocated(p, size);
	return p;
}

static inline void free_async(CUdeviceptr p)
{
	pdn_guard guard = pdn_end_range(p, 0);

	OK(cuMemFreeAsync(p, NULL));
	pdn_ended(guard);
}

/* Memory of cuMemAlloc, which the driver keeps until the stream's turn. */
static inline CUresult sim_free_later(CUdeviceptr p, uint64_t size, CUstream stream)
{
	pdn_guard guard = pdn_end_in_order(p);
	bool first = pdn_ends_later(p, size);
	CUresult result = cuMemFreeAsync(p, stream);

	pdn_ended(guard);
	if (result != CUDA_SUCCESS && first)
		pdn_allocated(p, size);
	return result;
}

static inline void free_later(CUdeviceptr p, uint64_t size)
{
	OK(sim_free_later(p, size, NULL));
}

static inline void take_turn(void)
{
	OK(cuStreamSynchronize(NULL));
}

static inline CUmemGenericAllocationHandle sim_create(size_t size)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;

	OK(cuMemCreate(&handle, size, &prop, 0));
	return handle;
}

static inline void sim_map(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle handle)
{
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
					.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	OK(cuMemMap(at, size, 0, handle, 0));
	OK(cuMemSetAccess(at, size, &access, 1));
	pdn_allocated(at, size);
}

/* The mapping alone keeps the memory. */
static inline void sim_map_new(CUdeviceptr at, size_t size)
{
	CUmemGenericAllocationHandle handle = sim_create(size);

	sim_map(at, size, handle);
	OK(cuMemRelease(handle));
}

static inline void sim_unmap(CUdeviceptr at, size_t size)
{
	pdn_guard guard = pdn_end_range(at, size);

	OK(cuMemUnmap(at, size));
	pdn_ended(guard);
}

/* ---- regions ---- */

static inline uint64_t end_of(const pindown_region *region)
{
	return pindown_region_base(region) + pindown_region_length(region);
}

/* What a card would read at this address of the program's. */
static inline uint64_t word_at(pindown_region *region, CUdeviceptr addr)
{
	uint64_t offset, word = 0;
	int fd;

	ck_assert_int_eq(pindown_region_dmabuf(region, addr, &fd, &offset), PINDOWN_OK);
	ck_assert_int_eq(pread(fd, &word, sizeof(word), sim_dmabuf_offset(fd) + (int64_t)offset),
			 sizeof(word));
	return word;
}

/* A test case on a driver that has not been started: see start_cuda(). */
static inline TCase *sim_case(Suite *suite, const char *name)
{
	return suite_case(suite, name, sim_begin, sim_end);
}

#endif
