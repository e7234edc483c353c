/* SPDX-License-Identifier: MIT */
/*
 * A pin in one thread against an action in another, at each edge of each driver call that the pin
 * makes. An edge is the begin or the end of such a call (fake_driver.h). The action is started
 * there and runs until it ends or waits for the pin; then the pin continues. A sweep ends when the
 * pin has no more edges.
 *
 * [gdrcopy] invalidation by a racing free, of the same and of a neighbouring range.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/driver/driver.h"
#include "cache/race.h"
#include "tests/unit/support/cache_test.h"

#define LENGTH MIB(2)

/* Sanitizers map memory all the time. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_REFUSE_MEMORY 0
#else
#define CAN_REFUSE_MEMORY 1
#endif

/* What the other thread does, and what it saw. */
static struct {
	void (*act)(uint64_t base);
	uint64_t base, old_id;
	struct worker worker;
	unsigned exports_after_end; /* of old_id, when pdn_end_*() had returned */
	unsigned edge;
} other;

static void act_now(void *arg)
{
	(void)arg;
	other.act(other.base);
}

/* Runs in the pinning thread, at the edge. */
static void start_other(void *arg)
{
	(void)arg;
	other.old_id = fake_id(other.base);
	worker_start(&other.worker, act_now, NULL);
	worker_wait_idle(&other.worker);
}

/* ---- what the other thread may do ---- */

static void end_then(pdn_guard guard, void (*real)(uint64_t), uint64_t base)
{
	other.exports_after_end = fake_open_exports_of(other.old_id);
	real(base);
	pdn_ended(guard);
}

static void nothing(uint64_t base)
{
	(void)base;
}

static void really_free(uint64_t base)
{
	ck_assert_int_eq(fake_free(base), FAKE_SUCCESS);
}

static void really_free_and_reuse(uint64_t base)
{
	really_free(base);
	fake_alloc(base, LENGTH, FAKE_LINEAR);
}

static void really_destroy_context(uint64_t base)
{
	(void)base;
	fake_context_destroy(FAKE_CONTEXT);
}

static void free_it(uint64_t base)
{
	end_then(pdn_end_range(base, 0), really_free, base);
}

static void unmap_it(uint64_t base)
{
	end_then(pdn_end_range(base, LENGTH), really_free, base);
}

static void fail_to_free_it(uint64_t base)
{
	end_then(pdn_end_range(base, 0), nothing, base);
}

static void free_and_reuse_it(uint64_t base)
{
	end_then(pdn_end_range(base, 0), really_free_and_reuse, base);
}

static void destroy_its_context(uint64_t base)
{
	end_then(pdn_end_context(FAKE_CONTEXT), really_destroy_context, base);
}

static void reset_its_device(uint64_t base)
{
	end_then(pdn_end_device(0), really_destroy_context, base);
}

static void end_everything(uint64_t base)
{
	end_then(pdn_end_all(), really_free, base);
}

/* ---- the sweep ---- */

/*
 * One get, during which the other thread starts at this edge. Returns false if the get has no such
 * edge.
 */
static bool get_racing_at(unsigned edge, uint64_t base, void (*act)(uint64_t), int *result,
			  pindown_region **region)
{
	other.act = act;
	other.base = base;
	other.edge = edge;
	other.exports_after_end = 0;
	*region = NULL;
	fake_at_edge(FAKE_CALLS, edge, start_other, NULL);
	*result = pindown_get(base, LENGTH, 0, region);
	bool met = fake_edge_met();
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	if (met)
		worker_join(&other.worker);
	return met;
}

static void assert_clean_after_race(void)
{
	ck_assert_msg(other.exports_after_end == 0, "edge %u: pinned still when the free went on",
		      other.edge);
	ck_assert_msg(fake_open_exports_of_dead() == 0, "edge %u: dead memory is pinned",
		      other.edge);
	assert_books_balance();
}

