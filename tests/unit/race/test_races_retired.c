/* SPDX-License-Identifier: MIT */
/*
 * Between the driver's free and the reservation of the address, other threads act; and threads that
 * allocate, register through a cache of their own, and free, against what must hold. The cache is
 * built with points (cache/base/test_point.h). STRESS_SEED repeats the choices of a run.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>

#include "cache/base/test_point.h"
#include "tests/fuzz/dice.h"
#include "tests/unit/support/retired_test.h"

static __thread uint64_t random_state; /* 0: not a player of the random test */

static uint32_t roll(uint32_t sides)
{
	return (uint32_t)below(&random_state, sides);
}

/* The test's own step, once, when an address is about to be reserved. */
static void (*before_reserving)(void);

void pdn_point(enum pdn_point point, uint64_t addr)
{
	void (*step)(void) = before_reserving;
	uint32_t turns;

	(void)addr;
	if (random_state) {
		turns = roll(point == PDN_POINT_RETIRE_RESERVING ? 4 : 30) ? 0 : roll(20);
		for (uint32_t i = 0; i < turns; i++)
			sched_yield();
	} else if (step && point == PDN_POINT_RETIRE_RESERVING) {
		before_reserving = NULL;
		step();
	}
}

/* ---- one step between the free and the reservation ---- */

static CUdeviceptr p, q;
static CUcontext current;
static struct registration *seen;
static struct worker worker;

static pindown_object *hold_first(uint64_t size)
{
	pindown_object *object;

	OK(cuCtxGetCurrent(&current));
	p = program_alloc(size);
	object = hold(p);
	seen = registration_of(object);
	return object;
}

/* By a call that neither takes turns with frees nor is made again, as those of pools. */
static void alloc_the_same(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(current));
	q = alloc(MIB(4));
}

static void another_allocates(void)
{
	in_other_thread(alloc_the_same, NULL);
}

START_TEST(another_thread_gets_the_address)
{
	pindown_object *object;

	pindown_detach(retire(MIB(4)).object); /* the driver has been asked whether it reserves */
	object = hold_first(MIB(4));
	before_reserving = another_allocates;
	OK(program_free(p));
	ck_assert_uint_eq(q, p);
	ck_assert_uint_eq(seen->ended, 1);
	ck_assert(seen->in_time);
	ck_assert_uint_eq(stats().escapes, 1);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	pindown_detach(object);
	/* What is there now is retired as anything else. */
	object = hold(q);
	OK(program_free(q));
	ck_assert_uint_eq(stats().escapes, 1);
	ck_assert(is_reserved(p, MIB(4)));
	pindown_detach(object);
}
END_TEST

static pindown_object *others;

static void alloc_and_register(void *unused)
{
	alloc_the_same(unused);
	others = hold(q);
}

/* It waits for the free. */
static void another_registers(void)
{
	worker_start(&worker, alloc_and_register, NULL);
	worker_wait_idle(&worker);
	ck_assert(!worker_is_done(&worker));
}

START_TEST(another_thread_gets_and_registers_it)
{
	pindown_object *object = hold_first(MIB(4));

	before_reserving = another_registers;
	OK(program_free(p));
	worker_join(&worker);
	ck_assert_uint_eq(q, p);
	ck_assert_uint_eq(stats().escapes, 1);
	ck_assert_uint_ne(registration_of(others)->id, seen->id);
	pindown_detach(object); /* touches nothing of the other one */
	ck_assert_uint_eq(registration_of(others)->ended, 0);
	OK(program_free(q));
	pindown_detach(others);
}
END_TEST

static void alloc_a_neighbour(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(current));
	q = alloc(KIB(64));
}

static void another_allocates_there(void)
{
	in_other_thread(alloc_a_neighbour, NULL);
}

/* Its registration has not ended yet: nothing has escaped. */
START_TEST(another_thread_gets_a_part_of_the_block)
{
	pindown_object *object = hold_first(KIB(128));

	before_reserving = another_allocates_there;
	OK(program_free(p));
	ck_assert_uint_eq(q / MIB(2), p / MIB(2));
	ck_assert_uint_eq(seen->ended, 0);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert_uint_eq(stats().unprotected, 1);
	ck_assert_uint_eq(stats().object_kept_regions, 1);
	pindown_detach(object);
	ck_assert_uint_eq(seen->ended, 1);
	OK(program_free(q));
}
END_TEST

