/* SPDX-License-Identifier: MIT */
/*
 * Several threads that pin at the same time: those of one memory make one pin, and a queue of pins
 * in the driver holds up nobody else.
 */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "cache/driver/driver.h"
#include "tests/unit/support/edges_test.h"

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

static void start_pinners(struct pinner *pinners, unsigned count, uint64_t step)
{
	pdn_race_wait_ns = 600000000000u; /* those that wait do so to the end */
	gate_init(&exports.go);
	exports.wait = true;
	exports.entered = 0;
	for (unsigned i = 0; i < count; i++) {
		pinners[i] = (struct pinner){.addr = BASE + i * step};
		worker_start(&pinners[i].worker, pin_it, &pinners[i]);
	}
}

static void let_them_pin(struct pinner *pinners, unsigned count)
{
	__atomic_store_n(&exports.wait, false, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < count; i++)
		gate_open(&exports.go);
	for (unsigned i = 0; i < count; i++)
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
	start_pinners(pinners, PINS, LENGTH);
	wait_until(exports_entered() == PINS); /* at once: no lock is held meanwhile */
	ck_assert(is_cached(used, 1));
	pindown_put(must_get(used, 1));
	ck_assert_int_eq(watched_free(unknown), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(idle), FAKE_SUCCESS);
	ck_assert_int_eq(watched_free(used), FAKE_SUCCESS);
	pindown_put(region);
	watched_alloc(unknown, LENGTH, FAKE_LINEAR);
	ck_assert_uint_eq(stats().regions, 0);
	let_them_pin(pinners, PINS);
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
	start_pinners(pinners, PINS, 4096);
	for (unsigned i = 0; i < PINS; i++)
		worker_wait_idle(&pinners[i].worker);
	fake_watch_questions(BASE, BASE + LENGTH);
	usleep(20000);
	ck_assert_uint_eq(fake_watched_questions(), 0); /* they sleep, in the driver or here */
	let_them_pin(pinners, PINS);
	ck_assert_uint_eq(exports_entered(), 1);
	ck_assert_uint_eq(stats().pins, 1);
	for (unsigned i = 0; i < PINS; i++) {
		ck_assert_ptr_eq(pinners[i].region, pinners[0].region);
		pindown_put(pinners[i].region);
	}
}
END_TEST

/* One wait's time is over: the driver keeps the export that another thread has begun. */
START_TEST(a_get_gives_up_when_another_thread_s_pin_takes_too_long)
{
	struct pinner pinner = {.addr = BASE};

	pdn_find_driver_symbol = symbol_with_a_queue;
	fake_alloc(BASE, LENGTH, FAKE_LINEAR);
	start_pinners(&pinner, 1, 0);
	wait_until(exports_entered() == 1);
	pdn_race_wait_ns = 20000000;
	must_refuse(BASE, 1, PINDOWN_ERR_TIMED_OUT);
	let_them_pin(&pinner, 1);
	pindown_put(must_get(BASE, 1));
	pindown_put(pinner.region);
	ck_assert_uint_eq(exports_entered(), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("races: several pins");
	TCase *tc = cache_case(suite, "two pins");

	tcase_add_test(tc, two_threads_that_miss_make_one_pin);
	tc = cache_case(suite, "a queue of pins");
	tcase_add_test(tc, hits_and_frees_do_not_wait_for_a_queue_of_pins);
	tcase_add_test(tc, many_threads_that_miss_make_one_pin);
	tcase_add_test(tc, a_get_gives_up_when_another_thread_s_pin_takes_too_long);
	return run_suite(suite);
}