/* The memory is gone for good, and so the get must fail. */
static void sweep_losing(void (*act)(uint64_t), enum fake_kind kind)
{
	unsigned edge = 0;
	pindown_region *region;
	int result;

	for (;; edge++) {
		fake_alloc(BASE, LENGTH, kind);
		if (!get_racing_at(edge, BASE, act, &result, &region))
			break;
		ck_assert_msg(result == PINDOWN_ERR_NOT_DEVICE, "edge %u: %s", edge,
			      pindown_strerror(result));
		ck_assert(!is_cached(BASE, 1));
		ck_assert_uint_eq(stats().regions, 0);
		assert_clean_after_race();
	}
	ck_assert_int_eq(result, PINDOWN_OK);
	pindown_put(region);
	/*
	 * the questions about the memory, SYNC_MEMOPS, the export, the id again: at least two edges
	 * each
	 */
	ck_assert_uint_ge(edge, 8);
	ck_assert_uint_ge(stats().lost_races, 1);
}

START_TEST(a_pin_loses_against_a_free)
{
	sweep_losing(free_it, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_loses_against_an_async_free)
{
	sweep_losing(free_it, FAKE_POOL);
}
END_TEST

START_TEST(a_pin_loses_against_an_unmap)
{
	sweep_losing(unmap_it, FAKE_VMM);
}
END_TEST

START_TEST(a_pin_loses_against_the_end_of_its_context)
{
	sweep_losing(destroy_its_context, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_loses_against_a_reset_of_its_device)
{
	sweep_losing(reset_its_device, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_loses_against_a_checkpoint)
{
	sweep_losing(end_everything, FAKE_LINEAR);
}
END_TEST

/* ---- threads that can get no record ---- */

#define RECORDS_AT_HAND 64 /* of the first block: the others need memory */
static struct gate has_record, may_end, memory_is_short;
static struct rlimit usual;

static void take_record_and_stay(void *arg)
{
	(void)arg;
	ck_assert_ptr_nonnull(pdn_self());
	gate_open(&has_record);
	gate_wait(&may_end);
}

static void sweep_without_record(void *arg)
{
	(void)arg;
	gate_wait(&memory_is_short);
	ck_assert_ptr_null(pdn_self());
	sweep_losing(free_it, FAKE_LINEAR);
}

static void do_nothing(void *arg)
{
	(void)arg;
}

/* No more is mapped from here on. A thread gets the stack of one that has ended. */
static void map_no_more(void)
{
	struct rlimit none;

	ck_assert_int_eq(getrlimit(RLIMIT_AS, &usual), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = usual.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
}

/* In a thread that gets no record, as all that need no memory are taken. */
static void run_without_record(void (*fn)(void *))
{
	static struct worker stays[RECORDS_AT_HAND - 1];
	struct worker without, ends;

	if (emulator_lacks("limits of address space"))
		return;
	gate_init(&has_record);
	gate_init(&may_end);
	gate_init(&memory_is_short);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	get_and_put(BASE, 1); /* the tables */
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++) {
		worker_start(&stays[i], take_record_and_stay, NULL);
		gate_wait(&has_record);
	}
	worker_start(&without, fn, NULL);
	worker_start(&ends, do_nothing, NULL);
	worker_join(&ends);
	map_no_more();
	gate_open(&memory_is_short);
	worker_join(&without);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &usual), 0);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++)
		gate_open(&may_end);
	for (unsigned i = 0; i < RECORDS_AT_HAND - 1; i++)
		worker_join(&stays[i]);
}

/* Neither the pinning thread nor the one that frees has a record: they are two all the same. */
START_TEST(a_pin_loses_against_a_free_and_no_thread_has_a_record)
{
	run_without_record(sweep_without_record);
}
END_TEST

