/* SPDX-License-Identifier: MIT */
/*
 * The cache on the simulated driver: what only a driver that keeps memory can show. An export there
 * is a real descriptor that keeps the memory from being given back, and through which it can be
 * read.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/sim_test.h"

/* ---- memory ---- */

/*
 * The bug itself: when the cache is not told before the free, the memory stays and the address is
 * reused.
 */
START_TEST(an_unwatched_free_leaks_and_goes_stale)
{
	start_cuda();
	uint64_t before = sim_used_bytes(0);
	CUdeviceptr p = alloc(MIB(64));
	get_and_put(p, 1);
	OK(cuMemFree_v2(p));
	ck_assert_uint_ge(sim_used_bytes(0), before + MIB(64));
	ck_assert_uint_ge(sim_kept_bytes(0), MIB(64));
	ck_assert(is_cached(p, 1));

	CUdeviceptr q = 0;
	OK(cuMemAlloc_v2(&q, MIB(64)));
	ck_assert_uint_eq(q, p);
	pdn_allocated(q, MIB(64));
	expected_missed = 1;
	ck_assert(!is_cached(p, 1));
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	OK(sim_free(q));
}
END_TEST

START_TEST(a_watched_free_gives_the_memory_back_at_once)
{
	start_cuda();
	uint64_t before = sim_used_bytes(0);
	for (unsigned round = 0; round < 20; round++) {
		CUdeviceptr p = alloc(MIB(64));
		get_and_put(p + MIB(32), 1);
		ck_assert_uint_eq(sim_open_exports(0), 1);
		OK(sim_free(p));
		ck_assert_uint_eq(sim_used_bytes(0), before);
		ck_assert_uint_eq(sim_kept_bytes(0), 0);
	}
}
END_TEST

START_TEST(memory_in_use_is_kept_until_the_last_put)
{
	start_cuda();
	uint64_t before = sim_used_bytes(0);
	CUdeviceptr p = alloc(MIB(64));
	pindown_region *region = must_get(p, MIB(64));
	OK(sim_free(p));
	ck_assert_uint_ge(sim_kept_bytes(0), MIB(64));
	ck_assert_uint_eq(stats().kept_bytes, sim_kept_bytes(0));

	/* The same address, other memory: each has a region of its own. */
	CUdeviceptr q = alloc(MIB(64));
	ck_assert_uint_eq(q, p);
	pindown_region *other = must_get(q, MIB(64));
	ck_assert_uint_ne(pindown_region_buffer_id(other), pindown_region_buffer_id(region));
	pindown_put(region);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	pindown_put(other);
	OK(sim_free(q));
	ck_assert_uint_eq(sim_used_bytes(0), before);
}
END_TEST

/*
 * The bytes at the offset that the cache hands out are those that the program has at the address.
 */
START_TEST(the_dmabuf_is_the_memory)
{
	CUdeviceptr p[3];
	static const size_t size[3] = {100, 4096, MIB(3) + 777};
	uint64_t word;

	start_cuda();
	for (unsigned i = 0; i < 3; i++)
		p[i] = alloc(size[i]);
	for (unsigned i = 0; i < 3; i++) {
		pindown_region *region = must_get(p[i], size[i]);
		for (size_t at = 0; at + 8 <= size[i]; at += size[i] / 7) {
			word = 0x1000 * i + at;
			OK(cuMemcpyHtoD_v2(p[i] + at, &word, sizeof(word)));
			ck_assert_uint_eq(word_at(region, p[i] + at), word);
		}
		pindown_put(region);
	}
	/* A stale registration would give stale data. */
	pindown_region *held = must_get(p[2], 1);
	word = 42;
	OK(cuMemcpyHtoD_v2(p[2], &word, sizeof(word)));
	OK(sim_free(p[2]));
	CUdeviceptr q = alloc(size[2]);
	ck_assert_uint_eq(q, p[2]);
	pindown_region *fresh = must_get(q, 1);
	word = 43;
	OK(cuMemcpyHtoD_v2(q, &word, sizeof(word)));
	ck_assert_uint_eq(word_at(held, p[2]), 42);
	ck_assert_uint_eq(word_at(fresh, q), 43);
	pindown_put(held);
	pindown_put(fresh);
}
END_TEST

