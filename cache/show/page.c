/* SPDX-License-Identifier: MIT */
/* Making, filling and removing this process's page for `pindown top`. */
#define _GNU_SOURCE
#include "cache/show/page.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "cache/base/environment/environment.h"
#include "cache/base/process/fork_gate.h"
#include "cache/show/format.h"
#include "cache/show/listen.h"
#include "cache/show/sweep.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/memory/address_space.h"
#include "cache/base/process/system.h"
#include "cache/trace/writer/info.h"
#include "cache/trace/writer/file.h"

PDN_WEAK_EVENT(page_made, (void));

static PDN_AT_LOAD struct pdn_top_page *page;
static struct pdn_top_slot *slots;
static uint32_t slots_taken; /* may exceed PDN_TOP_SLOTS */
bool pdn_top_decided;	     /* stored under the lock */
static PDN_AT_LOAD bool allowed;
static pid_t owner;
static char path[PATH_MAX];

/* Acquire: pairs with the end of make_page(), so that `slots` is set too. */
static bool is_open(void)
{
	return __atomic_load_n(&page, __ATOMIC_ACQUIRE) != NULL;
}

/* ---- the page's head ----------------------------------------------------------------------- */

static void fill_head(struct pdn_top_page *live, int segment, uint64_t start)
{
	const char *trace = pdn_trace_file_name();
	struct stat status;

	memcpy(live->magic, PDN_TOP_MAGIC, sizeof(live->magic));
	live->segment = segment;
	live->stats_size = sizeof(struct pindown_stats);
	live->slots = PDN_TOP_SLOTS;
	live->pid = (uint32_t)owner;
	live->start = start;
	live->began = (uint64_t)time(NULL);
	live->pid_namespace = pdn_top_namespace(PDN_TOP_PIDS);
	live->time_namespace = pdn_top_namespace(PDN_TOP_TIME);
	live->rank = pdn_trace_rank();
	if (pdn_sys_stat("/proc/self/exe", &status)) {
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
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
	int fd = pdn_sys_open(path, flags);

	if (fd == -EEXIST) {
		pdn_sys_unlink(path);
		fd = pdn_sys_open(path, flags);
	}
	return fd;
}

static bool build_path(const char *folder, uint64_t start)
{
	int length = snprintf(path, sizeof(path), "%s/" PDN_TOP_PREFIX "%d.%llu", folder,
			      (int)owner, (unsigned long long)start);

	return length > 0 && (size_t)length < sizeof(path);
}

/* Leaves no descriptor open. */
static bool publish_in(const char *folder, const struct pdn_top_page *live)
{
	bool whole;
	int fd;

	if (!folder || folder[0] != '/' || !build_path(folder, live->start))
		return false;
	pdn_top_sweep(folder);
	fd = create_file();
	if (fd < 0)
		return false;
	whole = pdn_sys(SYS_write, fd, live, sizeof(*live)) == (long)sizeof(*live);
	pdn_sys(SYS_close, fd);
	if (!whole)
		pdn_sys_unlink(path);
	return whole;
}

/*
 * The segment is marked for removal at once: it exists as long as a process has it attached, and
 * until then can be attached by its id.
 */
static struct pdn_top_page *make_segment(uint64_t start)
{
	int segment = (int)pdn_sys(SYS_shmget, IPC_PRIVATE, PDN_TOP_BYTES, IPC_CREAT | 0600);
	long at = segment < 0 ? segment : pdn_sys(SYS_shmat, segment, NULL, 0);

	if (segment >= 0)
		pdn_sys(SYS_shmctl, segment, IPC_RMID, NULL);
	if (at <= 0)
		return NULL;
	fill_head((struct pdn_top_page *)at, segment, start);
	return (struct pdn_top_page *)at;
}

static void make_page(void)
{
	int64_t start;
	struct pdn_top_page *live;

	owner = getpid();
	start = pdn_top_start_of((uint32_t)owner);
	live = start > 0 ? make_segment((uint64_t)start) : NULL;
	if (!live)
		return;
	if (!publish_in("/dev/shm", live) && !publish_in(pdn_variable("XDG_RUNTIME_DIR"), live)) {
		pdn_sys(SYS_shmdt, live);
		return;
	}
	slots = (struct pdn_top_slot *)(void *)((char *)live + PDN_TOP_SLOTS_AT);
	slots_taken = 0;
	/* Release: pairs with is_open(). */
	__atomic_store_n(&page, live, __ATOMIC_RELEASE);
}

/* ---- counters ------------------------------------------------------------------------------ */

/*
 * Called by the thread: moves its counters into the page, if there is one, from its record, or from
 * what was the page before (pdn_top_withdraw()). A traced thread has its counters in the trace,
 * where they survive a kill.
 */
static void start_thread(struct pdn_thread *self)
{
	uint32_t number;

	if (!is_open() || pdn_config()->trace || self->in_page)
		return;
	/* Relaxed: only a unique number is needed. Release, below: pairs with pdn_counter_sum(). */
	number = __atomic_fetch_add(&slots_taken, 1, __ATOMIC_RELAXED);
	if (number >= PDN_TOP_SLOTS)
		return;
	_Static_assert(sizeof(struct pdn_top_slot) == sizeof(struct pdn_counters),
		       "a slot is a thread's counters");
	memcpy(&slots[number], self->counters, sizeof(*self->counters));
	__atomic_store_n(&self->in_page, true, __ATOMIC_RELAXED); /* for stats.c */
	__atomic_store_n(&self->counters, (struct pdn_counters *)(void *)&slots[number],
			 __ATOMIC_RELEASE);
}

PDN_NOTIFIED(thread_counts, start_thread);

/* A thread's record takes at most one slot. Relaxed: a new thread has counted nothing yet. */
bool pdn_top_counts_all(void)
{
	uint32_t taken = __atomic_load_n(&slots_taken, __ATOMIC_RELAXED);

	return taken <= PDN_TOP_SLOTS &&
	       taken == __atomic_load_n(&pdn_thread_records, __ATOMIC_RELAXED);
}

/* ---- opening and closing ------------------------------------------------------------------- */

PDN_STARTS void pdn_top_allow(void)
{
	allowed = true;
}

void pdn_top_decide(void)
{
	struct pdn_top_page *made = NULL;
	struct pdn_shield shield;

	pdn_shield_up(&shield);
	pdn_descriptor_begin();
	pdn_lock();
	if (!pdn_top_decided && allowed && pdn_config()->enabled && pdn_config()->top &&
	    !getauxval(AT_SECURE)) {
		make_page();
		made = page;
		if (made)
			PDN_NOTIFY(page_made);
	}
	__atomic_store_n(&pdn_top_decided, true, __ATOMIC_RELEASE);
	pdn_unlock();
	pdn_descriptor_end();
	pdn_shield_down(&shield);
	if (pdn_self_tls)
		start_thread(pdn_self_tls);
	if (made && pdn_config()->quiesce)
		pdn_top_listen(made);
}

/*
 * Lock held. What the threads have counted so far is in the old page, where they go on counting;
 * that is no part of the next page, whose statistics have it all.
 */
static void take_counters_back(void)
{
	uint64_t *ended = &pdn_thread_ended[true].hits, *own = &pdn_thread_ended[false].hits;

	for (struct pdn_thread *t = NULL; (t = pdn_thread_next_ever(t));)
		__atomic_store_n(&t->in_page, false, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < sizeof(pdn_thread_ended[0]) / sizeof(*own); i++)
		__atomic_fetch_add(&own[i], __atomic_exchange_n(&ended[i], 0, __ATOMIC_RELAXED),
				   __ATOMIC_RELAXED);
}

/*
 * Lock held. At one moment, the page's memory becomes a copy of the process's own: a count that a
 * thread makes between the copy and that moment is lost. Returns the shared memory, at another
 * place; NULL: there is no memory.
 */
static struct pdn_top_page *leave_page(void)
{
	void *copy = pdn_map(PDN_TOP_BYTES, PROT_READ | PROT_WRITE);
	long shared = copy ? pdn_sys(SYS_mremap, page, 0, PDN_TOP_BYTES, MREMAP_MAYMOVE) : 0;

	if (shared <= 0) {
		if (copy)
			pdn_sys(SYS_munmap, copy, PDN_TOP_BYTES);
		return NULL;
	}
	take_counters_back();
	memcpy(copy, page, PDN_TOP_BYTES);
	pdn_sys(SYS_mremap, copy, PDN_TOP_BYTES, PDN_TOP_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED,
		page);
	__atomic_store_n(&page, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&slots_taken, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&pdn_top_decided, false, __ATOMIC_RELAXED);
	return (struct pdn_top_page *)shared;
}

/* Release: a reader that sees the answer sees the rest. */
static void give_answer(struct pdn_top_page *to, const struct pdn_top_quiesce *answer)
{
	struct pdn_top_quiesce *at = &to->quiesce;

	at->left = answer->left;
	at->ended = answer->ended;
	at->held = answer->held;
	at->held_bytes = answer->held_bytes;
	memcpy(at->named, answer->named, sizeof(at->named));
	__atomic_store_n(&at->answered, answer->answered, __ATOMIC_RELEASE);
}

bool pdn_top_withdraw(struct pdn_top_quiesce *answer)
{
	struct pdn_top_page *live, *shared;

	pdn_lock();
	live = page;
	pdn_sys_unlink(path);
	shared = leave_page();
	if (!shared)
		answer->left |= PDN_LEFT_SEGMENT;
	give_answer(shared ? shared : live, answer);
	if (shared)
		pdn_sys(SYS_munmap, shared, PDN_TOP_BYTES);
	pdn_unlock();
	return shared;
}

PDN_STARTS void pdn_top_close(void)
{
	if (is_open() && owner == getpid())
		pdn_sys_unlink(path);
}

void pdn_top_fork_child(void)
{
	if (page)
		pdn_make_private(page, PDN_TOP_BYTES);
	page = NULL;
	slots = NULL;
	pdn_top_decided = false;
}

/* ---- statistics ---------------------------------------------------------------------------- */

struct pdn_top_page *pdn_top_begin(void)
{
	struct pdn_top_page *live = page;

	if (!live)
		return NULL;
	/* Relaxed: each later store is a release, and so is never seen before this one. */
	__atomic_store_n(&live->sequence, live->sequence + 1, __ATOMIC_RELAXED);
	return live;
}

/* Release: a reader that sees the even number sees all stores made before it. */
void pdn_top_end(struct pdn_top_page *live)
{
	__atomic_store_n(&live->sequence, live->sequence + 1, __ATOMIC_RELEASE);
}
