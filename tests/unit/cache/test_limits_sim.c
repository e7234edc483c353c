/* SPDX-License-Identifier: MIT */
/*
 * Few file descriptors, on the simulated driver, whose exports are real descriptors: registered
 * regions need none, regions that are only pinned may have half of them, and the program has the
 * rest.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cache/backend/backend.h"
#include "cache/dmabuf/region_dmabuf.h"
#include "tests/unit/support/sim_test.h"

#define LIMIT 1024u /* the usual limit of programs */
#define MANY  6000u

static CUdeviceptr memory[MANY];
static pindown_object *object[MANY];

static void allow_descriptors(rlim_t max)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void begin(unsigned count)
{
	setenv("PINDOWN_BACKEND", "dmabuf", 1);
	allow_descriptors(LIMIT);
	start_cuda();
	for (unsigned i = 0; i < count; i++)
		memory[i] = alloc(KIB(64));
}

/* ---- consumers ---- */

static bool fails;
static unsigned asks = 1;

static int create(const struct pindown_object_request *what, void **data, void *arg)
{
	pindown_region *region = what->region;
	uint64_t offset;
	int fd, first = -1;

	(void)data;
	(void)arg;
	for (unsigned i = 0; i < asks; i++) {
		ck_assert_int_eq(
			pindown_region_dmabuf(region, pindown_region_base(region), &fd, &offset),
			PINDOWN_OK);
		ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
		ck_assert(i == 0 || fd == first);
		first = fd;
	}
	return fails ? 1 : 0;
}

static int create_and_close(const struct pindown_object_request *what, void **data, void *arg)
{
	int result = create(what, data, arg);

	pindown_region_close_dmabuf(what->region);
	return result;
}

static int destroy(const struct pindown_object_end *what, void *arg)
{
	(void)what;
	(void)arg;
	return 0;
}

static int add_consumer(__typeof__(&create) how)
{
	const struct pindown_consumer ops = {.name = "limits", .create = how, .destroy = destroy};
	int consumer = pindown_consumer_add(&ops, sizeof(ops));

	ck_assert_int_gt(consumer, 0);
	return consumer;
}

static const struct pindown_key key = {.owner = 1};

static void attach(int consumer, unsigned i)
{
	int result = pindown_attach(consumer, memory[i], 1, 0, &key, NULL, &object[i]);

	ck_assert_msg(result == PINDOWN_OK, "region %u: %s", i, pindown_strerror(result));
}

/* ---- registered regions ---- */

static __typeof__(&create) const creates[] = {create, create_and_close};

START_TEST(registered_regions_are_hit_again)
{
	int consumer;

	begin(MANY);
	consumer = add_consumer(creates[_i]);
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < MANY; i++) {
			attach(consumer, i);
			pindown_detach(object[i]);
		}
	ck_assert_uint_eq(stats().hits, MANY);
	ck_assert_uint_eq(stats().regions, MANY);
	ck_assert_uint_eq(stats().evictions, 0);
	ck_assert_uint_le(stats().dmabufs, LIMIT / 8); /* kept for the next registration */
}
END_TEST

START_TEST(registered_regions_can_all_be_held)
{
	int consumer;

	begin(2 * LIMIT);
	consumer = add_consumer(create);
	for (unsigned i = 0; i < 2 * LIMIT; i++)
		attach(consumer, i);
	ck_assert_uint_eq(stats().regions, 2 * LIMIT);
	for (unsigned i = 0; i < 2 * LIMIT; i++)
		pindown_detach(object[i]);
}
END_TEST