START_TEST(small_neighbours_share_a_page)
{
	start_cuda();
	CUdeviceptr p[40];
	for (unsigned i = 0; i < 40; i++) {
		p[i] = alloc(100 + i);
		get_and_put(p[i], 100 + i);
	}
	ck_assert_uint_eq(p[1] - p[0], 512);
	ck_assert_uint_eq(stats().regions, 40);
	for (unsigned i = 0; i < 40; i += 2)
		OK(sim_free(p[i]));
	for (unsigned i = 0; i < 40; i++)
		ck_assert_int_eq(is_cached(p[i], 100 + i), i % 2);
}
END_TEST

/* ---- other kinds ---- */

START_TEST(pool_memory_comes_back_under_another_id)
{
	uint64_t last = 0;

	start_cuda();
	for (unsigned round = 0; round < 20; round++) {
		CUdeviceptr p = alloc_async(KIB(64));
		pindown_region *region = must_get(p, KIB(64));
		ck_assert_ptr_null(pindown_region_context(region));
		ck_assert_uint_ne(pindown_region_buffer_id(region), last);
		last = pindown_region_buffer_id(region);
		pindown_put(region);
		free_async(p);
		ck_assert(!is_cached(p, 1));
		ck_assert_uint_eq(sim_open_exports(0), 0);
	}
}
END_TEST

/*
 * A pool cuts allocations from larger pieces, and the driver exports a piece from its start only.
 */
START_TEST(pool_memory_is_pinned_from_its_piece_on)
{
	CUdeviceptr p[12];

	start_cuda();
	for (unsigned i = 0; i < 12; i++) {
		uint64_t offset;
		int fd;

		p[i] = alloc_async(i % 3 ? MIB(5) + 512 : KIB(64));
		pindown_region *region = must_get(p[i], KIB(64));
		ck_assert_uint_eq(pindown_region_base(region), p[i]);
		ck_assert_uint_le(pindown_region_pin_base(region), p[i]);
		OK(pindown_region_dmabuf(region, p[i] + 1, &fd, &offset));
		ck_assert_uint_eq(pindown_region_pin_base(region) + offset, p[i] + 1);
		pindown_put(region);
	}
	for (unsigned i = 0; i < 12; i++) {
		free_async(p[i]);
		ck_assert(!is_cached(p[i], 1));
	}
	ck_assert_uint_eq(sim_open_exports(0), 0);
}
END_TEST

START_TEST(a_context_ends_its_linear_memory_only)
{
	CUcontext other;

	start_cuda();
	CUdeviceptr mine = alloc(MIB(2));
	OK(cuCtxCreate_v2(&other, 0, 0));
	CUdeviceptr others = alloc(MIB(2)), pool = alloc_async(KIB(64));
	get_and_put(mine, 1);
	get_and_put(others, 1);
	get_and_put(pool, 1);
	OK(cuStreamSynchronize(NULL));
	pdn_guard guard = pdn_end_context(other);
	ck_assert(!is_cached(others, 1));
	ck_assert_uint_eq(sim_open_exports(0), 2);
	OK(cuCtxDestroy_v2(other));
	pdn_ended(guard);
	ck_assert(is_cached(mine, 1));
	ck_assert(is_cached(pool, 1));
	must_refuse(others, 1, PINDOWN_ERR_NOT_DEVICE);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	OK(cuCtxSetCurrent(context));
	free_async(pool);
}
END_TEST