/* The child has a record to give, and nothing is being freed there. */
static void fork_in_a_free(void *arg)
{
	pindown_region *region;
	pdn_guard guard;
	pid_t child;
	int status;

	(void)arg;
	gate_wait(&memory_is_short);
	ck_assert_ptr_null(pdn_self());
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	guard = pdn_end_range(BASE + LENGTH, 0);
	child = fork();
	if (child == 0) {
		pdn_fork_child();
		setrlimit(RLIMIT_AS, &usual);
		pdn_ended(guard);
		_exit(-pindown_get(BASE, 1, 0, &region));
	}
	pdn_ended(guard);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	get_and_put(BASE, 1);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
}

static bool frees_again;

/* Nothing is known of what it frees. Its end is the end of its frees. */
static void be_cancelled_in_two_frees(void *arg)
{
	(void)arg;
	gate_wait(&memory_is_short);
	ck_assert_ptr_null(pdn_self());
	pdn_end_range(BASE + LENGTH, 0);
	pdn_end_range(BASE + 2 * LENGTH, 0);
	if (frees_again)
		pdn_ended(pdn_end_range(BASE + 3 * LENGTH, 0));
	setrlimit(RLIMIT_AS, &usual); /* for the C library, which loads what it needs */
	pthread_cancel(pthread_self());
	pthread_testcancel();
	ck_abort();
}

START_TEST(a_thread_without_a_record_is_cancelled_in_its_free)
{
	pindown_region *region;

	frees_again = _i;
	run_without_record(be_cancelled_in_two_frees);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	ck_assert_int_eq(pindown_get(BASE, 1, PINDOWN_GET_NOWAIT, &region), PINDOWN_OK);
	pindown_put(region);
	ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
}
END_TEST

START_TEST(a_child_forked_in_a_free_by_a_thread_without_a_record_pins)
{
	run_without_record(fork_in_a_free);
}
END_TEST

/*
 * A free that began before the pin, and has not seen it, ends at this edge of the pin's first
 * question. Other memory takes the place at once, and its context is destroyed while that memory is
 * pinned.
 */
static struct {
	struct worker worker;
	struct gate up, go, done;
} before;

static void free_in_two_steps(void *arg)
{
	(void)arg;
	pdn_guard guard = pdn_end_range(BASE, 0);

	gate_open(&before.up);
	gate_wait(&before.go);
	really_free(BASE);
	pdn_ended(guard);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	pdn_allocated(BASE, LENGTH);
	gate_open(&before.done);
}

static void let_it_end(void *arg)
{
	(void)arg;
	gate_open(&before.go);
	gate_wait(&before.done);
	/* When the export has been made: at its second edge. */
	fake_at_edge(FAKE_EXPORT, 1, start_other, NULL);
}

static bool get_with_a_free_before(unsigned edge)
{
	pindown_region *region = NULL;
	bool met;

	gate_init(&before.up);
	gate_init(&before.go);
	gate_init(&before.done);
	fake_alloc(BASE, LENGTH, FAKE_POOL);
	worker_start(&before.worker, free_in_two_steps, NULL);
	gate_wait(&before.up);
	other.act = destroy_its_context;
	other.base = BASE;
	other.edge = edge;
	other.exports_after_end = 0;
	fake_at_edge(FAKE_QUERY, edge, let_it_end, NULL);
	/* Behind the beginning: there the free need not be of this memory, and the pin asks. */
	int result = pindown_get(BASE + 1, LENGTH - 1, 0, &region);
	met = fake_edge_met();
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	ck_assert_int_eq(result, met ? PINDOWN_ERR_NOT_DEVICE : PINDOWN_ERR_TIMED_OUT);
	if (met)
		worker_join(&other.worker);
	else
		gate_open(&before.go);
	worker_join(&before.worker);
	return met;
}

/*
 * The free knows nothing of the pin, and the driver's answers to the pin do not mention the
 * context.
 */
START_TEST(a_pin_of_what_has_taken_the_place_loses_against_the_end_of_its_context)
{
	unsigned edge = 0;

	restore_wait_limit();
	for (; get_with_a_free_before(edge); edge++) {
		assert_clean_after_race();
		ck_assert_uint_eq(stats().regions, 0);
	}
	/* the driver's questions, until the pin waits for the free, which does not end */
	ck_assert_uint_ge(edge, 2);
}
END_TEST

