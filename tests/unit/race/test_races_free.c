/* SPDX-License-Identifier: MIT */
/*
 * What other threads see while a call that ends memory is under way, between raising its guard and
 * lowering it.
 */
#define _GNU_SOURCE
#include "tests/unit/support/cache_test.h"

#define AT(i) (BASE + MIB(16) * (i))

/* A thread that ends memory in two steps, each when the test says so. */
static struct {
	struct worker worker;
	struct gate up, go;
	pdn_guard (*end)(void);
	void (*real)(void);
	unsigned exports_after_end;
	uint64_t id;
} freeing;

static void end_and_wait(void *arg)
{
	(void)arg;
	pdn_guard guard = freeing.end();
	freeing.exports_after_end = fake_open_exports_of(freeing.id);
	gate_open(&freeing.up);
	gate_wait(&freeing.go);
	if (freeing.real)
		freeing.real();
	pdn_ended(guard);
}

static void start_freeing(pdn_guard (*end)(void), void (*real)(void))
{
	freeing.end = end;
	freeing.real = real;
	freeing.id = fake_id(AT(0));
	gate_init(&freeing.up);
	gate_init(&freeing.go);
	worker_start(&freeing.worker, end_and_wait, NULL);
}

static void finish_freeing(void *arg)
{
	(void)arg;
	gate_open(&freeing.go);
	worker_join(&freeing.worker);
}

static pdn_guard end_first(void)
{
	return pdn_end_range(AT(0), 0);
}

static pdn_guard end_context(void)
{
	return pdn_end_context(FAKE_CONTEXT);
}

static pdn_guard end_second_mapping(void)
{
	return pdn_end_range(AT(0) + MIB(2), MIB(2));
}

static void free_first(void)
{
	ck_assert_int_eq(fake_free(AT(0)), FAKE_SUCCESS);
}

