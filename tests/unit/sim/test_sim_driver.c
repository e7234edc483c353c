/* SPDX-License-Identifier: MIT */
/* The simulated driver as a library: look-ups, faults on demand, and threads. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/support/sim_support.h"

/* ---- look-ups ------------------------------------------------------------------------------- */

static const struct row {
	const char *symbol, *base;
	int version, flags;
} rows[] = {
#define PDN_ANY				       0
#define PDN_LEGACY			       0
#define PDN_PER_THREAD			       CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#define X(symbol, base, version, flavour, ...) {#symbol, #base, version, flavour},
#include "hook/cuda/entrypoints.def"
#include "tests/sim/procs.def"
#undef X
};

START_TEST(every_call_is_exported_and_found_by_name_version_and_flags)
{
	size_t i;

	/* newer than the driver that the simulation follows */
	setenv("SIM_DRIVER_VERSION", "13090", 1);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CUdriverProcAddressQueryResult status = 7;
		void *found = NULL;

		ok(cu(cuGetProcAddress_v2)(rows[i].base, &found, rows[i].version, rows[i].flags,
					   &status));
		ck_assert_msg(found == sim_symbol(rows[i].symbol), "%s", rows[i].symbol);
		ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
		ck_assert_uint_ne(cu(sim_calls)(rows[i].symbol), UINT64_MAX);
	}
	ck_assert_uint_eq(cu(sim_calls)("cuNoSuchCall"), UINT64_MAX);
}
END_TEST