/*
 * A free that begins at one edge, and whose driver call comes at a later edge, or when the pin
 * waits for it. The free does not wait for a pin that has not yet announced what it pins, so it can
 * continue in between.
 */
static struct {
	bool through, go; /* past pdn_end_range(); the driver's free may run */
	unsigned more;	  /* edges before the driver's free */
} slow;

static void free_when_told(uint64_t base)
{
	pdn_guard guard = pdn_end_range(base, 0);

	other.exports_after_end = fake_open_exports_of(other.old_id);
	__atomic_store_n(&slow.through, true, __ATOMIC_SEQ_CST);
	wait_until(__atomic_load_n(&slow.go, __ATOMIC_SEQ_CST) ||
		   !(pdn_flights_any() || __atomic_load_n(&pdn_pending, __ATOMIC_SEQ_CST)));
	really_free(base);
	pdn_ended(guard);
}

static void tell_to_free(void *arg)
{
	(void)arg;
	__atomic_store_n(&slow.go, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&slow.through, __ATOMIC_SEQ_CST) && !worker_is_done(&other.worker))
		sched_yield();
}

static void begin_to_free(void *arg)
{
	start_other(arg);
	fake_at_edge(FAKE_CALLS, slow.more, tell_to_free, NULL);
}

/* Returns false if the pin does not have that many edges. */
static bool get_with_a_slow_free(unsigned first, unsigned more)
{
	pindown_region *region = NULL;

	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	slow.through = slow.go = false;
	slow.more = more;
	other.act = free_when_told;
	other.base = BASE;
	other.edge = first;
	other.worker.tid = 0;
	fake_at_edge(FAKE_CALLS, first, begin_to_free, NULL);
	int result = pindown_get(BASE, LENGTH, 0, &region);
	bool met = other.worker.tid != 0;
	fake_at_edge(FAKE_CALLS, 0, NULL, NULL);
	if (!met) {
		ck_assert_int_eq(result, PINDOWN_OK);
		pindown_put(region);
		ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
		return false;
	}
	worker_join(&other.worker);
	ck_assert_msg(result == PINDOWN_ERR_NOT_DEVICE, "edges %u and %u: %s", first, more,
		      pindown_strerror(result));
	ck_assert_uint_eq(stats().regions, 0);
	assert_clean_after_race();
	return true;
}

START_TEST(a_pin_loses_against_a_free_that_takes_its_time)
{
	unsigned first = 0;

	for (; get_with_a_slow_free(first, 0); first++)
		for (unsigned more = 1; more < 12; more++)
			get_with_a_slow_free(first, more);
	ck_assert_uint_ge(first, 8);
}
END_TEST

/* Other memory, registered or not: its end costs the pin only a look at the guards. */
static void free_others(uint64_t base)
{
	ck_assert_int_eq(watched_free(base + 4 * LENGTH), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(base + 8 * LENGTH), FAKE_SUCCESS);
}

START_TEST(a_pin_is_not_lost_to_a_free_of_other_memory)
{
	unsigned edge = 0, max_calls = 0, calls = 0;
	pindown_region *region;
	bool met = true;
	int result;

	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	for (; met; edge++) {
		max_calls = calls > max_calls ? calls : max_calls;
		fake_alloc(BASE + 4 * LENGTH, LENGTH, FAKE_LINEAR);
		fake_alloc(BASE + 8 * LENGTH, LENGTH, FAKE_POOL);
		get_and_put(BASE + 8 * LENGTH, 1);
		unsigned before = fake_count(FAKE_CALLS);
		met = get_racing_at(edge, BASE, free_others, &result, &region);
		ck_assert_int_eq(result, PINDOWN_OK);
		ck_assert_uint_eq(fake_exports_made(), 2 * (edge + 1));
		calls = fake_count(FAKE_CALLS) - before;
		pindown_put(region);
		ck_assert_int_eq(pindown_invalidate(BASE, LENGTH), 1);
		if (met)
			continue;
		watched_free(BASE + 4 * LENGTH);
		watched_free(BASE + 8 * LENGTH);
	}
	ck_assert_uint_ge(edge, 8);
	ck_assert_uint_eq(stats().lost_races, 0);
	/*
	 * The buffer id is asked for once more when the free began before the pin announced its
	 * memory.
	 */
	ck_assert_uint_eq(max_calls, calls + 1);
}
END_TEST

