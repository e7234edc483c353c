/* SPDX-License-Identifier: MIT */
/* What the cache's tests share: the fixture, calls with checks, threads, and limits for a child. */
#define _GNU_SOURCE
#include "tests/unit/support/cache_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/thread/thread.h"
#include "tests/unit/support/asleep.h"

uint64_t expected_missed;
static uint64_t real_race_wait_ns;

void restore_wait_limit(void)
{
	pdn_race_wait_ns = real_race_wait_ns;
}

void cache_begin(void)
{
	expected_missed = 0;
	real_race_wait_ns = pdn_race_wait_ns;
	pdn_race_wait_ns = PATIENCE_NS;
	pdn_find_driver_symbol = fake_symbol;
	pdn_is_mapped = fake_is_mapped;
	pdn_set_intercepting(true);
}

static void assert_same_sum(const char *what, uint64_t all, uint64_t sum)
{
	ck_assert_msg(all == sum, "%s: %ju for all devices, %ju as the sum of each", what,
		      (uintmax_t)all, (uintmax_t)sum);
}

static void assert_devices_add_up(const struct pindown_stats *all)
{
	struct pindown_stats sum = {0};

	for (int device = 0; device < 2; device++) {
		struct pindown_stats one = device_stats(device);
		ck_assert_uint_eq(one.pins - one.unpins, one.regions);
		ck_assert_uint_eq(one.hits | one.misses | one.pin_failures | one.lost_races |
					  one.missed_invalidations | one.tag_checks |
					  one.max_regions | one.max_bytes,
				  0);
		sum.pins += one.pins;
		sum.unpins += one.unpins;
		sum.evictions += one.evictions;
		sum.invalidations += one.invalidations;
		sum.regions += one.regions;
		sum.bytes += one.bytes;
		sum.kept_regions += one.kept_regions;
		sum.kept_bytes += one.kept_bytes;
	}
	assert_same_sum("pins", all->pins, sum.pins);
	assert_same_sum("unpins", all->unpins, sum.unpins);
	assert_same_sum("evictions", all->evictions, sum.evictions);
	assert_same_sum("invalidations", all->invalidations, sum.invalidations);
	assert_same_sum("regions", all->regions, sum.regions);
	assert_same_sum("bytes", all->bytes, sum.bytes);
	assert_same_sum("kept regions", all->kept_regions, sum.kept_regions);
	assert_same_sum("kept bytes", all->kept_bytes, sum.kept_bytes);
}

void assert_books_balance(void)
{
	struct pindown_stats all = stats();

	ck_assert_uint_eq(all.pins - all.unpins, all.regions);
	ck_assert_uint_eq(all.bytes % PAGE, 0);
	ck_assert_uint_ge(all.bytes, all.regions * PAGE);
	ck_assert_uint_le(all.kept_regions, all.regions);
	ck_assert_uint_le(all.kept_bytes, all.bytes);
	ck_assert_uint_le(all.regions, all.peak_regions);
	ck_assert_uint_le(all.bytes, all.peak_bytes);
	ck_assert_uint_eq(all.missed_invalidations, expected_missed);
	assert_devices_add_up(&all);
}

void cache_end(void)
{
	assert_books_balance();
	ck_assert_int_ge(pindown_flush(), 0);
	assert_books_balance();

	struct pindown_stats all = stats();
	ck_assert_uint_eq(all.regions, 0);
	ck_assert_uint_eq(all.bytes, 0);
	ck_assert_uint_eq(all.kept_regions, 0);
	ck_assert_uint_eq(all.kept_bytes, 0);
	ck_assert_uint_eq(fake_open_exports(), 0);
	ck_assert(!pdn_self_tls || !pdn_self_tls->waits);
}

TCase *cache_case(Suite *suite, const char *name)
{
	return suite_case(suite, name, cache_begin, cache_end);
}

/* ---- the API ---- */

pindown_region *must_get(uint64_t addr, size_t length)
{
	pindown_region *region = NULL;
	int result = pindown_get(addr, length, 0, &region);

	ck_assert_msg(result == PINDOWN_OK, "get of 0x%jx + %zu: %s", (uintmax_t)addr, length,
		      pindown_strerror(result));
	ck_assert_ptr_nonnull(region);
	ck_assert_uint_le(pindown_region_base(region), addr);
	ck_assert_uint_ge(pindown_region_base(region) + pindown_region_length(region),
			  addr + length);
	return region;
}

