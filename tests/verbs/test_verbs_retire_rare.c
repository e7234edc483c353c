/* SPDX-License-Identifier: MIT */
/* Addresses under held registrations, PINDOWN_HELD=retire: frees in each other, and captures. */
#include <pthread.h>
#include <unistd.h>

#include "verbs_test.h"

#define SIZE MIB(4)
#define DEEP 6

static struct {
	CUdeviceptr p;
	struct ibv_mr *mr;
} memory[DEEP];
static int freed;

/* How many of them does the driver hand out again? */
static int count_handed_out_again(void)
{
	CUdeviceptr new[2 * DEEP];
	int count = 0;

	for (int i = 0; i < 2 * DEEP; i++) {
		new[i] = gpu_alloc(SIZE);
		for (int n = 0; n < DEEP; n++)
			count += new[i] == memory[n].p;
	}
	for (int i = 0; i < 2 * DEEP; i++)
		gpu_free(new[i]);
	return count;
}

static void free_next(const struct pindown_invalidation *what, void *arg)
{
	(void)what;
	(void)arg;
	if (freed < DEEP)
		gpu_free(memory[freed++].p);
}

/*
 * The deepest ones do not say what they free: what is held there is kept, and counted. The frees
 * around them retire their own addresses all the same.
 */
START_TEST(frees_in_each_other)
{
	begin();
	for (int i = 0; i < DEEP; i++) {
		memory[i].p = gpu_alloc(SIZE);
		memory[i].mr = must_register(pd, memory[i].p, SIZE, ALL_ACCESS);
	}
	ck_assert_int_ge(pindown_subscribe(free_next, NULL), 0);
	free_next(NULL, NULL);
	ck_assert_int_eq(freed, DEEP);
	ck_assert_uint_ge(stats().retired, 4);
	ck_assert_uint_eq(stats().retired + stats().unprotected, DEEP);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert_int_eq(count_handed_out_again(), (int)stats().unprotected);
	for (int i = 0; i < DEEP; i++)
		must_deregister(memory[i].mr);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().kept_regions, 0);
}
END_TEST

static bool is_retired(void)
{
	uint64_t before = stats().retired;
	CUdeviceptr p = gpu_alloc(SIZE);
	struct ibv_mr *mr = must_register(pd, p, SIZE, ALL_ACCESS);

	gpu_free(p);
	must_deregister(mr);
	return stats().retired == before + 1;
}

/* A capture that its program gives up by destroying the stream is over. */
START_TEST(a_stream_that_is_destroyed_while_it_is_captured)
{
	CUstream stream;

	begin();
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert(!is_retired());
	OK(cuStreamDestroy_v2(stream));
	ck_assert(is_retired());
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamDestroy_v2(stream));
	ck_assert(is_retired());
}
END_TEST

static CUdeviceptr got;
static bool has_returned;

static void *allocate(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	OK(cuMemAlloc_v2(&got, SIZE));
	__atomic_store_n(&has_returned, true, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * It has taken no turn with the free, as nothing was retired when it began. Still it must not get
 * the address, which the driver does not reserve here.
 */
START_TEST(an_allocation_that_began_before_the_first_is_retired)
{
	CUdeviceptr p;
	struct ibv_mr *mr;
	uint64_t calls;
	pthread_t thread;
	bool was_slow;

	begin();
	p = gpu_alloc(SIZE);
	mr = must_register(pd, p, SIZE, ALL_ACCESS);
	calls = sim_calls("cuMemAlloc_v2");
	ck_assert_int_eq(sim_delay("cuMemAlloc_v2:500000"), 0);
	/* The first two ask whether it reserves addresses at all. */
	ck_assert_int_eq(sim_fail("cuMemAddressReserve:3-"), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, allocate, NULL), 0);
	while (sim_calls("cuMemAlloc_v2") == calls)
		usleep(100);
	gpu_free(p);
	was_slow = __atomic_load_n(&has_returned, __ATOMIC_ACQUIRE);
	sim_no_faults();
	pthread_join(thread, NULL);
	ck_assert_uint_eq(stats().retired, 1);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert_uint_ne(got, p);
	/* Else the allocation was over before the free: this machine is busy. */
	if (!was_slow)
		ck_assert_uint_eq(sim_calls("cuMemAlloc_v2"), calls + 2);
	must_deregister(mr);
	gpu_free(got);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("verbs: addresses that are retired, rare cases");
	TCase *tc = verbs_case(suite, "rare");

	tcase_add_test(tc, frees_in_each_other);
	tcase_add_test(tc, a_stream_that_is_destroyed_while_it_is_captured);
	tcase_add_test(tc, an_allocation_that_began_before_the_first_is_retired);
	return run_verbs_tests(argc, argv, suite);
}
