/* SPDX-License-Identifier: MIT */
/* Finding out that this process is a child, and beginning again. */
#define _GNU_SOURCE
#include "cache/base/process/process.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/thread/lock.h"
#include "cache/base/visible.h"

struct pdn_this_process pdn_this_process;
__thread uint32_t pdn_locks_held __attribute__((tls_model("initial-exec")));
PDN_WEAK_EVENT(hook_is_off, (void));
PDN_WEAK_EVENT(child_abandons, (void));
PDN_WEAK_EVENT(child_begins, (void));

/*
 * Stored under `beginning`, or by two threads that prepare at once and store the same; read by any
 * thread, and by signal handlers. Neither is zeroed in a child. Relaxed: each stands for itself.
 * What a thread that begins has set up is published by `known`.
 */
static PDN_AT_LOAD bool has_begun; /* in this process or in one that it was forked from */
static PDN_AT_LOAD bool is_wiped;  /* the kernel zeroes pdn_this_process */
PDN_AT_LOAD bool pdn_used_cuda;	   /* this process, or one that it was forked from, has */
PDN_AT_LOAD bool pdn_is_off;

static bool is_set(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

static void set(bool *flag)
{
	__atomic_store_n(flag, true, __ATOMIC_RELAXED);
}

void pdn_process_wipe_in_children(void)
{
	if (!is_set(&is_wiped) && pdn_wipe_in_children(&pdn_this_process, sizeof(pdn_this_process)))
		set(&is_wiped);
}

/*
 * A child can't take itself for its parent: their numbers differ. (They may be the same in a child
 * that clone() puts into a namespace of its own, as number 1, if its parent has number 1, too.)
 */
static PDN_AT_LOAD pid_t loaded_by;  /* before there are other threads */
static PDN_AT_LOAD bool is_prepared; /* as has_begun */

PDN_STARTS void pdn_process_loaded(void)
{
	loaded_by = getpid();
}

/*
 * Two threads may do this at once: a child has zeroes here, or finds that it is a child. Also in a
 * child of a process that never came here, for its own children.
 */
bool pdn_process_prepare(void)
{
	bool is_first = !is_set(&is_prepared) && getpid() == loaded_by;

	pdn_process_wipe_in_children();
	if (is_first) {
		__atomic_store_n(&pdn_this_process.loader_lock_works, 1, __ATOMIC_RELAXED);
		set(&is_prepared);
	}
	return is_first;
}

bool pdn_process_has_begun(void)
{
	return is_set(&has_begun);
}

/* Taken with acquire, let go with release. In a child it is free, as all in pdn_this_process. */
static void take_beginning(void)
{
	struct pdn_backoff rest = {0};

	while (__atomic_exchange_n(&pdn_this_process.beginning, 1, __ATOMIC_ACQUIRE))
		pdn_backoff(&rest);
}

/* ---- a child --------------------------------------------------------------------------------- */

/* The linker's names for the first byte of all PDN_NOT_INHERITED data, and the one behind it. */
extern __attribute__((visibility("hidden"))) char __start_pdn_not_inherited[],
	__stop_pdn_not_inherited[];

static void abandon(void)
{
	PDN_NOTIFY(child_abandons);
	if (is_set(&pdn_used_cuda) && !pdn_process_is_off()) {
		set(&pdn_is_off);
		PDN_NOTIFY(hook_is_off);
	}
}

static void begin_child(void)
{
	abandon();
	memset(__start_pdn_not_inherited, 0,
	       (uintptr_t)__stop_pdn_not_inherited - (uintptr_t)__start_pdn_not_inherited);
	PDN_NOTIFY(child_begins);
}

void pdn_process_begin(void)
{
	int saved = errno;

	/* Before the lock is taken: then it is free in each child, whenever that is forked. */
	pdn_process_wipe_in_children();
	take_beginning();
	if (!pdn_process_is_known()) {
		if (is_set(&has_begun)) {
			begin_child();
		} else {
			pdn_process_prepare();
			set(&has_begun);
		}
		/* Release: pairs with pdn_process_is_known(). */
		__atomic_store_n(&pdn_this_process.known, pdn_process_is_off() ? PDN_OFF : PDN_ON,
				 __ATOMIC_RELEASE);
	}
	__atomic_store_n(&pdn_this_process.beginning, 0, __ATOMIC_RELEASE);
	errno = saved;
}

/*
 * Not where it is 0: a process that never came here gets no page for it. Relaxed: there is no other
 * thread, and a signal handler sees this thread's stores.
 */
static void wipe_word(uint32_t *word)
{
	if (__atomic_load_n(word, __ATOMIC_RELAXED))
		__atomic_store_n(word, 0, __ATOMIC_RELAXED);
}

/*
 * As the kernel does where it can. A lock that this thread holds stays taken: it is in the middle
 * of a change.
 */
static void wipe(void)
{
	wipe_word(&pdn_this_process.known);
	wipe_word(&pdn_this_process.beginning);
	wipe_word(&pdn_this_process.loader_lock_works);
	if (__atomic_load_n(&pdn_this_process.last_library, __ATOMIC_RELAXED))
		__atomic_store_n(&pdn_this_process.last_library, NULL, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < PDN_LOCKS; i++)
		if (!(pdn_locks_held & 1u << i))
			wipe_word(&pdn_this_process.lock[i]);
}

/*
 * Known already: a lock was taken before this handler ran, in a child handler of another library.
 */
void pdn_process_fork_child(void)
{
	int saved = errno;

	if (!is_set(&is_wiped))
		wipe();
	if (is_set(&has_begun) && !pdn_process_is_known()) {
		abandon();
		if (!pdn_locks_held)
			pdn_process_begin();
	}
	errno = saved;
}
