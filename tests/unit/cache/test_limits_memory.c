/* SPDX-License-Identifier: MIT */
/*
 * Little address space (RLIMIT_AS, `ulimit -v`): the cache takes a small part of it, reports for
 * how many regions that is enough, and works with that many by eviction. The program still gets the
 * memory that it asks for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/support/fork_test.h"
#include "tests/unit/support/sanitizers.h"
#include "cache/base/memory/address_space.h"

static void leave(uint64_t bytes)
{
	struct rlimit limit = {used_address_space() + bytes, RLIM_INFINITY};

	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = used_address_space() + bytes;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* A sixteenth of what the limit leaves beside all that the process has by now. */
START_TEST(the_share_is_of_what_is_left)
{
	uint64_t share;

	leave(MIB(256));
	share = pdn_address_space_share();
	ck_assert_uint_le(share, MIB(16));
	ck_assert_uint_gt(share, MIB(16) - MIB(1) / 4);
}
END_TEST

static void *map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

#define MANY	 3000u
#define FIRST	 (BASE + GIB(8))
#define PLACE(i) (FIRST + MIB(1) * (i)) /* two in a block */

static void alloc_many(void)
{
	for (unsigned i = 0; i < MANY; i++)
		fake_alloc(PLACE(i), PAGE + 512, FAKE_LINEAR);
}

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	(void)what;
	*data = arg;
	return 0;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)what;
	(void)arg;
	return 0;
}

static int add_consumer(void)
{
	const struct pindown_consumer ops = {
		.name = "limits", .create = create, .destroy = destroy};
	int consumer = pindown_consumer_add(&ops, sizeof(ops));

	ck_assert_int_gt(consumer, 0);
	return consumer;
}

static void attach_and_detach(int consumer, uint64_t addr, uint64_t access)
{
	const struct pindown_key key = {.owner = 1, .word = {access}};
	pindown_object *object;
	int result = pindown_attach(consumer, addr, 1, 0, &key, NULL, &object);

	ck_assert_msg(result == PINDOWN_OK, "attach: %s", pindown_strerror(result));
	pindown_detach(object);
}

static const uint64_t left[] = {
	MIB(8),	  MIB(16),  MIB(33),  MIB(64),	MIB(150), MIB(300),
	MIB(512), MIB(700), MIB(800), MIB(900), GIB(1),	  GIB(2),
};
#define LIMITS ((int)(sizeof(left) / sizeof(left[0])))

/*
 * What the program can have of it afterwards. Each table begins with a page, and with pages of 64
 * KiB these are more than a quarter of 8 MiB.
 */
static uint64_t programs(uint64_t bytes)
{
	return bytes < MIB(16) && sysconf(_SC_PAGESIZE) >= 65536 ? bytes / 2 : bytes / 4 * 3;
}

static void assert_limits_hold(void)
{
	struct pindown_stats s = stats();

	ck_assert_uint_ge(s.max_regions, 1000);
	ck_assert_uint_le(s.peak_regions, s.max_regions);
	ck_assert_uint_eq(s.regions, s.max_regions < MANY ? s.max_regions : MANY);
	ck_assert_uint_eq(s.evictions, s.pins - s.regions);
}

START_TEST(regions_are_pinned_and_the_program_has_its_memory)
{
	void *own;

	setenv("PINDOWN_BACKEND", "none", 1);
	alloc_many();
	leave(left[_i]);
	for (unsigned i = 0; i < MANY; i++)
		get_and_put(PLACE(i), 1);
	assert_limits_hold();
	for (unsigned i = 0; i < MANY; i++)
		get_and_put(PLACE(i), 1);
	assert_limits_hold();
	own = map(programs(left[_i]));
	ck_assert_ptr_nonnull(own);
	munmap(own, programs(left[_i]));
}
END_TEST