/* In the end there is memory, and the get finds it, old or new. */
static void sweep_finding(void (*act)(uint64_t), enum fake_kind kind)
{
	unsigned edge = 0;
	pindown_region *region;
	bool met = true;
	int result;

	fake_alloc(BASE, LENGTH, kind);
	for (; met; edge++) {
		pindown_flush();
		met = get_racing_at(edge, BASE, act, &result, &region);
		/*
		 * The pin was told to give up, and may have asked the driver again between the free
		 * and the allocation.
		 */
		if (result == PINDOWN_ERR_NOT_DEVICE && act == free_and_reuse_it)
			result = pindown_get(BASE, 1, 0, &region);
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
		ck_assert_int_eq(pindown_region_is_live(region), 1);
		ck_assert_uint_eq(fake_open_exports(), 1);
		assert_clean_after_race();
		pindown_put(region);
		ck_assert(is_cached(BASE, LENGTH));
	}
	ck_assert_uint_ge(edge, 8);
}

START_TEST(a_pin_finds_what_has_taken_the_place)
{
	sweep_finding(free_and_reuse_it, FAKE_LINEAR);
}
END_TEST

START_TEST(a_pin_survives_a_free_that_fails)
{
	sweep_finding(fail_to_free_it, FAKE_LINEAR);
}
END_TEST

/* An unwatched free, then a watched allocation at the same address. */
static void replace_unseen(uint64_t base)
{
	really_free(base);
	watched_alloc(base, LENGTH, FAKE_LINEAR);
}

START_TEST(a_pin_notices_an_allocation_in_its_place)
{
	sweep_finding(replace_unseen, FAKE_LINEAR);
}
END_TEST

static void replace_and_recheck(uint64_t base)
{
	really_free(base);
	fake_alloc(base, LENGTH, FAKE_LINEAR);
	pdn_recheck(NULL);
}

START_TEST(a_pin_notices_a_recheck)
{
	sweep_finding(replace_and_recheck, FAKE_LINEAR);
	expected_missed = stats().missed_invalidations;
}
END_TEST

static void invalidate_it(uint64_t base)
{
	ck_assert_int_ge(pindown_invalidate(base, LENGTH), 0);
}

START_TEST(a_pin_survives_an_invalidation_without_a_free)
{
	sweep_finding(invalidate_it, FAKE_LINEAR);
}
END_TEST

/* A neighbour in the same page is allocated and freed, which changes nothing. */
static void free_and_reuse_neighbour(uint64_t base)
{
	other.old_id = 0;
	ck_assert_int_eq(watched_free(base - 512), FAKE_SUCCESS);
	watched_alloc(base - 512, 512, FAKE_LINEAR);
}

START_TEST(a_pin_and_a_neighbours_free)
{
	fake_alloc(BASE + 512, 512, FAKE_LINEAR);
	fake_alloc(BASE + 1024, LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		get_and_put(BASE + 512, 512);
		met = get_racing_at(edge, BASE + 1024, free_and_reuse_neighbour, &result, &region);
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		ck_assert_uint_eq(fake_open_exports_of_dead(), 0);
		ck_assert_int_eq(pindown_region_is_live(region), 1);
		ck_assert_int_eq(is_cached(BASE + 512, 512), !met);
		pindown_put(region);
		ck_assert_int_eq(pindown_invalidate(BASE + 1024, 0), 1);
	}
}
END_TEST

/* ---- the buffer id, before and after ---- */