static pindown_object *first;

static void drop_first(void)
{
	pindown_detach(first);
}

static const uint64_t sizes[] = {MIB(4), KIB(64)};

START_TEST(the_registration_is_dropped_just_then)
{
	first = hold_first(sizes[_i]);
	before_reserving = drop_first;
	OK(program_free(p));
	ck_assert_uint_eq(seen->ended, 1);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	ck_assert_uint_eq(stats().unprotected, 0);
	ck_assert(!is_reserved(p & -MIB(2), MIB(2)));
}
END_TEST

static pid_t child, parent;

static void fork_here(void)
{
	parent = getpid();
	child = fork();
}

/* As a signal handler that forks there: the reservation is the parent's. */
START_TEST(a_fork_just_then)
{
	int status;

	first = hold_first(sizes[_i]);
	before_reserving = fork_here;
	OK(program_free(p));
	if (getpid() != parent) {
		pindown_detach(first);
		_exit(stats().retired_ranges || stats().escapes ||
		      pdn_retired_in(PDN_RETIRED_PENDING));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert(is_reserved(p & -MIB(2), MIB(2)));
	pindown_detach(first);
}
END_TEST

static void cancel_here(void)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

static CUresult freed;

/* Check's macros, which write, are not used once the thread is cancelled. */
static void *free_and_end(void *unused)
{
	OK(cuCtxSetCurrent(current));
	freed = program_free(p);
	pthread_testcancel();
	return unused;
}

START_TEST(a_thread_is_cancelled_just_then)
{
	pthread_t thread;

	first = hold_first(sizes[_i]);
	before_reserving = cancel_here;
	ck_assert_int_eq(pthread_create(&thread, NULL, free_and_end, NULL), 0);
	pthread_join(thread, NULL);
	OK(freed);
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_PENDING), 0);
	ck_assert_uint_eq(stats().retired_ranges, 1);
	ck_assert(is_reserved(p & -MIB(2), MIB(2)));
	pindown_detach(first);
}
END_TEST

/* ---- allocations and frees take turns ---- */

static void alloc_in_turn(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(current));
	q = program_alloc(MIB(4));
}

static void another_waits(void)
{
	worker_start(&worker, alloc_in_turn, NULL);
	worker_wait_idle(&worker);
	ck_assert(!worker_is_done(&worker));
}

static void some_was_retired_before(void)
{
	pindown_detach(retire(MIB(4)).object);
	OK(program_free(program_alloc(MIB(2))));
}

START_TEST(an_allocation_waits_for_the_reservation)
{
	some_was_retired_before();
	first = hold_first(MIB(4));
	before_reserving = another_waits;
	OK(program_free(p));
	worker_join(&worker);
	ck_assert_uint_ne(q, p);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert(is_reserved(p, MIB(4)));
	pindown_detach(first);
	OK(program_free(q));
}
END_TEST

static void free_first(void *unused)
{
	(void)unused;
	OK(cuCtxSetCurrent(current));
	OK(program_free(p));
}

START_TEST(a_free_waits_for_an_allocation)
{
	some_was_retired_before();
	first = hold_first(MIB(4));
	ck_assert(pdn_allocation_begins());
	worker_start(&worker, free_first, NULL);
	worker_wait_idle(&worker);
	ck_assert(!worker_is_done(&worker));
	ck_assert_uint_eq(sim_calls("cuMemFree_v2"), 2);
	q = alloc(MIB(4));
	pdn_allocation_ended();
	worker_join(&worker);
	ck_assert_uint_ne(q, p);
	ck_assert_uint_eq(stats().escapes, 0);
	pindown_detach(first);
	OK(program_free(q));
}
END_TEST

static void another_waits_in_vain(void)
{
	pdn_allocation_waits_ns = 1;
	in_other_thread(alloc_in_turn, NULL);
	pdn_allocation_waits_ns = PATIENCE_NS;
	in_other_thread(alloc_in_turn, NULL); /* not again */
}

