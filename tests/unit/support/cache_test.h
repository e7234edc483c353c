/* SPDX-License-Identifier: MIT */
/*
 * What the cache's tests share. Each test runs in a process of its own (Check forks), so the
 * cache's state, its environment and the fake driver start afresh. The fixture flushes at the end
 * and then checks the balance: no export is open, no byte is pinned, pins and unpins are equal.
 */
#ifndef CACHE_TEST_H
#define CACHE_TEST_H

#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "cache/hook_events.h"
#include "tests/unit/support/fake_driver.h"
#include "cache/base/thread/lock.h"
#include "cache/pindown.h"
#include "tests/unit/support/suite.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define BASE   UINT64_C(0x7f4400000000)
#define PAGE   ((uint64_t)PINDOWN_PAGE_SIZE)

/* Fixtures: the fake driver with frees watched, and the balance at the end. */
void cache_begin(void);
void cache_end(void);

/*
 * For tests that look at how threads give up waiting for each other: the limits of the waits are as
 * in production, not PATIENCE_NS.
 */
void restore_wait_limit(void);

/* Checks the balance alone, in the middle of a test. */
void assert_books_balance(void);

/* A test case of this suite in the fixture, with enough time for a sanitizer on a slow machine. */
TCase *cache_case(Suite *suite, const char *name);

/* ---- the API, with the expected answer ---- */

pindown_region *must_get(uint64_t addr, size_t length);
void must_refuse(uint64_t addr, size_t length, int result);
bool is_cached(uint64_t addr, size_t length); /* asks the cache alone */
void get_and_put(uint64_t addr, size_t length);
struct pindown_stats stats(void);
struct pindown_stats device_stats(int device);

/* How many missed frees the fixture expects at the end (0 unless the test causes some). */
extern uint64_t expected_missed;

/* ---- the part of hook/: a call that ends memory, with the guard around it ---- */

int watched_free(uint64_t base);
int watched_free_in_order(uint64_t base); /* cuMemFree: the driver's result */
int watched_unmap(uint64_t base, uint64_t length);
void watched_context_destroy(void *context);
void watched_alloc(uint64_t base, uint64_t size, enum fake_kind kind);

/* ---- threads ---- */

struct worker {
	pthread_t thread;
	void (*fn)(void *);
	void *arg;
	int tid;
	bool done;
};

void worker_start(struct worker *worker, void (*fn)(void *), void *arg);
void worker_join(struct worker *worker);
bool worker_is_done(struct worker *worker);

/* Returns when the worker is blocked in the kernel, or has ended. */
void worker_wait_idle(struct worker *worker);

/* Runs fn in a thread of its own and waits for its end. */
void in_other_thread(void (*fn)(void *), void *arg);

/* A gate that one thread waits at and another opens. */
struct gate {
	sem_t sem;
};
void gate_init(struct gate *gate);
void gate_open(struct gate *gate);
void gate_wait(struct gate *gate);

/*
 * Runs fn(arg) in a forked child that is killed by any system call. The child calls prepare(arg)
 * before that. prepare begins with an empty cache.
 */
void assert_no_system_call(void (*prepare)(void *), void (*fn)(void *), void *arg);

/* How many descriptors of this process refer to the same file as fd. */
unsigned descriptors_like(int fd);

#endif