START_TEST(mappings_side_by_side)
{
	CUdeviceptr at;

	start_cuda();
	uint64_t before = sim_used_bytes(0);
	CUmemGenericAllocationHandle one = sim_create(MIB(2)), two = sim_create(MIB(2));
	OK(cuMemAddressReserve(&at, MIB(4), 0, 0, 0));
	sim_map(at, MIB(2), one);
	sim_map(at + MIB(2), MIB(2), two);
	pindown_region *both = must_get(at, MIB(4));
	uint64_t word = 7;
	OK(cuMemcpyHtoD_v2(at + MIB(3), &word, sizeof(word)));
	ck_assert_uint_eq(word_at(both, at + MIB(3)), 7);
	pindown_put(both);

	sim_unmap(at + MIB(2), MIB(2));
	ck_assert_uint_eq(sim_open_exports(0), 0);
	must_refuse(at, MIB(4), PINDOWN_ERR_RANGE);
	get_and_put(at, MIB(2));
	sim_unmap(at, MIB(2));
	must_refuse(at, 1, PINDOWN_ERR_NOT_DEVICE);
	/* The same handle at the same address is a new mapping with a new id. */
	sim_map(at, MIB(2), one);
	ck_assert(!is_cached(at, 1));
	get_and_put(at, 1);
	sim_unmap(at, MIB(2));
	OK(cuMemRelease(one));
	OK(cuMemRelease(two));
	OK(cuMemAddressFree(at, MIB(4)));
	ck_assert_uint_eq(sim_used_bytes(0), before);
}
END_TEST

START_TEST(managed_and_host_memory_are_refused)
{
	CUdeviceptr managed;
	void *host;

	start_cuda();
	OK(cuMemAllocManaged(&managed, MIB(2), CU_MEM_ATTACH_GLOBAL));
	OK(cuMemHostAlloc(&host, MIB(2), 0));
	must_refuse(managed, 1, PINDOWN_ERR_MANAGED);
	must_refuse((uintptr_t)host, 1, PINDOWN_ERR_HOST);
	must_refuse((uintptr_t)&managed, 1, PINDOWN_ERR_NOT_DEVICE);
	OK(cuMemFree_v2(managed));
	OK(cuMemFreeHost(host));
}
END_TEST

/* ---- the driver's part ---- */

START_TEST(a_hit_makes_no_call_of_the_real_thing)
{
	start_cuda();
	CUdeviceptr p = alloc(MIB(2));
	get_and_put(p, 1);
	uint64_t before = sim_calls_all();
	for (unsigned i = 0; i < 1000; i++)
		get_and_put(p + i, 1);
	ck_assert_uint_eq(sim_calls_all(), before);
}
END_TEST