START_TEST(a_pin_of_memory_that_changed_meanwhile_is_given_up)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	fake_swap_during_export(1);
	pindown_region *region = must_get(BASE, 1);
	ck_assert_uint_eq(pindown_region_buffer_id(region), fake_id(BASE));
	ck_assert_uint_eq(fake_exports_made(), 2);
	ck_assert_uint_eq(fake_open_exports(), 1);
	ck_assert_uint_eq(stats().lost_races, 1);
	pindown_put(region);
}
END_TEST

START_TEST(memory_that_never_stays_the_same_is_busy)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	fake_swap_during_export(UINT32_MAX);
	must_refuse(BASE, 1, PINDOWN_ERR_BUSY);
	fake_swap_during_export(0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	get_and_put(BASE, 1);
}
END_TEST

/* ---- two pins ---- */

static pindown_region *others_region;

static void get_it_too(uint64_t base)
{
	others_region = must_get(base + LENGTH - 1, 1);
}

START_TEST(two_threads_that_miss_make_one_pin)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		unsigned before = fake_exports_made();
		met = get_racing_at(edge, BASE, get_it_too, &result, &region);
		ck_assert_int_eq(result, PINDOWN_OK);
		ck_assert_uint_eq(fake_exports_made() - before, 1);
		pindown_put(region);
		if (met) {
			ck_assert_ptr_eq(region, others_region);
			pindown_put(others_region);
		}
		ck_assert_int_eq(pindown_flush(), 1);
	}
}
END_TEST

/*
 * Another thread has pinned the region since this one looked, and then the memory was replaced
 * unseen. Volatile memory is checked then, too.
 */
static void pin_and_replace(uint64_t base)
{
	get_and_put(base, 1);
	really_free_and_reuse(base);
}

START_TEST(volatile_memory_pinned_meanwhile_is_checked)
{
	pdn_volatile(BASE, LENGTH);
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		uint64_t before = fake_id(BASE);
		pindown_flush();
		met = get_racing_at(edge, BASE, pin_and_replace, &result, &region);
		ck_assert_msg(result == PINDOWN_OK, "edge %u: %s", edge, pindown_strerror(result));
		/*
		 * A replacement after the driver's last answer can't be noticed: the memory is
		 * volatile. But the cache must use every answer that it got.
		 */
		if (met && fake_id(BASE) != pindown_region_buffer_id(region)) {
			ck_assert_uint_ne(before, 0);
			ck_assert_msg(edge >= 5, "edge %u: a stale region", edge);
		}
		pindown_put(region);
	}
}
END_TEST

/* ---- a queue of pins ---- */

#define PINS 8u

/* The driver takes no export to its end before it is told to: as if all waited for its lock. */
static struct {
	unsigned entered;
	bool wait;
	struct gate go;
} exports;

static __typeof__(int(void *, uint64_t, size_t, int, unsigned long long)) *real_export;

static int export_later(void *handle, uint64_t base, size_t size, int type,
			unsigned long long flags)
{
	__atomic_fetch_add(&exports.entered, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&exports.wait, __ATOMIC_SEQ_CST))
		gate_wait(&exports.go);
	return real_export(handle, base, size, type, flags);
}

static void *symbol_with_a_queue(const char *name)
{
	void *found = fake_symbol(name);

	if (strcmp(name, "cuMemGetHandleForAddressRange") != 0)
		return found;
	*(void **)(void *)&real_export = found;
	return (void *)export_later;
}

static unsigned exports_entered(void)
{
	return __atomic_load_n(&exports.entered, __ATOMIC_SEQ_CST);
}

struct pinner {
	struct worker worker;
	uint64_t addr;
	pindown_region *region;
};

static void pin_it(void *arg)
{
	struct pinner *pinner = arg;

	pinner->region = must_get(pinner->addr, 1);
}

