/* SPDX-License-Identifier: MIT */
/* Finding out that this process is a child, and beginning again. */
#define _GNU_SOURCE
#include "cache/base/process.h"

#include <errno.h>
#include <sys/mman.h>

#include "cache/base/lock.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

struct pd_here pd_here;
__thread uint32_t pd_locks_held __attribute__((tls_model("initial-exec")));
void (*pd_hook_fork_child)(void);
PD_WEAK_EVENT(child_abandons, (void));
PD_WEAK_EVENT(child_begins, (void));

/* Under `beginning`, or before there are other threads. Neither is zeroed in a child. */
static bool has_begun; /* in this process or in one that it was forked from */
static bool is_wiped;  /* the kernel zeroes pd_here */

bool pd_wipe_in_children(void *start, size_t bytes)
{
	int saved = errno;
	bool ok = madvise(start, bytes, MADV_WIPEONFORK) == 0;

	errno = saved;
	return ok;
}

static void wipe_in_children(void)
{
	if (!is_wiped)
		is_wiped = pd_wipe_in_children(&pd_here, sizeof(pd_here));
}

void pd_process_loaded(void)
{
	wipe_in_children();
	pd_here.loader_lock_works = 1;
}

/* Taken with acquire, let go with release. In a child it is free, as all in pd_here. */
static void take_beginning(void)
{
	struct pd_rest rest = {0};

	while (__atomic_exchange_n(&pd_here.beginning, 1, __ATOMIC_ACQUIRE))
		pd_rest(&rest);
}

void pd_process_begin(void)
{
	int saved = errno;

	take_beginning();
	if (!pd_process_is_known()) {
		if (has_begun) {
			PD_NOTIFY(child_abandons);
			PD_NOTIFY(child_begins);
		} else {
			wipe_in_children();
			has_begun = true;
		}
		/* Release: pairs with pd_process_is_known(). */
		__atomic_store_n(&pd_here.known, 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&pd_here.beginning, 0, __ATOMIC_RELEASE);
	errno = saved;
}

/*
 * As the kernel does where it can. A lock that this thread holds stays taken: it is in the middle
 * of a change.
 */
static void wipe(void)
{
	pd_here.known = pd_here.beginning = pd_here.loader_lock_works = 0;
	pd_here.last_library = NULL;
	for (unsigned i = 0; i < PD_LOCKS; i++)
		if (!(pd_locks_held & 1u << i))
			pd_here.lock[i] = 0;
}

/*
 * Known already: a lock was taken before this handler ran, in a child handler of another library.
 */
void pd_process_fork_child(void)
{
	int saved = errno;

	if (!is_wiped)
		wipe();
	if (has_begun && !pd_process_is_known()) {
		PD_NOTIFY(child_abandons);
		if (!pd_locks_held)
			pd_process_begin();
	}
	errno = saved;
}