/* However often create has asked for it; but not if another caller has been given it, too. */
START_TEST(the_descriptor_is_closed_when_create_returns)
{
	pindown_region *region;
	uint64_t offset;
	int fd, consumer;

	begin(2);
	pdn_dmabuf_close_kept(); /* descriptors are short: none stays */
	asks = 3;
	consumer = add_consumer(create);
	attach(consumer, 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(pdn_dmabufs_open(), 0);
	region = must_get(memory[1], 1);
	OK(pindown_region_dmabuf(region, memory[1], &fd, &offset));
	attach(consumer, 1);
	ck_assert_uint_eq(sim_open_exports(0), 1);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	pindown_region_close_dmabuf(region);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	ck_assert_uint_eq(stats().dmabufs, 0);
	pindown_put(region);
	pindown_detach(object[0]);
	pindown_detach(object[1]);
}
END_TEST

/* It has not been imported, so only the descriptor keeps the memory. */
START_TEST(a_create_that_fails_leaves_the_descriptor_open)
{
	pindown_region *region;
	int consumer;

	begin(1);
	pdn_dmabuf_close_kept();
	region = must_get(memory[0], 1);
	fails = true;
	consumer = add_consumer(create);
	ck_assert_int_eq(pindown_attach(consumer, memory[0], 1, 0, &key, NULL, &object[0]),
			 PINDOWN_CREATE_FAILED(1));
	ck_assert_uint_eq(sim_open_exports(0), 1);
	ck_assert_uint_eq(stats().dmabufs, 1);
	fails = false;
	attach(consumer, 0);
	ck_assert_uint_eq(sim_open_exports(0), 0);
	pindown_detach(object[0]);
	pindown_put(region);
}
END_TEST

/* ---- regions that are only pinned ---- */

static void pin_all(void)
{
	for (unsigned i = 0; i < 2 * LIMIT; i++)
		get_and_put(memory[i], 1);
}

START_TEST(pinned_regions_have_half_of_the_descriptors)
{
	struct pindown_stats s;
	const char *text;
	unsigned own = 0;

	begin(2 * LIMIT);
	ck_assert_uint_eq(stats().max_dmabufs, LIMIT / 2);
	text = stderr_of(pin_all);
	s = stats();
	ck_assert_uint_eq(s.regions, LIMIT / 2);
	ck_assert_uint_eq(s.dmabufs, LIMIT / 2);
	ck_assert_uint_eq(s.max_dmabufs, LIMIT / 2);
	ck_assert_uint_eq(s.evictions, 2 * LIMIT - LIMIT / 2);
	ck_assert_uint_eq(lines_of(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "no more than 512 are pinned at once"));
	/*
	 * The lower half is for the program, except for descriptors that it and its libraries have
	 * open already.
	 */
	while (dup(2) >= 0)
		own++;
	ck_assert_uint_ge(own, LIMIT / 2 - 64);
	ck_assert_uint_eq(stats().regions, LIMIT / 2);
}
END_TEST

/* The program may change its limit at any time. */
START_TEST(the_limit_is_asked_for_at_each_pin)
{
	begin(2 * LIMIT);
	allow_descriptors(256);
	for (unsigned i = 0; i < 256; i++)
		get_and_put(memory[i], 1);
	ck_assert_uint_eq(stats().regions, 128);
	ck_assert_uint_eq(stats().max_dmabufs, 128);
	allow_descriptors(LIMIT);
	for (unsigned i = 0; i < LIMIT; i++)
		get_and_put(memory[i], 1);
	ck_assert_uint_eq(stats().regions, LIMIT / 2);
	ck_assert_uint_eq(stats().max_dmabufs, LIMIT / 2);
}
END_TEST

START_TEST(where_a_pin_takes_none_there_is_no_limit)
{
	setenv("PINDOWN_BACKEND", "none", 1);
	start_cuda();
	get_and_put(alloc(KIB(64)), 1);
	ck_assert_uint_eq(stats().max_dmabufs, 0);
}
END_TEST

/*
 * Above the numbers that select() can take, if possible, and not so high that a fork has to copy
 * much.
 */
START_TEST(where_the_descriptors_are)
{
	static const struct {
		rlim_t limit;
		int lowest;
	} cases[] = {{256, 128}, {1024, 512}, {4096, 2048}, {20000, 10000}, {1 << 20, 16384}};
	struct rlimit limit = {cases[_i].limit, cases[_i].limit};
	pindown_region *region;
	uint64_t offset;
	int fd;

	begin(1);
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
		skip_test("no more than %ju descriptors can be had", (uintmax_t)limit.rlim_max);
		return;
	}
	region = must_get(memory[0], 1);
	OK(pindown_region_dmabuf(region, memory[0], &fd, &offset));
	ck_assert_int_eq(fd, cases[_i].lowest);
	pindown_put(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache: few descriptors");
	TCase *tc = suite_case(suite, "registered", sim_begin, sim_end);

	tcase_add_loop_test(tc, registered_regions_are_hit_again, 0, 2);
	tcase_add_test(tc, registered_regions_can_all_be_held);
	tcase_add_test(tc, the_descriptor_is_closed_when_create_returns);
	tcase_add_test(tc, a_create_that_fails_leaves_the_descriptor_open);
	tc = suite_case(suite, "pinned", sim_begin, sim_end);
	tcase_add_test(tc, pinned_regions_have_half_of_the_descriptors);
	tcase_add_test(tc, the_limit_is_asked_for_at_each_pin);
	tcase_add_test(tc, where_a_pin_takes_none_there_is_no_limit);
	tcase_add_loop_test(tc, where_the_descriptors_are, 0, 5);
	return run_suite(suite);
}