void must_refuse(uint64_t addr, size_t length, int result)
{
	pindown_region *untouched = (pindown_region *)&expected_missed, *region = untouched;
	int got = pindown_get(addr, length, 0, &region);

	ck_assert_msg(got == result, "get of 0x%jx + %zu: %s; expected: %s", (uintmax_t)addr,
		      length, pindown_strerror(got), pindown_strerror(result));
	ck_assert_ptr_eq(region, untouched);
}

bool is_cached(uint64_t addr, size_t length)
{
	pindown_region *region = NULL;

	if (pindown_get(addr, length, PINDOWN_GET_CACHED, &region) != PINDOWN_OK)
		return false;
	pindown_put(region);
	return true;
}

void get_and_put(uint64_t addr, size_t length)
{
	pindown_put(must_get(addr, length));
}

struct pindown_stats device_stats(int device)
{
	struct pindown_stats s;

	memset(&s, 0xff, sizeof(s));
	ck_assert_int_eq(pindown_stats(&s, sizeof(s), device), PINDOWN_OK);
	return s;
}

struct pindown_stats stats(void)
{
	return device_stats(-1);
}

/* ---- hook/'s part ---- */

int watched_free(uint64_t base)
{
	pdn_guard guard = pdn_end_range(base, 0);
	int result = fake_free(base);

	pdn_ended(guard);
	return result;
}

int watched_free_in_order(uint64_t base)
{
	pdn_guard guard = pdn_end_in_order(base);
	int result = fake_free(base);

	pdn_ended(guard);
	return result;
}

int watched_unmap(uint64_t base, uint64_t length)
{
	pdn_guard guard = pdn_end_range(base, length);
	int result = fake_free(base);

	pdn_ended(guard);
	return result;
}

void watched_context_destroy(void *context)
{
	pdn_guard guard = pdn_end_context(context);

	fake_context_destroy(context);
	pdn_ended(guard);
}

void watched_alloc(uint64_t base, uint64_t size, enum fake_kind kind)
{
	fake_alloc(base, size, kind);
	pdn_allocated(base, size);
}

/* ---- threads ---- */

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	__atomic_store_n(&worker->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	worker->fn(worker->arg);
	__atomic_store_n(&worker->done, true, __ATOMIC_RELEASE);
	return NULL;
}

void worker_start(struct worker *worker, void (*fn)(void *), void *arg)
{
	*worker = (struct worker){.fn = fn, .arg = arg};
	ck_assert_int_eq(pthread_create(&worker->thread, NULL, worker_main, worker), 0);
}

void worker_join(struct worker *worker)
{
	ck_assert_int_eq(pthread_join(worker->thread, NULL), 0);
}

bool worker_is_done(struct worker *worker)
{
	return __atomic_load_n(&worker->done, __ATOMIC_ACQUIRE);
}

void worker_wait_idle(struct worker *worker)
{
	int tid;

	while (!(tid = __atomic_load_n(&worker->tid, __ATOMIC_ACQUIRE)))
		sched_yield();
	wait_until_asleep(tid, "S");
}

void in_other_thread(void (*fn)(void *), void *arg)
{
	struct worker worker;

	worker_start(&worker, fn, arg);
	worker_join(&worker);
}

void gate_init(struct gate *gate)
{
	ck_assert_int_eq(sem_init(&gate->sem, 0, 0), 0);
}

void gate_open(struct gate *gate)
{
	sem_post(&gate->sem);
}

void gate_wait(struct gate *gate)
{
	while (sem_wait(&gate->sem) && errno == EINTR)
		;
}

/* ---- system calls ---- */

static void forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

void assert_no_system_call(void (*prepare)(void *), void (*fn)(void *), void *arg)
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		prepare(arg);
		forbid_system_calls();
		fn(arg);
		/* before _exit() AddressSanitizer makes a system call */
		syscall(SYS_exit_group, 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		fprintf(stderr, "no seccomp filter can be set here: system calls not counted\n");
		return;
	}
	ck_assert_msg(!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS, "a system call was made");
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status 0x%x", status);
}

unsigned descriptors_like(int fd)
{
	struct stat wanted, st;
	unsigned n = 0;
	DIR *dir = opendir("/proc/self/fd");

	ck_assert_ptr_nonnull(dir);
	ck_assert_int_eq(fstat(fd, &wanted), 0);
	for (struct dirent *d; (d = readdir(dir));)
		if (d->d_name[0] != '.' && fstat(atoi(d->d_name), &st) == 0 &&
		    st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino)
			n++;
	closedir(dir);
	return n;
}