START_TEST(objects_are_made_and_the_program_has_its_memory)
{
	int consumer = add_consumer();
	void *own;

	setenv("PINDOWN_BACKEND", "none", 1);
	alloc_many();
	leave(left[_i]);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < MANY; i++)
			attach_and_detach(consumer, PLACE(i), 0);
	assert_limits_hold();
	ck_assert_uint_eq(stats().objects, stats().regions);
	own = map(programs(left[_i]));
	ck_assert_ptr_nonnull(own);
	munmap(own, programs(left[_i]));
}
END_TEST

/*
 * More regions than there are records for: idle regions are evicted, and their objects with them.
 */
START_TEST(several_objects_for_each_region)
{
	int consumer = add_consumer();

	setenv("PINDOWN_BACKEND", "none", 1);
	alloc_many();
	leave(MIB(8));
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned access = 0; access < 3; access++)
			attach_and_detach(consumer, PLACE(i), access);
	ck_assert_uint_eq(stats().objects_made, 3 * MANY);
	ck_assert_uint_le(stats().objects, stats().max_regions);
	ck_assert_uint_gt(stats().objects, stats().max_regions / 2);
}
END_TEST

/* Neighbours in one page have lists. */
START_TEST(small_neighbours)
{
	void *own;

	setenv("PINDOWN_BACKEND", "none", 1);
	for (unsigned i = 0; i < MANY; i++)
		fake_alloc(FIRST + 4096 * i, 2048, FAKE_LINEAR);
	leave(left[_i]);
	for (unsigned i = 0; i < MANY; i++)
		get_and_put(FIRST + 4096 * i, 1);
	assert_limits_hold();
	own = map(programs(left[_i]));
	ck_assert_ptr_nonnull(own);
	munmap(own, programs(left[_i]));
}
END_TEST

/*
 * Each begins in one block and ends in the next, so that each block is shared and takes a part of
 * the index.
 */
#define ACROSS(i) (FIRST + MIB(2) * (i) + MIB(1))

/* The limit is lowered later, to nothing: existing parts are used again. */
START_TEST(the_limit_is_lowered_later)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	for (unsigned i = 0; i < MANY; i++)
		fake_alloc(ACROSS(i), MIB(2), FAKE_LINEAR);
	for (unsigned i = 0; i < 100; i++)
		get_and_put(ACROSS(i), 1);
	leave(0);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < MANY; i++)
			get_and_put(ACROSS(i), 1);
	ck_assert_uint_ge(stats().regions, 1000);
	ck_assert_uint_lt(stats().regions, MANY);
	ck_assert_uint_eq(stats().evictions, stats().pins - stats().regions);
}
END_TEST

static void get_in_vain(void)
{
	must_refuse(PLACE(0), 1, PINDOWN_ERR_NO_MEMORY);
}

/* There is no memory at all: a get fails and says why, and a later one works. */
START_TEST(no_address_space_at_all)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	alloc_many();
	leave(0);
	ck_assert_ptr_nonnull(strstr(stderr_of(get_in_vain), "ulimit -v"));
	ck_assert_str_eq(stderr_of(get_in_vain), "");
	leave(MIB(16));
	get_and_put(PLACE(0), 1);
}
END_TEST

/* ---- locked memory ---- */

/* As for a user who is not privileged. */
static void may_not_lock_more(uint64_t bytes)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2];
	struct rlimit limit = {bytes, bytes};

	ck_assert_int_eq((int)syscall(SYS_capget, &header, sets), 0);
	sets[0].effective &= ~(1u << CAP_IPC_LOCK);
	ck_assert_int_eq((int)syscall(SYS_capset, &header, sets), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

/* In a program that locks all of its memory, the tables do not count as locked. */
START_TEST(a_program_that_locks_its_memory)
{
	static const uint64_t limits[] = {MIB(1), MIB(8)};
	uint64_t limit = limits[_i];

	setenv("PINDOWN_BACKEND", "none", 1);
	alloc_many();
	may_not_lock_more(limit);
	ck_assert_int_eq(mlockall(MCL_FUTURE), 0);
	for (unsigned i = 0; i < MANY; i++)
		get_and_put(PLACE(i), 1);
	ck_assert_uint_eq(stats().regions, MANY);
	/* Less than a quarter: pages of threads' and other small records. */
	ck_assert_ptr_nonnull(map(limit - limit / 4));
}
END_TEST

/* Far from all other regions a part of the index is missing, and no eviction helps. */
START_TEST(a_get_without_memory_for_its_index_evicts_few)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	alloc_many();
	fake_alloc(BASE - GIB(4096), PAGE, FAKE_LINEAR);
	for (unsigned i = 0; i < 100; i++)
		get_and_put(PLACE(i), 1);
	leave(0);
	must_refuse(BASE - GIB(4096), 1, PINDOWN_ERR_NO_MEMORY);
	ck_assert_int_eq(pindown_driver_error(), 0);
	ck_assert_uint_ge(stats().regions, 96);
	ck_assert_uint_eq(stats().pins - stats().unpins, stats().regions);
}
END_TEST