START_TEST(look_ups_that_find_nothing_say_why)
{
	CUdriverProcAddressQueryResult status = 7;
	void *found = &status;

	ok(cu(cuGetProcAddress_v2)("cuNoSuchCall", &found, 12000, 0, &status));
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ck_assert_ptr_eq(found, NULL);
	ok(cu(cuGetProcAddress_v2)("cuMemFreeAsync", &found, 11010, 0, &status));
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	found = &status;
	ok(cu(cuGetProcAddress_v2)("cuNoSuchCall", &found, 12000, 0, NULL));
	ck_assert_ptr_eq(found, NULL);
	found = &status;
	ok(cu(cuGetProcAddress_v2)("", &found, 12000, 0, NULL));
	ck_assert_ptr_eq(found, NULL);
	found = &status;
	refused(cu(cuGetProcAddress)("cuNoSuchCall", &found, 12000, 0), CUDA_ERROR_NOT_FOUND);
	ck_assert_ptr_eq(found, &status);
	refused(cu(cuGetProcAddress_v2)("cuMemFree", NULL, 12000, 0, &status),
		CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuGetProcAddress_v2)(NULL, &found, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(an_older_driver_lacks_newer_calls)
{
	CUdriverProcAddressQueryResult status;
	void *found;

	setenv("SIM_DRIVER_VERSION", "12010", 1);
	ok(cu(cuGetProcAddress_v2)("cuGraphAddNode", &found, 12010, 0, &status));
	ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	ok(cu(cuGetProcAddress_v2)("cuCtxCreate", &found, 12010, 0, &status));
	ck_assert_ptr_eq(found, sim_symbol("cuCtxCreate_v3"));
}
END_TEST

START_TEST(it_says_that_it_is_simulated)
{
	char name[64];
	int count;

	setenv("SIM_DEVICES", "5", 1);
	start();
	ok(cu(cuDeviceGetCount)(&count));
	ck_assert_int_eq(count, 5);
	ok(cu(cuDeviceGetName)(name, sizeof(name), 4));
	ck_assert_str_eq(name, "pindown simulated GPU 4");
	refused(cu(cuDeviceGetName)(name, sizeof(name), 5), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

START_TEST(without_devices_there_is_no_driver)
{
	setenv("SIM_DEVICES", "0", 1);
	refused(cu(cuInit)(0), CUDA_ERROR_NO_DEVICE);
}
END_TEST

/* ---- counts and faults ---------------------------------------------------------------------- */

START_TEST(calls_are_counted_but_not_the_drivers_own)
{
	CUcontext context;
	CUdeviceptr ptr;
	uint64_t all;

	start();
	ck_assert_uint_eq(cu(sim_calls)("cuInit"), 1);
	ok(cu(cuCtxCreate_v2)(&context, 0, 0));
	allocate(100);
	ptr = allocate(100);
	ok(cu(cuMemFree_v2)(ptr));
	all = cu(sim_calls_all)();
	ok(cu(cuCtxDestroy_v2)(context)); /* cuCtxDestroy frees the other allocation itself */
	ck_assert_uint_eq(cu(sim_calls)("cuMemAlloc_v2"), 2);
	ck_assert_uint_eq(cu(sim_calls)("cuMemFree_v2"), 1);
	ck_assert_uint_eq(cu(sim_calls_all)(), all + 1);
}
END_TEST

START_TEST(named_calls_fail_on_demand)
{
	CUdeviceptr ptr[4];

	setenv("SIM_FAIL", "cuMemAlloc_v2:2-3=CUDA_ERROR_OUT_OF_MEMORY,cuMemFree_v2:1", 1);
	start();
	ok(cu(cuMemAlloc_v2)(&ptr[0], 100));
	refused(cu(cuMemAlloc_v2)(&ptr[1], 100), CUDA_ERROR_OUT_OF_MEMORY);
	refused(cu(cuMemAlloc_v2)(&ptr[1], 100), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cu(cuMemAlloc_v2)(&ptr[1], 100));
	refused(cu(cuMemFree_v2)(ptr[0]), CUDA_ERROR_UNKNOWN);
	ck_assert_uint_ne(id_of(ptr[0]), 0);
	ok(cu(cuMemFree_v2)(ptr[0]));
	ck_assert_int_eq(cu(sim_fail)("cuMemFree_v2:*=201"), 0);
	refused(cu(cuMemFree_v2)(ptr[1]), CUDA_ERROR_INVALID_CONTEXT);
	cu(sim_no_faults)();
	ok(cu(cuMemFree_v2)(ptr[1]));
}
END_TEST

static void *delayed_free(void *arg)
{
	ok(cu(cuCtxSetCurrent)(((void **)arg)[0]));
	ok(cu(cuMemFree_v2)((CUdeviceptr)((void **)arg)[1]));
	return NULL;
}

/*
 * While one thread is held up in a free, another sees the memory before the effect, or no longer
 * sees it after the effect. A slow machine may miss the window; it must be seen once.
 */
static bool window_is_seen(CUcontext context, bool after)
{
	void *args[2] = {context, (void *)allocate(MIB)};
	uint64_t calls = cu(sim_calls)("cuMemFree_v2");
	bool in_time = false, seen;
	pthread_t thread;

	pthread_create(&thread, NULL, delayed_free, args);
	while (cu(sim_calls)("cuMemFree_v2") == calls)
		sched_yield();
	do {
		seen = (id_of((CUdeviceptr)args[1]) == 0) == after;
		in_time = pthread_tryjoin_np(thread, NULL) != 0;
	} while (!seen && in_time);
	if (in_time)
		pthread_join(thread, NULL);
	ck_assert_uint_eq(id_of((CUdeviceptr)args[1]), 0);
	return seen && in_time;
}

START_TEST(delays_open_windows_before_and_after_the_effect)
{
	CUcontext context;

	setenv("SIM_OVERLAPS", "allowed", 1);
	context = start();
	ck_assert_int_eq(
		cu(sim_delay)(_i ? "cuMemFree_v2:50000:after" : "cuMemFree_v2:50000:before"), 0);
	while (!window_is_seen(context, _i))
		;
}
END_TEST

START_TEST(bad_rules_are_told_in_one_line)
{
	static const char *const bad[] = {
		"cuMemFree:",	    "cuNoSuchCall:1",	       "cuMemFree_v2:0",
		"cuMemFree_v2:5-3", "cuMemFree_v2:1=NONSENSE", "cuMemFree_v2",
		"cuMemFree_v2:1;"};
	char text[400];
	int out[2], saved = dup(2);
	ssize_t length;

	sim_library();
	ck_assert_int_eq(pipe(out), 0);
	dup2(out[1], 2);
	ck_assert_int_eq(cu(sim_fail)(bad[_i]), -1);
	dup2(saved, 2);
	length = read(out[0], text, sizeof(text) - 1);
	ck_assert_int_gt(length, 0);
	text[length] = '\0';
	ck_assert_ptr_eq(strchr(text, '\n'), text + length - 1);
	ck_assert_ptr_ne(strstr(text, bad[_i]), NULL);
	ck_assert_ptr_ne(strstr(text, "accepted"), NULL);
}
END_TEST

START_TEST(calls_are_logged_when_wanted)
{
	char name[] = "/tmp/test-sim-XXXXXX", text[4096];
	int fd = mkstemp(name);
	ssize_t length;

	setenv("SIM_LOG", name, 1);
	start();
	refused(cu(cuMemFree_v2)(1), CUDA_ERROR_INVALID_VALUE);
	length = read(fd, text, sizeof(text) - 1);
	unlink(name);
	ck_assert_int_gt(length, 0);
	text[length] = '\0';
	ck_assert_ptr_ne(strstr(text, "cuInit = 0\n"), NULL);
	ck_assert_ptr_ne(strstr(text, "cuMemFree_v2 = 1\n"), NULL);
}
END_TEST

/* ---- threads -------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS	2000

static void *allocate_and_free(void *context)
{
	CUdeviceptr ptr[8] = {0}, async;
	unsigned i;
	char back[4];

	ok(cu(cuCtxSetCurrent)(context));
	for (i = 0; i < ROUNDS; i++) {
		CUdeviceptr *at = &ptr[i % 8];

		if (*at)
			ok(cu(cuMemFree_v2)(*at));
		*at = allocate(i % 3 ? 1 + i * 37 % 100000 : 2 * MIB + i);
		ok(cu(cuMemsetD8_v2)(*at, i & 0x7f, 16));
		ok(cu(cuMemAllocAsync)(&async, 1 + i * 53 % 50000, CU_STREAM_PER_THREAD));
		if (i % 16 == 0)
			ok(try_export(*at & ~(64 * KIB - 1), 64 * KIB));
		ok(cu(cuMemcpyDtoH_v2)(back, *at + 12, 4));
		ck_assert_int_eq(back[3], i & 0x7f);
		ck_assert_uint_ne(id_of(async), id_of(*at));
		ok(cu(cuMemFreeAsync)(async, CU_STREAM_PER_THREAD));
	}
	for (i = 0; i < 8; i++)
		ok(cu(cuMemFree_v2)(ptr[i]));
	return NULL;
}

/* An export of whole pages reaches over what other threads free. */
START_TEST(threads_do_not_get_in_each_others_way)
{
	pthread_t threads[THREADS];
	CUcontext context;
	int i;

	setenv("SIM_OVERLAPS", "allowed", 1);
	context = start();
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, allocate_and_free, context);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ok(cu(cuCtxSynchronize)());
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
	ck_assert_uint_eq(cu(sim_open_exports)(0), 0);
	ck_assert_uint_eq(cu(sim_live_allocations)(), 0);
}
END_TEST

static CUdeviceptr seen_by_callback;

static void call_back(void *context)
{
	ok(cu(cuCtxSetCurrent)(context));
	ok(cu(cuMemFree_v2)(seen_by_callback));
}

START_TEST(host_functions_run_without_the_lock)
{
	CUcontext context = start();

	seen_by_callback = allocate(100);
	ok(cu(cuLaunchHostFunc)(NULL, call_back, context));
	ck_assert_uint_eq(id_of(seen_by_callback), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: the library");
	TCase *tests = suite_case(suite, "driver", NULL, NULL);

	tcase_add_test(tests, every_call_is_exported_and_found_by_name_version_and_flags);
	tcase_add_test(tests, look_ups_that_find_nothing_say_why);
	tcase_add_test(tests, an_older_driver_lacks_newer_calls);
	tcase_add_test(tests, it_says_that_it_is_simulated);
	tcase_add_test(tests, without_devices_there_is_no_driver);
	tcase_add_test(tests, calls_are_counted_but_not_the_drivers_own);
	tcase_add_test(tests, named_calls_fail_on_demand);
	tcase_add_loop_test(tests, delays_open_windows_before_and_after_the_effect, 0, 2);
	tcase_add_loop_test(tests, bad_rules_are_told_in_one_line, 0, 7);
	tcase_add_test(tests, calls_are_logged_when_wanted);
	tcase_add_test(tests, threads_do_not_get_in_each_others_way);
	tcase_add_test(tests, host_functions_run_without_the_lock);
	return run_suite(suite);
}