/* The driver's free may take long. What the allocation gets meanwhile is not let through. */
START_TEST(an_allocation_does_not_wait_for_ever)
{
	some_was_retired_before();
	first = hold_first(MIB(4));
	before_reserving = another_waits_in_vain;
	OK(program_free(p));
	ck_assert_uint_ne(q, p);
	ck_assert_uint_eq(stats().escapes, 0);
	ck_assert(is_reserved(p, MIB(4)));
	pindown_detach(first);
}
END_TEST

START_TEST(a_free_does_not_wait_for_ever)
{
	some_was_retired_before();
	first = hold_first(MIB(4));
	ck_assert(pdn_allocation_begins());
	pdn_retiring_waits_ns = 1;
	OK(program_free(p));
	ck_assert(is_reserved(p, MIB(4)));
	pdn_retiring_waits_ns = PATIENCE_NS;
	pindown_detach(first);
	pindown_detach(retire(MIB(4)).object); /* nobody waits for that allocation again */
	pdn_allocation_ended();		       /* it comes late */
	pindown_detach(retire(MIB(4)).object);
}
END_TEST

/* ---- by chance ---- */

#define THREADS 4
#define PLACES	256

enum kind { LARGE, SMALL, POOL, MAPPED, KINDS };

/*
 * The cache of a program: by address alone, one registration in each place. It is right that it
 * holds its lock while it registers.
 */
static struct entry {
	CUdeviceptr at;
	enum kind kind;
	pindown_object *object;
	struct registration *made;
} entries[PLACES];
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. Registrations found that were made of other memory, by its kind. */
static uint64_t stale[KINDS], found_again, retired_in_all;

static uint64_t id_at(CUdeviceptr at)
{
	unsigned long long id = 0;

	OK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at));
	return id;
}

static void evict(struct entry *entry)
{
	if (entry->object)
		pindown_detach(entry->object);
	*entry = (struct entry){0};
}

/* The memory at this address is the caller's. Returns what the card knows of its registration. */
static struct registration *register_cached(CUdeviceptr at, enum kind kind)
{
	struct entry *entry = &entries[at / KIB(64) * 31 % PLACES];
	struct registration *made;
	uint64_t id = id_at(at);

	pthread_mutex_lock(&entries_lock);
	if (entry->at == at && entry->made->id != id)
		stale[entry->kind]++;
	else if (entry->at == at)
		found_again++;
	if (entry->at != at || entry->made->id != id) {
		evict(entry);
		*entry = (struct entry){.at = at, .kind = kind, .object = hold(at)};
		entry->made = registration_of(entry->object);
	}
	made = entry->made;
	pthread_mutex_unlock(&entries_lock);
	ck_assert_uint_eq(made->id, id);
	ck_assert_uint_eq(made->ended, 0);
	return made;
}

static void evict_one(struct entry *entry)
{
	pthread_mutex_lock(&entries_lock);
	evict(entry);
	pthread_mutex_unlock(&entries_lock);
}

static uint64_t some_size(enum kind kind)
{
	if (kind == SMALL)
		return KIB(4) << roll(9);
	return kind == POOL ? KIB(64) << roll(7) : MIB(2) * (1 + roll(3)) + (kind == LARGE ? 1 : 0);
}

static CUdeviceptr make(enum kind kind, uint64_t size)
{
	CUdeviceptr made;

	if (kind == POOL)
		return alloc_async(size);
	if (kind != MAPPED)
		return program_alloc(size);
	OK(cuMemAddressReserve(&made, size, 0, 0, 0));
	sim_map_new(made, size);
	return made;
}

static void unmake(enum kind kind, CUdeviceptr made, uint64_t size)
{
	pdn_guard guard;

	switch (kind) {
	case POOL:
		guard = pdn_end_in_order(made);
		OK(cuMemFreeAsync(made, NULL));
		pdn_ended(guard);
		break;
	case MAPPED:
		sim_unmap(made, size);
		OK(cuMemAddressFree(made, size));
		break;
	default:
		retired_by_another = false;
		OK(program_free(made));
		retired_by_another = true;
	}
}