static void free_and_reuse_first(void)
{
	free_first();
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

static void destroy_context(void)
{
	fake_context_destroy(FAKE_CONTEXT);
}

static void unmap_second_mapping(void)
{
	ck_assert_int_eq(fake_free(AT(0) + MIB(2)), FAKE_SUCCESS);
}

/* ---- what other threads see meanwhile ---- */

/*
 * The free does not return. Until then any hit or pin of this memory is refused, after two seconds.
 */
START_TEST(memory_that_is_being_freed_is_busy)
{
	restore_wait_limit();
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	start_freeing(end_first, free_first);
	gate_wait(&freeing.up);

	ck_assert(!is_cached(AT(0), 1));
	must_refuse(AT(0), 1, PINDOWN_ERR_TIMED_OUT);
	ck_assert_uint_eq(fake_open_exports(), 0);
	get_and_put(AT(1), 1);
	finish_freeing(NULL);
	must_refuse(AT(0), 1, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/* Hits of other memory go on; a miss waits, as only the driver could say whose memory it is. */
START_TEST(a_context_that_is_ending_is_waited_for)
{
	pindown_region *region;

	restore_wait_limit();
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc_in(AT(1), MIB(2), FAKE_LINEAR, (void *)0xd1, 0, NULL);
	fake_alloc(AT(2), MIB(2), FAKE_POOL);
	fake_alloc(AT(3), MIB(2), FAKE_VMM);
	for (unsigned i = 0; i < 3; i++)
		get_and_put(AT(i), 1);
	start_freeing(end_context, destroy_context);
	gate_wait(&freeing.up);
	for (unsigned i = 1; i < 3; i++)
		ck_assert(is_cached(AT(i), 1));
	must_refuse(AT(0), 1, PINDOWN_ERR_TIMED_OUT);
	ck_assert_int_eq(pindown_get(AT(3), 1, PINDOWN_GET_NOWAIT, &region),
			 PINDOWN_ERR_WOULD_WAIT);
	finish_freeing(NULL);
	must_refuse(AT(0), 1, PINDOWN_ERR_NOT_DEVICE);
	get_and_put(AT(3), 1);
}
END_TEST

/*
 * A thread that frees can't wait for itself. There are so many gets here that a wait of two seconds
 * for each would exceed the test's limit.
 */
START_TEST(a_thread_that_frees_finds_its_own_memory_busy)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	pdn_guard guard = pdn_end_range(AT(0), 0);
	for (unsigned i = 0; i < 100; i++)
		must_refuse(AT(0), 1, PINDOWN_ERR_BUSY);
	get_and_put(AT(1), 1);
	pdn_ended(guard);
	get_and_put(AT(0), 1);
}
END_TEST

static pindown_region *got;
static int got_result;

static void get_first(void *arg)
{
	(void)arg;
	got = NULL;
	got_result = pindown_get(AT(0), MIB(2), 0, &got);
}

/*
 * A get waits for the free and then asks the driver again, before or after the address is reused.
 */
static void get_during_a_free(void (*real)(void), int expected)
{
	struct worker getting;

	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	start_freeing(end_first, real);
	gate_wait(&freeing.up);
	worker_start(&getting, get_first, NULL);
	worker_wait_idle(&getting);
	finish_freeing(NULL);
	worker_join(&getting);
	ck_assert_int_eq(got_result, expected);
	if (got)
		ck_assert_uint_eq(pindown_region_buffer_id(got), fake_id(AT(0)));
	pindown_put(got);
	ck_assert_uint_eq(freeing.exports_after_end, 0);
	ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
}

START_TEST(a_get_waits_for_the_free)
{
	get_during_a_free(free_first, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

START_TEST(a_get_waits_for_the_free_and_finds_the_new_memory)
{
	get_during_a_free(free_and_reuse_first, PINDOWN_OK);
}
END_TEST

START_TEST(a_get_waits_for_the_free_that_fails)
{
	get_during_a_free(NULL, PINDOWN_OK);
}
END_TEST

/* ---- the guard was up before the pin began ---- */

/*
 * A free that began before the pin ends, its guard with it, at each edge of the pin that the pin
 * reaches. In the last turn the pin waits for the guard, and the free ends only when the pin has
 * given up.
 */
static void sweep_guard_first(pdn_guard (*end)(void), void (*real)(void), uint64_t length,
			      void (*prepare)(void), int expected)
{
	pindown_region *region = NULL;
	bool met = true;
	int result;

	restore_wait_limit();
	for (unsigned edge = 0; met; edge++) {
		prepare();
		start_freeing(end, real);
		gate_wait(&freeing.up);
		fake_at_edge(FAKE_CALLS, edge, finish_freeing, NULL);
		result = pindown_get(AT(0), length, 0, &region);
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
		if (!met) {
			ck_assert_int_eq(result, PINDOWN_ERR_TIMED_OUT);
			finish_freeing(NULL);
			break;
		}
		ck_assert_msg(result == expected, "edge %u: %s", edge, pindown_strerror(result));
		if (result == PINDOWN_OK) {
			ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(AT(0)));
			pindown_put(region);
		}
		pindown_flush();
		fake_free(AT(0));
		fake_free(AT(0) + MIB(2));
	}
}

static void one_allocation(void)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
}

static void two_mappings(void)
{
	fake_alloc(AT(0), MIB(2), FAKE_VMM);
	fake_alloc(AT(0) + MIB(2), MIB(2), FAKE_VMM);
}

START_TEST(a_pin_that_began_during_a_free_loses)
{
	sweep_guard_first(end_first, free_first, MIB(2), one_allocation, PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

START_TEST(a_pin_that_began_during_a_free_finds_the_new_memory)
{
	sweep_guard_first(end_first, free_and_reuse_first, MIB(2), one_allocation, PINDOWN_OK);
}
END_TEST

START_TEST(a_pin_that_began_during_the_end_of_its_context_loses)
{
	sweep_guard_first(end_context, destroy_context, MIB(2), one_allocation,
			  PINDOWN_ERR_NOT_DEVICE);
}
END_TEST

/* The buffer id at the base doesn't change here, so something else must show the unmap. */
START_TEST(a_pin_that_began_during_an_unmap_of_its_second_half_loses)
{
	sweep_guard_first(end_second_mapping, unmap_second_mapping, MIB(4), two_mappings,
			  PINDOWN_ERR_RANGE);
}
END_TEST

/* ---- a free against another thread's unpin ---- */

static struct gate callback_runs, callback_may_end;
static bool callback_blocks;

static void block(const struct pindown_invalidation *what, void *arg)
{
	(void)arg;
	if (what->reason == PINDOWN_REASON_FREED)
		return;
	gate_open(&callback_runs);
	gate_wait(&callback_may_end);
}

static void evict_first(void *arg)
{
	(void)arg;
	get_and_put(AT(1), 1);
}

static void flush_all(void *arg)
{
	(void)arg;
	pindown_flush();
}

static void invalidate_first(void *arg)
{
	(void)arg;
	pindown_invalidate(AT(0), 0);
}

/*
 * The region is unlinked, and another thread is about to unpin it: the free waits for that, also
 * where the memory has been pinned again meanwhile.
 */
static void free_while(void (*unpinning)(void *), bool is_pinned_again)
{
	struct worker worker;

	setenv("PINDOWN_MAX_REGIONS", is_pinned_again ? "2" : "1", 1);
	gate_init(&callback_runs);
	gate_init(&callback_may_end);
	int id = pindown_subscribe(block, NULL);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	worker_start(&worker, unpinning, NULL);
	gate_wait(&callback_runs);
	if (is_pinned_again)
		get_and_put(AT(0), 1);
	ck_assert_uint_eq(fake_open_exports_of(fake_id(AT(0))), is_pinned_again ? 2 : 1);

	start_freeing(end_first, free_first);
	worker_wait_idle(&freeing.worker);
	gate_open(&callback_may_end);
	gate_wait(&freeing.up);
	ck_assert_uint_eq(freeing.exports_after_end, 0);
	finish_freeing(NULL);
	worker_join(&worker);
	pindown_unsubscribe(id);
}

START_TEST(a_free_waits_for_an_eviction_of_the_same_region)
{
	free_while(evict_first, false);
}
END_TEST

START_TEST(a_free_waits_for_a_flush_of_the_same_region)
{
	free_while(flush_all, _i);
}
END_TEST

START_TEST(a_free_waits_for_an_invalidation_of_the_same_region)
{
	free_while(invalidate_first, _i);
}
END_TEST

/* But it does not wait for the eviction of another region. */
START_TEST(a_free_does_not_wait_for_the_eviction_of_another_region)
{
	struct worker worker;

	gate_init(&callback_runs);
	gate_init(&callback_may_end);
	int id = pindown_subscribe(block, NULL);
	for (unsigned i = 0; i < 3; i++)
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	worker_start(&worker, invalidate_first, NULL);
	gate_wait(&callback_runs);
	get_and_put(AT(1), 1);
	ck_assert_int_eq(watched_free(AT(1)), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(AT(2)), FAKE_SUCCESS);
	gate_open(&callback_may_end);
	worker_join(&worker);
	pindown_unsubscribe(id);
}
END_TEST

static void block_always(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	if (callback_blocks) {
		callback_blocks = false;
		gate_open(&callback_runs);
		gate_wait(&callback_may_end);
	}
}

/*
 * A region in use has been unlinked. While the last subscriber is notified, the region's holder
 * puts it. From then on nobody holds it, and a free must not continue before it is unpinned.
 */
START_TEST(a_free_waits_until_everybody_has_been_told)
{
	struct worker worker;

	gate_init(&callback_runs);
	gate_init(&callback_may_end);
	callback_blocks = true;
	int id = pindown_subscribe(block_always, NULL);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	pindown_region *held = must_get(AT(0), 1);
	worker_start(&worker, invalidate_first, NULL);
	gate_wait(&callback_runs);
	pindown_put(held);
	start_freeing(end_first, free_first);
	worker_wait_idle(&freeing.worker);
	gate_open(&callback_may_end);
	gate_wait(&freeing.up);
	ck_assert_uint_eq(freeing.exports_after_end, 0);
	finish_freeing(NULL);
	worker_join(&worker);
	pindown_unsubscribe(id);
}
END_TEST

/* Comparing a region with the driver does not use it: a free that comes meanwhile finds it idle. */
static void start_freeing_now(void *arg)
{
	(void)arg;
	start_freeing(end_first, free_first);
	worker_wait_idle(&freeing.worker);
}

static void free_while_comparing(void (*compare)(void))
{
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
		get_and_put(AT(0), 1);
		fake_at_edge(FAKE_CALLS, edge, start_freeing_now, NULL);
		compare();
		met = fake_edge_met();
		fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
		if (met) {
			gate_wait(&freeing.up);
			ck_assert_uint_eq(freeing.exports_after_end, 0);
			finish_freeing(NULL);
		} else {
			ck_assert_uint_gt(edge, 0);
			ck_assert(is_cached(AT(0), 1));
		}
	}
}

static void recheck_all(void)
{
	pdn_recheck(NULL);
}

static void allocate_the_same(void)
{
	pdn_allocated(AT(0), MIB(2));
}

START_TEST(a_free_during_a_recheck)
{
	free_while_comparing(recheck_all);
}
END_TEST

START_TEST(a_free_during_a_comparison_for_an_allocation)
{
	free_while_comparing(allocate_the_same);
}
END_TEST

/* Pending work elsewhere makes no hit ask the driver or take the lock. */
START_TEST(hits_go_on_while_a_free_is_under_way)
{
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	fake_alloc(AT(1), MIB(2), FAKE_LINEAR);
	get_and_put(AT(0), 1);
	pindown_region *held = must_get(AT(0), 1);
	get_and_put(AT(1), 1);
	start_freeing(end_first, free_first);
	gate_wait(&freeing.up);
	unsigned before = fake_count(FAKE_CALLS);
	for (unsigned i = 0; i < 1000; i++)
		ck_assert(is_cached(AT(1) + i, 1));
	ck_assert_uint_eq(fake_count(FAKE_CALLS), before);
	finish_freeing(NULL);
	pindown_put(held);
}
END_TEST

/*
 * Two frees of one region at once: the region ends once, and neither free continues while it is
 * pinned.
 */
START_TEST(two_threads_end_the_same_region)
{
	struct worker worker;

	gate_init(&callback_runs);
	gate_init(&callback_may_end);
	fake_alloc(AT(0), MIB(2), FAKE_LINEAR);
	int id = pindown_subscribe(block, NULL);
	get_and_put(AT(0), 1);
	worker_start(&worker, invalidate_first, NULL);
	gate_wait(&callback_runs);
	start_freeing(end_context, destroy_context);
	worker_wait_idle(&freeing.worker);
	gate_open(&callback_may_end);
	gate_wait(&freeing.up);
	ck_assert_uint_eq(freeing.exports_after_end, 0);
	finish_freeing(NULL);
	worker_join(&worker);
	ck_assert_uint_eq(stats().unpins, 1);
	pindown_unsubscribe(id);
}
END_TEST

static struct gate told[2], may_end[2];

static void block_each(const struct pindown_invalidation *what, void *arg)
{
	unsigned i = what->base != AT(0);

	(void)arg;
	gate_open(&told[i]);
	gate_wait(&may_end[i]);
}

static void invalidate_second(void *arg)
{
	(void)arg;
	pindown_invalidate(AT(1), 0);
}

/* The list of the first one is no longer the latest. */
START_TEST(two_threads_end_regions_in_either_order)
{
	struct worker worker[2];
	unsigned first = (unsigned)_i;

	for (unsigned i = 0; i < 2; i++) {
		gate_init(&told[i]);
		gate_init(&may_end[i]);
		fake_alloc(AT(i), MIB(2), FAKE_LINEAR);
		get_and_put(AT(i), 1);
	}
	int id = pindown_subscribe(block_each, NULL);
	worker_start(&worker[0], invalidate_first, NULL);
	gate_wait(&told[0]);
	worker_start(&worker[1], invalidate_second, NULL);
	gate_wait(&told[1]);
	gate_open(&may_end[first]);
	worker_join(&worker[first]);
	ck_assert_uint_eq(stats().regions, 1);
	gate_open(&may_end[!first]);
	worker_join(&worker[!first]);
	ck_assert_uint_eq(stats().regions, 0);
	pindown_unsubscribe(id);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: frees under way");
	TCase *tc = cache_case(suite, "what others see meanwhile");

	tcase_add_test(tc, memory_that_is_being_freed_is_busy);
	tcase_add_test(tc, a_context_that_is_ending_is_waited_for);
	tcase_add_test(tc, a_thread_that_frees_finds_its_own_memory_busy);
	tcase_add_test(tc, a_get_waits_for_the_free);
	tcase_add_test(tc, a_get_waits_for_the_free_and_finds_the_new_memory);
	tcase_add_test(tc, a_get_waits_for_the_free_that_fails);
	tcase_add_test(tc, hits_go_on_while_a_free_is_under_way);
	tc = cache_case(suite, "guards that were up before the pin");
	tcase_add_test(tc, a_pin_that_began_during_a_free_loses);
	tcase_add_test(tc, a_pin_that_began_during_a_free_finds_the_new_memory);
	tcase_add_test(tc, a_pin_that_began_during_the_end_of_its_context_loses);
	tcase_add_test(tc, a_pin_that_began_during_an_unmap_of_its_second_half_loses);
	tc = cache_case(suite, "against an unpin by another thread");
	tcase_add_test(tc, a_free_waits_for_an_eviction_of_the_same_region);
	tcase_add_loop_test(tc, a_free_waits_for_a_flush_of_the_same_region, 0, 2);
	tcase_add_loop_test(tc, a_free_waits_for_an_invalidation_of_the_same_region, 0, 2);
	tcase_add_test(tc, a_free_waits_until_everybody_has_been_told);
	tcase_add_test(tc, a_free_during_a_recheck);
	tcase_add_test(tc, a_free_during_a_comparison_for_an_allocation);
	tcase_add_test(tc, a_free_does_not_wait_for_the_eviction_of_another_region);
	tcase_add_test(tc, two_threads_end_the_same_region);
	tcase_add_loop_test(tc, two_threads_end_regions_in_either_order, 0, 2);
	return run_suite(suite);
}
