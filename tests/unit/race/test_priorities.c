/* SPDX-License-Identifier: MIT */
/*
 * A real-time thread that waits for a thread without priority on the same processor: it has to
 * sleep, or the other thread never runs. The cache is built with points (cache/base/test_point.h),
 * so that a hit can be stopped while it announces its region.
 *
 * A real-time thread that only yields its processor waits until the kernel takes the processor away
 * from all real-time threads: for a twentieth of each second, or never. So the test does not
 * measure the time; it checks that the thread slept voluntarily.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/unit/support/objects_test.h"
#include "cache/base/test_point.h"

static bool armed; /* the next hit will be stopped */
static struct gate
	hit_stopped; /* opened by the hit: from then on the other thread has the processor */
static bool hit_went_on;

void pdn_point(enum pdn_point point, uint64_t addr)
{
	(void)addr;
	if (point != PDN_POINT_HIT_ANNOUNCED || !armed)
		return;
	armed = false;
	gate_open(&hit_stopped);
	/* The other thread sleeps, or the kernel has stopped it. */
	__atomic_store_n(&hit_went_on, true, __ATOMIC_SEQ_CST);
}

/* ---- two threads on one processor ---- */

static bool use_one_processor(void)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all))
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all)) {
			CPU_SET(cpu, &one);
			break;
		}
	return sched_setaffinity(0, sizeof(one), &one) == 0;
}

static bool become_real_time(void)
{
	const struct sched_param param = {.sched_priority = 1};

	return sched_setscheduler(0, SCHED_FIFO, &param) == 0;
}

static long times_slept(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static struct {
	void (*act)(void);
	bool ready, slept, too_early;
	int error;
} real_time;

static void run_in_real_time(void *arg)
{
	long before;

	(void)arg;
	if (!become_real_time())
		real_time.error = errno;
	__atomic_store_n(&real_time.ready, true, __ATOMIC_RELEASE);
	gate_wait(&hit_stopped);
	if (real_time.error)
		return;
	before = times_slept();
	real_time.act();
	real_time.slept = times_slept() > before;
	real_time.too_early = !__atomic_load_n(&hit_went_on, __ATOMIC_SEQ_CST);
}

/* The stopped hit continues only when the real-time thread gives the processor away. */
static void stop_a_hit_for(void (*act)(void))
{
	pindown_region *region;
	struct worker worker;

	gate_init(&hit_stopped);
	real_time.act = act;
	if (!use_one_processor()) {
		skip_test("no thread can be bound to a processor here: %s", strerror(errno));
		return;
	}
	worker_start(&worker, run_in_real_time, NULL);
	while (!__atomic_load_n(&real_time.ready, __ATOMIC_ACQUIRE))
		sched_yield();
	if (real_time.error) {
		skip_test("no thread may become a real-time one here: %s",
			  strerror(real_time.error));
		gate_open(&hit_stopped);
		worker_join(&worker);
		return;
	}
	get_and_put(AT(0), 1);
	armed = true;
	if (pindown_get(AT(0), 1, 0, &region) == PINDOWN_OK) /* or it has been freed meanwhile */
		pindown_put(region);
	worker_join(&worker);
	ck_assert(!armed);
	ck_assert_msg(!real_time.too_early, "it did not wait at all");
	ck_assert_msg(real_time.slept, "it waited without sleeping");
}

/* ---- waits for a hit ---- */

static void free_it(void)
{
	ck_assert_int_eq(watched_free(AT(0)), FAKE_SUCCESS);
}

START_TEST(a_free_waits_for_a_hit)
{
	stop_a_hit_for(free_it);
}
END_TEST

static void flush(void)
{
	pindown_flush();
}

START_TEST(a_flush_waits_for_a_hit)
{
	stop_a_hit_for(flush);
}
END_TEST

static void end_owner(void)
{
	ck_assert_int_eq(pindown_end_owner(consumer, 1), 0);
}

START_TEST(an_owners_end_waits_for_a_hit)
{
	attach_and_detach(consumer, AT(0), KEY(1, 1));
	stop_a_hit_for(end_owner);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("real-time threads");
	TCase *tc = objects_case(suite, "that wait for others");

	tcase_add_test(tc, a_free_waits_for_a_hit);
	tcase_add_test(tc, a_flush_waits_for_a_hit);
	tcase_add_test(tc, an_owners_end_waits_for_a_hit);
	return run_suite(suite);
}