static void one_life(void)
{
	enum kind kind = (enum kind)roll(KINDS);
	uint64_t size = some_size(kind);
	CUdeviceptr made = make(kind, size);
	struct registration *registration = NULL;

	for (uint32_t i = roll(4); i > 0; i--)
		registration = register_cached(made, kind);
	if (roll(3) == 0)
		evict_one(&entries[roll(PLACES)]);
	unmake(kind, made, size);
	/* Whoever holds it: it has ended, and before the driver's free. */
	if (registration && kind == LARGE) {
		ck_assert_uint_eq(__atomic_load_n(&registration->ended, __ATOMIC_SEQ_CST), 1);
		ck_assert(registration->in_time);
	}
}

static struct {
	struct worker worker;
	uint64_t seed;
} players[THREADS];

static void play(void *arg)
{
	uint32_t lives = wants_long_rounds() ? 20000 : 1000;

	OK(cuCtxSetCurrent(current));
	retired_by_another = true;
	random_state = players[(uintptr_t)arg].seed;
	while (lives--) {
		if (roll(50) == 0)
			sim_lose_hints(roll(2 * PDN_MOST_TRIES));
		one_life();
	}
	random_state = 0;
}

/* All that is kept is of kinds that are, so when these are dropped nothing keeps memory. */
static void drop_kinds(bool large)
{
	for (unsigned i = 0; i < PLACES; i++)
		if (entries[i].object && (entries[i].kind == LARGE) == large)
			evict(&entries[i]);
}

START_TEST(threads_with_a_cache_by_address)
{
	uint64_t seed = stress_seed(THREADS);

	OK(cuCtxGetCurrent(&current));
	pindown_detach(retire(MIB(4)).object);
	for (uintptr_t i = 0; i < THREADS; i++) {
		players[i].seed = seed + i;
		worker_start(&players[i].worker, play, (void *)i);
	}
	for (unsigned i = 0; i < THREADS; i++)
		worker_join(&players[i].worker);
	retired_in_all = stats().retired;
	printf("%" PRIu64 " ranges were retired, %" PRIu64 " escaped, %" PRIu64
	       " registrations kept; stale ones found: %" PRIu64 " large, %" PRIu64
	       " small, %" PRIu64 " of pools, %" PRIu64 " mapped\n",
	       retired_in_all, stats().escapes, stats().unprotected, stale[LARGE], stale[SMALL],
	       stale[POOL], stale[MAPPED]);
	ck_assert_uint_gt(retired_in_all, 100);
	ck_assert_uint_gt(found_again, 100);
	ck_assert_uint_gt(stats().unprotected, 0);
	ck_assert_uint_le(stale[LARGE], stats().escapes);
	ck_assert_uint_eq(stats().missed_invalidations, 0);
	ck_assert_uint_eq(stats().retired_dropped, 0);
	sim_lose_hints(0);
	drop_kinds(false);
	ck_assert_uint_eq(stats().kept_regions, 0);
	ck_assert_uint_eq(sim_live_allocations(), 0);
	drop_kinds(true);
	ck_assert_uint_eq(stats().retired_ranges, 0);
	for (unsigned i = 0; i < PLACES; i++)
		OK(program_free(program_alloc(KIB(4))));
	ck_assert_uint_eq(pdn_retired_in(PDN_RETIRED_GOING), 0);
	ck_assert_uint_eq(sim_calls("cuMemAddressReserve"), sim_calls("cuMemAddressFree"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: retired addresses");
	TCase *tc = retired_case(suite, "before the reservation");

	tcase_add_test(tc, another_thread_gets_the_address);
	tcase_add_test(tc, another_thread_gets_and_registers_it);
	tcase_add_test(tc, another_thread_gets_a_part_of_the_block);
	tcase_add_loop_test(tc, the_registration_is_dropped_just_then, 0, 2);
	tcase_add_loop_test(tc, a_fork_just_then, 0, 2);
	tcase_add_loop_test(tc, a_thread_is_cancelled_just_then, 0, 2);
	tc = retired_case(suite, "turns");
	tcase_add_test(tc, an_allocation_waits_for_the_reservation);
	tcase_add_test(tc, a_free_waits_for_an_allocation);
	tcase_add_test(tc, an_allocation_does_not_wait_for_ever);
	tcase_add_test(tc, a_free_does_not_wait_for_ever);
	tc = retired_case(suite, "random");
	tcase_add_test(tc, threads_with_a_cache_by_address);
	return run_suite(suite);
}
