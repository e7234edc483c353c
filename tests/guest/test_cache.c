// SPDX-License-Identifier: MIT
/*
 * The registration cache on pindown.ko: a program allocates and frees memory with the driver's
 * calls, under libpindown.so, with the real module and the provider beneath. The simulated libcuda
 * takes its memory from /dev/sim_gpu.
 */
#include <sys/resource.h>
#include <sys/syscall.h>

#include "guest.h"
#include "hook/cuda/abi.h"
#include "cache/pindown.h"
#include "tests/sim/sim.h"

/* The configuration is read when the library is loaded: the boot runs this twice. */
static bool is_persistent(void)
{
	const char *backend = getenv("PINDOWN_BACKEND");

	return backend && !strcmp(backend, "kmod-persistent");
}

static void start_cuda(void)
{
	CUcontext context;

	check_equal(cuInit(0), CUDA_SUCCESS);
	check_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	check_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static CUdeviceptr must_alloc(size_t size)
{
	CUdeviceptr ptr = 0;

	check_equal(cuMemAlloc_v2(&ptr, size), CUDA_SUCCESS);
	return ptr;
}

static pindown_region *must_get(CUdeviceptr ptr, size_t size)
{
	pindown_region *region = NULL;
	int result = pindown_get(ptr, size, 0, &region);

	if (result != PINDOWN_OK)
		fail("pindown_get: %s (driver: %d)", pindown_strerror(result),
		     pindown_driver_error());
	return region;
}

static bool is_cached(CUdeviceptr ptr)
{
	pindown_region *region = NULL;

	if (pindown_get(ptr, 1, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		return false;
	pindown_put(region);
	return true;
}

static struct pindown_stats stats(void)
{
	struct pindown_stats s;

	check_equal(pindown_stats(&s, sizeof(s), -1), PINDOWN_OK);
	return s;
}

TEST(the_cache_pins_and_unpins)
{
	uint64_t callbacks = gpu_count(SIM_GPU_CALLBACKS);
	CUdeviceptr ptr;
	uint64_t gets;

	start_cuda();
	ptr = must_alloc(MIB + 512);
	pindown_put(must_get(ptr, MIB));
	check(!strcmp(stats().backend, "kmod"));
	check(stats().intercepting);
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	gets = gpu_count(SIM_GPU_GETS);
	for (unsigned i = 0; i < 1000; i++)
		pindown_put(must_get(ptr + i, 1));
	check_equal(gpu_count(SIM_GPU_GETS), gets);
	check_equal(gpu_count(SIM_GPU_PERSISTENT), is_persistent());
	check_equal(stats().hits, 1000);
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_CALLBACKS), callbacks); /* unpinned before the driver freed */
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
	check(!is_cached(ptr));
	check_equal(stats().missed_invalidations, 0);
}

TEST(a_region_in_use_is_kept_till_its_put, .seconds = 20)
{
	CUdeviceptr ptr;
	pindown_region *region;

	start_cuda();
	ptr = must_alloc(MIB);
	region = must_get(ptr, MIB);
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	check(!is_cached(ptr));
	check_equal(gpu_count(SIM_GPU_PINS), is_persistent()); /* else the free revoked it */
	check_equal(stats().kept_bytes, MIB);
	pindown_put(region);
	check_equal(stats().kept_bytes, 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/* The kernel's word is 0: a stale hit becomes a miss, without a call of the driver. */
TEST(a_free_that_nobody_saw_is_revoked)
{
	uint64_t callbacks;
	CUdeviceptr ptr;

	if (is_persistent())
		test_skipped("a persistent pin is not revoked");
	start_cuda();
	ptr = must_alloc(MIB);
	pindown_put(must_get(ptr, MIB));
	check(is_cached(ptr));
	callbacks = gpu_count(SIM_GPU_CALLBACKS);
	check_equal(sim_free_unseen(ptr), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_CALLBACKS), callbacks + 1);
	check_equal(stats().tag_checks, 0);
	check(!is_cached(ptr));
	check_equal(stats().tag_checks, 0);
	check_equal(stats().missed_invalidations, 1);
	check_equal(stats().regions, 0);
}

TEST(a_dmabuf_of_a_region)
{
	CUdeviceptr ptr;
	pindown_region *region;
	uint64_t offset;
	int fd = -1;

	start_cuda();
	ptr = must_alloc(MIB);
	region = must_get(ptr, MIB);
	check_equal(pindown_region_dmabuf(region, ptr + 4096, &fd, &offset), PINDOWN_OK);
	check_equal(offset, 4096);
	check(fd >= 0);
	pindown_put(region);
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/* ---- several mappings side by side ---- */

#define PARTS 3u
#define PART  (2 * MIB)
#define ALL   (PARTS * PART)

static CUdeviceptr must_map(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr ptr = 0;

	check_equal(cuMemAddressReserve(&ptr, ALL, 0, 0, 0), CUDA_SUCCESS);
	for (unsigned i = 0; i < PARTS; i++) {
		check_equal(cuMemCreate(&handle, PART, &prop, 0), CUDA_SUCCESS);
		check_equal(cuMemMap(ptr + i * PART, PART, 0, handle, 0), CUDA_SUCCESS);
		check_equal(cuMemRelease(handle), CUDA_SUCCESS);
	}
	return ptr;
}

TEST(each_mapping_of_a_region_is_pinned_by_itself)
{
	uint64_t callbacks = gpu_count(SIM_GPU_CALLBACKS), gets;

	start_cuda();
	for (unsigned i = 0; i < PARTS; i++) {
		CUdeviceptr ptr = must_map();

		gets = gpu_count(SIM_GPU_GETS);
		pindown_put(must_get(ptr, ALL));
		check_equal(gpu_count(SIM_GPU_PINS), PARTS);
		check_equal(gpu_count(SIM_GPU_PERSISTENT), is_persistent() ? PARTS : 0);
		check_equal(stats().regions, 1);
		check_equal(stats().bytes, ALL);
		for (unsigned j = 0; j < PARTS; j++)
			check(is_cached(ptr + j * PART));
		check_equal(gpu_count(SIM_GPU_GETS), gets + PARTS);
		check_equal(cuMemUnmap(ptr + i * PART, PART), CUDA_SUCCESS);
		check_equal(gpu_count(SIM_GPU_PINS), 0);
		check(!is_cached(ptr));
	}
	check_equal(gpu_count(SIM_GPU_CALLBACKS), callbacks); /* unpinned before */
	check_equal(stats().missed_invalidations, 0);
	check_equal(stats().fallbacks, 0);
}

TEST(an_unmap_of_one_that_nobody_saw_is_revoked)
{
	CUdeviceptr ptr, other;

	if (is_persistent())
		test_skipped("a persistent pin is not revoked");
	start_cuda();
	ptr = must_map();
	other = must_alloc(MIB);
	pindown_put(must_get(ptr, ALL));
	pindown_put(must_get(other, MIB));
	check_equal(sim_free_unseen(other), CUDA_SUCCESS);
	check(is_cached(ptr)); /* it is another region, and the common count is compared */
	check_equal(sim_unmap_unseen(ptr + PART, PART), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_PINS), PARTS - 1);
	check(!is_cached(ptr));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(stats().tag_checks, 0);
	check_equal(stats().missed_invalidations, 1);
	check_equal(stats().regions, 1);
	check(!is_cached(other));
}

TEST(the_dmabuf_of_several_mappings_is_the_drivers)
{
	CUdeviceptr ptr;
	pindown_region *region;
	uint64_t offset;
	int fd = -1;

	start_cuda();
	ptr = must_map();
	region = must_get(ptr, ALL);
	check_equal(pindown_region_dmabuf(region, ptr + PART + 4096, &fd, &offset), PINDOWN_OK);
	check_equal(offset, PART + 4096);
	check_equal(lseek(fd, 0, SEEK_END), ALL);
	check_equal(gpu_count(SIM_GPU_EXPORTS), 1);
	check_equal(gpu_count(SIM_GPU_PINS), PARTS);
	pindown_put(region);
	check_equal(cuMemUnmap(ptr, ALL), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_EXPORTS), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
}

/* ---- what the module refuses ---- */

static void is_refused(CUdeviceptr ptr, size_t size, unsigned nth, unsigned error)
{
	uint64_t before = stats().fallbacks;
	pindown_region *region = NULL;
	int result;

	gpu_set(SIM_GPU_FAIL_ERROR, error);
	gpu_set(SIM_GPU_FAIL_GET, nth);
	result = pindown_get(ptr, size, 0, &region);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(stats().fallbacks, before + !is_persistent());
	if (is_persistent()) {
		check_equal(result, PINDOWN_ERR_DRIVER);
		return;
	}
	check_equal(result, PINDOWN_OK); /* auto: the driver's dma-buf */
	check_equal(gpu_count(SIM_GPU_EXPORTS), 1);
	pindown_put(region);
	check(is_cached(ptr));
}

TEST(auto_takes_the_drivers_dmabuf_where_the_module_refuses)
{
	const unsigned errors[] = {EINVAL, EIO, 524 /* ENOTSUPP */};
	CUdeviceptr ptr;

	start_cuda();
	for (unsigned i = 0; i < 3; i++) {
		ptr = must_alloc(PART);
		is_refused(ptr, PART, 1, errors[i]);
		check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
		check_equal(gpu_count(SIM_GPU_EXPORTS), 0);
	}
	for (unsigned i = 1; i <= PARTS; i++) {
		ptr = must_map();
		is_refused(ptr, ALL, i, EINVAL);
		check_equal(cuMemUnmap(ptr + PART, PART), CUDA_SUCCESS);
		check_equal(gpu_count(SIM_GPU_EXPORTS), 0);
		check_equal(cuMemUnmap(ptr, PART), CUDA_SUCCESS);
		check_equal(cuMemUnmap(ptr + 2 * PART, PART), CUDA_SUCCESS);
	}
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
	check_equal(stats().missed_invalidations, 0);
}

TEST(too_small_a_bar_evicts)
{
	CUdeviceptr ptr[8];

	start_cuda();
	gpu_set(SIM_GPU_BAR_LIMIT, 48);
	for (unsigned i = 0; i < 8; i++) {
		ptr[i] = must_alloc(MIB);
		pindown_put(must_get(ptr[i], MIB));
	}
	check_equal(stats().regions, 3);
	check_equal(stats().evictions, 5);
	check(is_cached(ptr[7]));
	check(!is_cached(ptr[0]));
	gpu_set(SIM_GPU_BAR_LIMIT, 0);
}

/*
 * The module reports a request that no BAR can hold as missing space. No eviction is made for it.
 */
TEST(too_large_for_any_bar_is_want_of_space)
{
	CUdeviceptr ptr;

	start_cuda();
	ptr = must_alloc(MIB);
	gpu_set(SIM_GPU_FAIL_ERROR, EFBIG);
	gpu_set(SIM_GPU_FAIL_GET, 1);
	pindown_put(must_get(ptr, MIB)); /* a second time, after a search for idle regions */
	check_equal(stats().regions, 1);
	check_equal(stats().evictions, 0);
}

TEST(too_few_regions_evict)
{
	CUdeviceptr ptr[8];

	start_cuda();
	module_parameter("max_regions", "3");
	for (unsigned i = 0; i < 8; i++) {
		ptr[i] = must_alloc(MIB);
		pindown_put(must_get(ptr[i], MIB));
	}
	check_equal(stats().regions, 3);
	check_equal(stats().evictions, 5);
	check(is_cached(ptr[7]));
	module_parameter("max_regions", "1048575");
}

/*
 * The device is open already, so a pin needs no descriptor. A dma-buf needs one: without it the
 * region stays, and so do idle regions without a dma-buf; when there are descriptors again it gets
 * its dma-buf.
 */
TEST(no_descriptor_is_left)
{
	CUdeviceptr ptr;
	pindown_region *region;
	struct rlimit limit, none;
	uint64_t offset;
	int fd = -1;

	start_cuda();
	pindown_put(must_get(must_alloc(MIB), MIB));
	ptr = must_alloc(MIB);
	works(getrlimit(RLIMIT_NOFILE, &limit));
	none = limit;
	none.rlim_cur = 0;
	gpu_count(SIM_GPU_PINS); /* opens the device */
	works(setrlimit(RLIMIT_NOFILE, &none));
	region = must_get(ptr, MIB);
	check(pindown_region_dmabuf(region, ptr, &fd, &offset) != PINDOWN_OK);
	check(pindown_region_is_live(region));
	check_equal(gpu_count(SIM_GPU_PINS), 2);
	works(setrlimit(RLIMIT_NOFILE, &limit));
	check_equal(pindown_region_dmabuf(region, ptr, &fd, &offset), PINDOWN_OK);
	pindown_put(region);
	check_equal(cuMemFree_v2(ptr), CUDA_SUCCESS);
	check_equal(gpu_count(SIM_GPU_PINS), 1); /* the idle one */
}

/* ---- two processes, one BAR too small for both ---- */

static void keeps_idle_regions(void *arg)
{
	int *pipes = arg;
	char byte;

	start_cuda();
	for (unsigned i = 0; i < 3; i++)
		pindown_put(must_get(must_alloc(MIB), MIB));
	check_equal(write(pipes[1], "", 1), 1);
	check_equal(read(pipes[2], &byte, 1), 1);
	check(stats().evictions > 0); /* the cache's own thread has answered the kernel's wish */
}

TEST(another_process_gives_bar_space_back, .seconds = 60)
{
	int pipes[4];
	pid_t other;
	char byte;

	works(pipe(pipes));
	works(pipe(pipes + 2));
	gpu_set(SIM_GPU_BAR_LIMIT, 48);
	other = in_child(keeps_idle_regions, pipes);
	check_equal(read(pipes[0], &byte, 1), 1);
	start_cuda();
	pindown_put(must_get(must_alloc(2 * MIB), 2 * MIB));
	check_equal(stats().regions, 1);
	check_equal(write(pipes[3], "", 1), 1);
	child_ends(other);
	gpu_set(SIM_GPU_BAR_LIMIT, 0);
}

/* ---- the process's own ways ---- */

static void child_puts_and_pins(void *arg)
{
	pindown_region *parents = arg;
	pindown_region *region = NULL;

	pindown_put(parents);
	check_equal(stats().regions, 0);
	check(pindown_get(1, 1, 0, &region) != PINDOWN_OK);
}

TEST(a_child_has_no_part_in_it)
{
	CUdeviceptr ptr;
	pindown_region *region;

	start_cuda();
	ptr = must_alloc(MIB);
	region = must_get(ptr, MIB);
	child_ends(in_child(child_puts_and_pins, region));
	check(pindown_region_is_live(region));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	pindown_put(region);
	check(is_cached(ptr));
}

TEST(a_program_that_closes_all_descriptors)
{
	CUdeviceptr ptr;
	pindown_region *region = NULL;
	int other;

	start_cuda();
	ptr = must_alloc(MIB);
	pindown_put(must_get(ptr, MIB));
	/* By one call: a million are too many for a slow machine. */
	works((int)syscall(SYS_close_range, 64, ~0u, 0));
	other = dup(1);
	check(pindown_get(ptr, 1, 0, &region) != PINDOWN_OK || region);
	pindown_put(region);
	pindown_flush();
	check(!is_cached(ptr));
	check(pindown_get(ptr, 1, 0, &region) != PINDOWN_OK);
	works(write(other, "", 0));
}
