/* SPDX-License-Identifier: MIT */
/* Making, filling and removing this process's page for `pindown top`. */
#define _GNU_SOURCE
#include "cache/top/page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/config.h"
#include "cache/base/fork_gate.h"
#include "cache/top/format.h"
#include "cache/top/sweep.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/address_space.h"
#include "cache/trace/writer.h"

PD_WEAK_EVENT(page_made, (void));

static struct pd_live *page;
static struct pd_live_slot *slots;
static uint32_t slots_taken; /* may exceed PD_LIVE_SLOTS */
static bool tried;	     /* stored under the lock */
static bool allowed;
static pid_t owner;
static char path[PATH_MAX];

/* Acquire: pairs with the end of make_page(), so that `slots` is set too. */
static bool is_open(void)
{
	return __atomic_load_n(&page, __ATOMIC_ACQUIRE) != NULL;
}

/* ---- the page's head ----------------------------------------------------------------------- */

static void fill_head(struct pd_live *live, int segment, uint64_t start)
{
	const char *trace = pd_trace_file_name();
	struct stat status;

	memcpy(live->magic, PD_LIVE_MAGIC, sizeof(live->magic));
	live->segment = segment;
	live->stats_size = sizeof(struct pindown_stats);
	live->slots = PD_LIVE_SLOTS;
	live->pid = (uint32_t)owner;
	live->start = start;
	live->began = (uint64_t)time(NULL);
	live->pid_namespace = pd_live_namespace();
	if (stat("/proc/self/exe", &status) == 0) {
		live->exe_device = status.st_dev;
		live->exe_inode = status.st_ino;
	}
	if (trace && strlen(trace) < sizeof(live->trace))
		strcpy(live->trace, trace);
}

/* ---- the file ------------------------------------------------------------------------------ */

/* An existing file has this pid and start time, so the process made it before an exec. */
static int create_file(void)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(path, flags, 0600);

	if (fd < 0 && errno == EEXIST && unlink(path) == 0)
		fd = open(path, flags, 0600);
	return fd;
}

static bool build_path(const char *folder, uint64_t start)
{
	int length = snprintf(path, sizeof(path), "%s/" PD_LIVE_PREFIX "%d.%llu", folder,
			      (int)owner, (unsigned long long)start);

	return length > 0 && (size_t)length < sizeof(path);
}

/* Leaves no descriptor open. */
static bool publish_in(const char *folder, const struct pd_live *live)
{
	bool whole;
	int fd;

	if (!folder || folder[0] != '/' || !build_path(folder, live->start))
		return false;
	pd_live_sweep(folder);
	fd = create_file();
	if (fd < 0)
		return false;
	whole = write(fd, live, sizeof(*live)) == (ssize_t)sizeof(*live);
	close(fd);
	if (!whole)
		unlink(path);
	return whole;
}

/*
 * The segment is marked for removal at once: it exists as long as a process has it attached, and
 * until then can be attached by its id. Attached by a bare system call, as the trace's journal is
 * (trace/journal.c).
 */
static struct pd_live *make_segment(uint64_t start)
{
	int segment = shmget(IPC_PRIVATE, PD_LIVE_BYTES, IPC_CREAT | 0600);
	long at = segment < 0 ? -1 : syscall(SYS_shmat, segment, NULL, 0);

	if (segment >= 0)
		shmctl(segment, IPC_RMID, NULL);
	if (at == -1)
		return NULL;
	fill_head((struct pd_live *)at, segment, start);
	return (struct pd_live *)at;
}

static void make_page(void)
{
	uint64_t start;
	struct pd_live *live;

	owner = getpid();
	start = pd_live_start_of((uint32_t)owner);
	live = start ? make_segment(start) : NULL;
	if (!live)
		return;
	if (!publish_in("/dev/shm", live) && !publish_in(getenv("XDG_RUNTIME_DIR"), live)) {
		syscall(SYS_shmdt, live);
		return;
	}
	slots = (struct pd_live_slot *)(void *)((char *)live + PD_LIVE_SLOTS_AT);
	slots_taken = 0;
	/* Release: pairs with is_open(). */
	__atomic_store_n(&page, live, __ATOMIC_RELEASE);
}