static void start_pinners(struct pinner *pinners, uint64_t step)
{
	pdn_race_wait_ns = 600000000000u; /* those that wait do so to the end */
	gate_init(&exports.go);
	exports.wait = true;
	exports.entered = 0;
	for (unsigned i = 0; i < PINS; i++) {
		pinners[i] = (struct pinner){.addr = BASE + i * step};
		worker_start(&pinners[i].worker, pin_it, &pinners[i]);
	}
}

static void let_them_pin(struct pinner *pinners)
{
	__atomic_store_n(&exports.wait, false, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < PINS; i++)
		gate_open(&exports.go);
	for (unsigned i = 0; i < PINS; i++)
		worker_join(&pinners[i].worker);
}

/* Other memory is hit, put and freed meanwhile; what waited for a pin would wait for ever. */
START_TEST(hits_and_frees_do_not_wait_for_a_queue_of_pins)
{
	const uint64_t idle = BASE + GIB(1), used = BASE + GIB(2), unknown = BASE + GIB(3);
	struct pinner pinners[PINS];
	pindown_region *region;

	pdn_find_driver_symbol = symbol_with_a_queue;
	for (unsigned i = 0; i < PINS; i++)
		fake_alloc(BASE + i * LENGTH, LENGTH, FAKE_LINEAR);
	fake_alloc(idle, LENGTH, FAKE_LINEAR);
	fake_alloc(used, LENGTH, FAKE_LINEAR);
	fake_alloc(unknown, LENGTH, FAKE_LINEAR);
	get_and_put(idle, 1);
	region = must_get(used, 1);
	start_pinners(pinners, LENGTH);
	wait_until(exports_entered() == PINS); /* at once: there is no lock of ours around them */
	ck_assert(is_cached(used, 1));
	pindown_put(must_get(used, 1));
	ck_assert_int_eq(watched_free(unknown), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(idle), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(used), FAKE_SUCCESS);
	pindown_put(region);
	watched_alloc(unknown, LENGTH, FAKE_LINEAR);
	ck_assert_uint_eq(stats().regions, 0);
	let_them_pin(pinners);
	ck_assert_uint_eq(stats().lost_races, 0);
	for (unsigned i = 0; i < PINS; i++)
		pindown_put(pinners[i].region);
}
END_TEST

/* They wait for the one that pins, without asking the driver for each pin that ends elsewhere. */
START_TEST(many_threads_that_miss_make_one_pin)
{
	struct pinner pinners[PINS];

	pdn_find_driver_symbol = symbol_with_a_queue;
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	start_pinners(pinners, 4096);
	for (unsigned i = 0; i < PINS; i++)
		worker_wait_idle(&pinners[i].worker);
	let_them_pin(pinners);
	ck_assert_uint_eq(exports_entered(), 1);
	ck_assert_uint_eq(stats().pins, 1);
	for (unsigned i = 0; i < PINS; i++) {
		ck_assert_ptr_eq(pinners[i].region, pinners[0].region);
		pindown_put(pinners[i].region);
	}
}
END_TEST

/* ---- no lock is held across a driver call ---- */

static void hear(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
}

static void use_the_rest_of_the_cache(uint64_t base)
{
	uint64_t mine = base + GIB(1);
	int id = pindown_subscribe(hear, NULL);

	ck_assert_int_gt(id, 0);
	get_and_put(mine, 1);
	ck_assert(is_cached(mine, 1));
	ck_assert(!is_cached(base, 1));
	stats();
	ck_assert_int_eq(pindown_unsubscribe(id), PINDOWN_OK);
	other.exports_after_end = 0;
}

START_TEST(another_thread_can_get_while_a_driver_call_runs)
{
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	fake_alloc(BASE + GIB(1), LENGTH, FAKE_LINEAR);
	bool met = true;

	for (unsigned edge = 0; met; edge++) {
		pindown_region *region;
		int result;
		pindown_flush();
		other.worker.done = false;
		met = get_racing_at(edge, BASE, use_the_rest_of_the_cache, &result, &region);
		ck_assert_int_eq(result, PINDOWN_OK);
		pindown_put(region);
	}
}
END_TEST