static void get_in_bare_thread(void *arg)
{
	CUcontext current = context;

	OK(cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
	get_and_put(*(CUdeviceptr *)arg, 1);
	OK(cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
}

START_TEST(a_thread_without_context_pins)
{
	start_cuda();
	CUdeviceptr p = alloc(MIB(2));
	in_other_thread(get_in_bare_thread, &p);
	ck_assert(is_cached(p, 1));
}
END_TEST

/* As on two H200s: with a context of device 0, the driver does not find the memory of device 1. */
START_TEST(memory_of_another_device_is_pinned)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr linear, mapped, base;
	CUcontext ours, other, current;
	size_t size;

	start_cuda();
	OK(cuCtxGetCurrent(&ours));
	OK(cuDevicePrimaryCtxRetain(&other, 1));
	OK(cuCtxSetCurrent(other));
	linear = alloc(MIB(2));
	OK(cuCtxSetCurrent(ours));
	OK(cuMemCreate(&handle, MIB(2), &prop, 0));
	OK(cuMemAddressReserve(&mapped, MIB(2), 0, 0, 0));
	sim_map(mapped, MIB(2), handle);
	ck_assert_int_eq(cuMemGetAddressRange_v2(&base, &size, linear), CUDA_ERROR_NOT_FOUND);

	get_and_put(linear, MIB(2));
	get_and_put(mapped, MIB(2));
	ck_assert_uint_eq(sim_open_exports(1), 2);
	OK(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, ours);
	sim_unmap(mapped, MIB(2));
	OK(cuMemRelease(handle));
	OK(cuMemAddressFree(mapped, MIB(2)));
	ck_assert_uint_eq(sim_open_exports(1), 1);
}
END_TEST

/* ---- holds of a primary context ---- */

static unsigned own_retains, own_releases;

static bool is_held(int device)
{
	return device == 0;
}

static void counts_retain(void *context, int device)
{
	CUcontext primary;

	OK(cuDevicePrimaryCtxRetain(&primary, device));
	ck_assert_ptr_eq(context, primary);
	OK(cuDevicePrimaryCtxRelease_v2(device));
	own_retains++;
}

static void counts_release(int device, int (*real)(int device))
{
	OK(real(device));
	own_releases++;
}

/* Pool memory, from a thread without a context: all holds that pindown takes are counted. */
START_TEST(who_counts_holds_of_a_primary_context_is_asked_for_pindown_s)
{
	static const struct pdn_primary_counts counts = {
		.is_held = is_held, .retained = counts_retain, .release = counts_release};
	CUdeviceptr p = 0;
	CUcontext primary;

	start_cuda();
	OK(cuDevicePrimaryCtxRetain(&primary, 0));
	OK(cuMemAllocAsync(&p, MIB(2), NULL));
	OK(cuCtxSynchronize());
	pdn_primary_counts = &counts;
	in_other_thread(get_in_bare_thread, &p);
	pdn_primary_counts = NULL;
	ck_assert(is_cached(p, 1));
	ck_assert_uint_ge(own_retains, 1);
	ck_assert_uint_eq(own_releases, own_retains);
}
END_TEST

/* The driver's pin space is read when the driver is loaded, so this needs a process of its own. */
START_TEST(pin_space_is_made_by_eviction)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		setenv("SIM_PIN_BYTES", "8M", 1);
		execl("/proc/self/exe", "test_cache_sim", (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(with_little_pin_space)
{
	CUdeviceptr p[6];

	start_cuda();
	for (unsigned i = 0; i < 6; i++) {
		p[i] = alloc(MIB(2));
		get_and_put(p[i], 1);
	}
	ck_assert_uint_eq(stats().evictions, 2);
	ck_assert(!is_cached(p[0], 1));
	ck_assert(!is_cached(p[1], 1));
	ck_assert(is_cached(p[2], 1));
	ck_assert_uint_eq(sim_open_export_bytes(0), MIB(8));
}
END_TEST

START_TEST(a_refused_export_is_reported)
{
	start_cuda();
	CUdeviceptr p = alloc(MIB(2));
	ck_assert_int_eq(sim_fail("cuMemGetHandleForAddressRange:1=CUDA_ERROR_UNKNOWN"), 0);
	must_refuse(p, 1, PINDOWN_ERR_DRIVER);
	ck_assert_int_eq(pindown_driver_error(), CUDA_ERROR_UNKNOWN);
	get_and_put(p, 1);
}
END_TEST

START_TEST(a_free_that_the_driver_refuses)
{
	start_cuda();
	CUdeviceptr p = alloc(MIB(2));
	get_and_put(p, 1);
	ck_assert_int_eq(sim_free(p + 512), CUDA_ERROR_INVALID_VALUE);
	ck_assert(!is_cached(p, 1));
	get_and_put(p, 1);
	OK(sim_free(p));
	ck_assert_int_eq(sim_free(p), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

/* Setting SYNC_MEMOPS would fail and invalidate the capture, this thread's or another's. */
START_TEST(a_pin_during_a_capture_spoils_nothing)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
						    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
						    CU_STREAM_CAPTURE_MODE_RELAXED};

	start_cuda();
	for (unsigned i = 0; i < 3; i++) {
		CUdeviceptr p = alloc(MIB(2));
		CUstreamCaptureMode mode = modes[i];
		CUstream stream;
		CUgraph graph;
		int set = 0;

		OK(cuThreadExchangeStreamCaptureMode(&mode));
		OK(cuStreamCreate(&stream, 0));
		OK(cuStreamBeginCapture_v2(stream, modes[i]));
		get_and_put(p, 1);
		OK(cuStreamEndCapture(stream, &graph));
		OK(cuPointerGetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
		ck_assert_int_eq(set, 1);
		OK(cuThreadExchangeStreamCaptureMode(&mode));
		ck_assert_int_eq(mode, modes[i]);
		OK(cuGraphDestroy(graph));
		OK(sim_free(p));
	}
}
END_TEST

START_TEST(memory_of_a_capture_is_not_known)
{
	CUstream stream;
	CUgraph graph;
	CUdeviceptr p;

	start_cuda();
	OK(cuStreamCreate(&stream, 0));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuMemAllocAsync(&p, KIB(64), stream));
	must_refuse(p, 1, PINDOWN_ERR_NOT_DEVICE);
	OK(cuMemFreeAsync(p, stream));
	OK(cuStreamEndCapture(stream, &graph));
	must_refuse(p, 1, PINDOWN_ERR_NOT_DEVICE);
	OK(cuGraphDestroy(graph));
}
END_TEST

/* The child lives on while the parent frees. */
START_TEST(a_child_keeps_no_memory)
{
	int leash[2];
	char c = 0;

	start_cuda();
	uint64_t before = sim_used_bytes(0);
	CUdeviceptr p = alloc(MIB(64));
	get_and_put(p, 1);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, leash), 0);
	pid_t child = fork();
	if (child == 0) {
		bool ok = write(leash[1], &c, 1) == 1 && read(leash[1], &c, 1) == 1;
		_exit(ok ? 0 : 1);
	}
	ck_assert_int_eq(read(leash[0], &c, 1), 1);
	OK(sim_free(p));
	ck_assert_uint_eq(sim_used_bytes(0), before);
	ck_assert_int_eq(write(leash[0], &c, 1), 1);
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache on the simulated driver");
	TCase *tc = sim_case(suite, "cache on the simulated driver");

	if (getenv("SIM_PIN_BYTES")) {
		tcase_add_test(tc, with_little_pin_space);
		return run_suite(suite);
	}
	tcase_add_test(tc, an_unwatched_free_leaks_and_goes_stale);
	tcase_add_test(tc, a_watched_free_gives_the_memory_back_at_once);
	tcase_add_test(tc, memory_in_use_is_kept_until_the_last_put);
	tcase_add_test(tc, the_dmabuf_is_the_memory);
	tcase_add_test(tc, small_neighbours_share_a_page);
	tcase_add_test(tc, pool_memory_comes_back_under_another_id);
	tcase_add_test(tc, pool_memory_is_pinned_from_its_piece_on);
	tcase_add_test(tc, a_pin_during_a_capture_spoils_nothing);
	tcase_add_test(tc, a_context_ends_its_linear_memory_only);
	tcase_add_test(tc, mappings_side_by_side);
	tcase_add_test(tc, managed_and_host_memory_are_refused);
	tcase_add_test(tc, a_hit_makes_no_call_of_the_real_thing);
	tcase_add_test(tc, a_thread_without_context_pins);
	tcase_add_test(tc, memory_of_another_device_is_pinned);
	tcase_add_test(tc, who_counts_holds_of_a_primary_context_is_asked_for_pindown_s);
	tcase_add_test(tc, pin_space_is_made_by_eviction);
	tcase_add_test(tc, a_refused_export_is_reported);
	tcase_add_test(tc, a_free_that_the_driver_refuses);
	tcase_add_test(tc, memory_of_a_capture_is_not_known);
	tcase_add_test(tc, a_child_keeps_no_memory);
	return run_suite(suite);
}