/* ---- counters ------------------------------------------------------------------------------ */

/*
 * Called by the thread: moves its counters into the page, if there is one. A traced thread has its
 * counters in the trace, where they survive a kill.
 */
static void start_thread(struct pd_thread *self)
{
	uint32_t number;

	if (!is_open() || pd_config()->trace || self->counters != &self->own_counters)
		return;
	/* Relaxed: only a unique number is needed. Release, below: pairs with pd_counter_sum(). */
	number = __atomic_fetch_add(&slots_taken, 1, __ATOMIC_RELAXED);
	if (number >= PD_LIVE_SLOTS)
		return;
	_Static_assert(sizeof(struct pd_live_slot) == sizeof(struct pd_counters),
		       "a slot is a thread's counters");
	memcpy(&slots[number], &self->own_counters, sizeof(self->own_counters));
	__atomic_store_n(&self->counters, (struct pd_counters *)(void *)&slots[number],
			 __ATOMIC_RELEASE);
}

PD_NOTIFIED(thread_counts, start_thread);

bool pd_live_counts(const struct pd_counters *counters)
{
	const struct pd_live_slot *slot = (const struct pd_live_slot *)(const void *)counters;

	return slots && slot >= slots && slot < slots + PD_LIVE_SLOTS;
}

/* A thread's record takes at most one slot. Relaxed: a new thread has counted nothing yet. */
bool pd_live_counts_all(void)
{
	uint32_t taken = __atomic_load_n(&slots_taken, __ATOMIC_RELAXED);

	return taken <= PD_LIVE_SLOTS &&
	       taken == __atomic_load_n(&pd_thread_records, __ATOMIC_RELAXED);
}

/* ---- opening and closing ------------------------------------------------------------------- */

void pd_live_allow(void)
{
	allowed = true;
}

void pd_live_open(void)
{
	struct pd_shield shield;

	/* Acquire: pairs with the release below: whether there is a page is decided. */
	if (__atomic_load_n(&tried, __ATOMIC_ACQUIRE))
		return;
	pd_shield_up(&shield, SIGXFSZ);
	pd_descriptor_begin();
	pd_lock();
	if (!tried && allowed && pd_config()->enabled && pd_config()->top &&
	    !getauxval(AT_SECURE)) {
		make_page();
		if (page)
			PD_NOTIFY(page_made);
	}
	__atomic_store_n(&tried, true, __ATOMIC_RELEASE);
	pd_unlock();
	pd_descriptor_end();
	pd_shield_down(&shield);
	if (pd_self_tls)
		start_thread(pd_self_tls);
}

void pd_live_close(void)
{
	int error = errno;

	if (is_open() && owner == getpid())
		unlink(path);
	errno = error;
}

void pd_live_fork_child(void)
{
	if (page)
		pd_make_private(page, PD_LIVE_BYTES);
	page = NULL;
	slots = NULL;
	tried = false;
}

/* ---- statistics ---------------------------------------------------------------------------- */

struct pindown_stats *pd_live_begin(void)
{
	struct pd_live *live = page;

	if (!live)
		return NULL;
	/* Relaxed: each later store is a release, and so is never seen before this one. */
	__atomic_store_n(&live->sequence, live->sequence + 1, __ATOMIC_RELAXED);
	return &live->stats;
}

/* Release: a reader that sees the even number sees all stores made before it. */
void pd_live_end(void)
{
	__atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELEASE);
}

/* Release: as all stores between begin and end (stats.c, put()). */
void pd_live_put_device(unsigned device, uint64_t bytes, uint64_t regions)
{
	__atomic_store_n(&page->devices[device].bytes, bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&page->devices[device].regions, regions, __ATOMIC_RELEASE);
}