static struct gate told, may_end;

static void stand(const struct pindown_invalidation *what, void *arg)
{
	(void)what, (void)arg;
	gate_open(&told);
	gate_wait(&may_end);
}

static void flush(void *arg)
{
	(void)arg;
	pindown_flush();
}

/* Another thread is unpinning a region, whose memory may be enough: that is worth a wait. */
START_TEST(a_get_that_does_not_wait_for_memory)
{
	const uint64_t far = BASE - GIB(4096);
	pindown_region *region = NULL;
	struct worker worker;

	setenv("PINDOWN_BACKEND", "none", 1);
	gate_init(&told);
	gate_init(&may_end);
	fake_alloc(PLACE(0), PAGE, FAKE_LINEAR);
	fake_alloc(far, PAGE, FAKE_LINEAR);
	get_and_put(PLACE(0), 1);
	ck_assert_int_gt(pindown_subscribe(stand, NULL), 0);
	worker_start(&worker, flush, NULL);
	gate_wait(&told);
	leave(0);
	ck_assert_int_eq(pindown_get(far, 1, PINDOWN_GET_NOWAIT, &region), PINDOWN_ERR_WOULD_WAIT);
	gate_open(&may_end);
	worker_join(&worker);
	must_refuse(far, 1, PINDOWN_ERR_NO_MEMORY);
	leave(MIB(64));
	get_and_put(far, 1);
	gate_open(&may_end); /* the fixture flushes */
}
END_TEST

/* There is no space for a large piece of the index, only for a small one. */
START_TEST(the_limit_leaves_a_little)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	for (unsigned i = 0; i < MANY; i++)
		fake_alloc(ACROSS(i), MIB(2), FAKE_LINEAR);
	get_and_put(ACROSS(0), 1);
	leave(MIB(3));
	for (unsigned i = 0; i < MANY; i++)
		get_and_put(ACROSS(i), 1);
	ck_assert_uint_eq(stats().regions, MANY);
}
END_TEST

int main(void)
{
	Suite *suite;
	TCase *tc;

	if (UNDER_SANITIZER) {
		printf("skipped: a sanitizer needs unlimited address space\n");
		return 77;
	}
	suite = suite_create("cache: little address space");
	tc = cache_case(suite, "RLIMIT_AS");
	tcase_add_loop_test(tc, regions_are_pinned_and_the_program_has_its_memory, 0, LIMITS);
	tcase_add_loop_test(tc, objects_are_made_and_the_program_has_its_memory, 0, LIMITS);
	tcase_add_loop_test(tc, small_neighbours, 0, LIMITS);
	tcase_add_test(tc, several_objects_for_each_region);
	tcase_add_test(tc, the_share_is_of_what_is_left);
	tcase_add_test(tc, the_limit_is_lowered_later);
	tcase_add_test(tc, the_limit_leaves_a_little);
	tcase_add_test(tc, no_address_space_at_all);
	tcase_add_test(tc, a_get_without_memory_for_its_index_evicts_few);
	tcase_add_test(tc, a_get_that_does_not_wait_for_memory);
	tcase_add_loop_test(tc, a_program_that_locks_its_memory, 0, 2);
	return run_suite(suite);
}