static void free_something_else(void *arg)
{
	(void)arg;
	watched_alloc(BASE + GIB(2), LENGTH, FAKE_LINEAR);
	get_and_put(BASE + GIB(2), 1);
	ck_assert_int_eq(watched_free(BASE + GIB(2)), FAKE_SUCCESS);
	ck_assert_int_ge(pindown_flush(), 0);
}

static void wait_for_a_free_of_something_else(void *arg)
{
	in_other_thread(free_something_else, arg);
}

/* From the moment that the pin knows what it pins, frees of other memory don't wait for it. */
START_TEST(another_thread_can_free_while_an_export_runs)
{
	for (unsigned edge = 0; edge < 2; edge++) {
		fake_alloc(BASE, LENGTH, FAKE_LINEAR);
		fake_at_edge(FAKE_EXPORT, edge, wait_for_a_free_of_something_else, NULL);
		get_and_put(BASE, 1);
		ck_assert(fake_edge_met());
		fake_at_edge(FAKE_SYNC, edge, wait_for_a_free_of_something_else, NULL);
		pindown_flush();
		get_and_put(BASE, 1);
		ck_assert(fake_edge_met());
		ck_assert_int_eq(watched_free(BASE), FAKE_SUCCESS);
	}
	ck_assert_uint_eq(stats().lost_races, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: pins");
	TCase *tc = cache_case(suite, "against the end of the memory");

	tcase_add_test(tc, a_pin_loses_against_a_free);
	tcase_add_test(tc, a_pin_loses_against_an_async_free);
	tcase_add_test(tc, a_pin_loses_against_an_unmap);
	tcase_add_test(tc, a_pin_loses_against_the_end_of_its_context);
	tcase_add_test(tc, a_pin_loses_against_a_reset_of_its_device);
	tcase_add_test(tc, a_pin_loses_against_a_checkpoint);
	tcase_add_test(tc, a_pin_loses_against_a_free_that_takes_its_time);
	tcase_add_test(tc, a_pin_is_not_lost_to_a_free_of_other_memory);
	tcase_add_test(tc, a_pin_of_what_has_taken_the_place_loses_against_the_end_of_its_context);
	if (CAN_REFUSE_MEMORY) {
		tcase_add_test(tc, a_pin_loses_against_a_free_and_no_thread_has_a_record);
		tcase_add_test(tc, a_child_forked_in_a_free_by_a_thread_without_a_record_pins);
		tcase_add_loop_test(tc, a_thread_without_a_record_is_cancelled_in_its_free, 0, 2);
	}
	tc = cache_case(suite, "against what leaves memory there");
	tcase_add_test(tc, a_pin_finds_what_has_taken_the_place);
	tcase_add_test(tc, a_pin_survives_a_free_that_fails);
	tcase_add_test(tc, a_pin_notices_an_allocation_in_its_place);
	tcase_add_test(tc, a_pin_notices_a_recheck);
	tcase_add_test(tc, a_pin_survives_an_invalidation_without_a_free);
	tcase_add_test(tc, a_pin_and_a_neighbours_free);
	tc = cache_case(suite, "the buffer id, before and after");
	tcase_add_test(tc, a_pin_of_memory_that_changed_meanwhile_is_given_up);
	tcase_add_test(tc, memory_that_never_stays_the_same_is_busy);
	tc = cache_case(suite, "two pins");
	tcase_add_test(tc, two_threads_that_miss_make_one_pin);
	tcase_add_test(tc, volatile_memory_pinned_meanwhile_is_checked);
	tc = cache_case(suite, "a queue of pins");
	tcase_add_test(tc, hits_and_frees_do_not_wait_for_a_queue_of_pins);
	tcase_add_test(tc, many_threads_that_miss_make_one_pin);
	tc = cache_case(suite, "no lock across driver calls");
	tcase_add_test(tc, another_thread_can_get_while_a_driver_call_runs);
	tcase_add_test(tc, another_thread_can_free_while_an_export_runs);
	return run_suite(suite);
}
