/* SPDX-License-Identifier: MIT */
/*
 * Is this process still the one that filled in our memory? A fork comes at any moment: a thread
 * that the child does not have may hold a lock or be in the middle of a change. No lock is held
 * over a fork to keep that from happening, because the atfork handlers of other libraries run in
 * between, and may call pindown or wait for a thread that does.
 *
 * Instead the child finds out that it is one. The kernel gives it a page of zeroes in place of
 * `pdn_this_process` (MADV_WIPEONFORK), however it was forked: all locks are free in the child, and
 * `known` is 0. A thread that takes a lock and sees that makes everything begin again before it
 * looks at the data that the lock protects. The regions' briefs are zeroed in the same way
 * (region.c), so that no hit finds a region of the parent's; and the threads' hold counts, which
 * mean nothing in the child, so that the fork takes no longer for them.
 *
 * A thread that forks in a signal handler may itself hold a lock. Its child completes the change
 * first, and begins again when it lets go of the lock.
 *
 * A child of a process that has registered GPU memory can't use CUDA, and is off: it closes the
 * descriptors that it has inherited, pins nothing, writes no trace, and hook/ passes every call
 * through. The tables are not made whole there. They are only out of reach (PDN_NOT_INHERITED), for
 * a thread that was in the middle of a call when it forked. All other children begin as a process
 * does.
 *
 * Where the kernel can't do that (before Linux 4.14) the child begins again in pindown's atfork
 * handler. Handlers of other libraries that run before that one may then wait for ever for a lock
 * that another thread held.
 */
#ifndef PDN_PROCESS_H
#define PDN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/notify.h"

/* Each of the locks; see lock.h. */
enum pdn_lock_name {
	PDN_LOCK_CACHE,	   /* the cache's tables: pdn_lock() */
	PDN_LOCK_KMOD,	   /* opening /dev/pindown */
	PDN_LOCK_RECORDS,  /* hook/: what is remembered between calls */
	PDN_LOCK_CONTEXTS, /* hook/: primary contexts */
	PDN_LOCK_CONSUMER, /* hook/: the verbs become a consumer */
	PDN_LOCK_MRS,	   /* hook/: where the program's ibv_mr lie */
	PDN_LOCK_LIMITS,   /* hook/: what cards can't do */
	PDN_LOCK_SLOTS,	   /* hook/: writing to pages that the loader has sealed */
	PDN_LOCKS
};

enum { PDN_ON = 1, PDN_OFF }; /* in `known` */
struct pdn_this_process {
	uint32_t known;		  /* 0: nothing is known of this process yet, or it is a child */
	uint32_t beginning;	  /* the lock of beginning again */
	uint32_t lock[PDN_LOCKS]; /* see lock.c */
	/* hook/loader/loaded/loaded.c */
	uint32_t loader_lock_works; /* no thread lost in a fork holds the loader's */
	const void *last_library;   /* in the loader's list, at the last search */
} __attribute__((aligned(PDN_LARGEST_PAGE)));
extern __attribute__((visibility("hidden"))) struct pdn_this_process pdn_this_process;

/* The locks that this thread holds, one bit each. */
extern __attribute__((visibility("hidden"))) __thread uint32_t pdn_locks_held
	__attribute__((tls_model("initial-exec")));

/* Acquire: pairs with the release in pdn_process_begin(). */
static inline bool pdn_process_is_known(void)
{
	return __builtin_expect(__atomic_load_n(&pdn_this_process.known, __ATOMIC_ACQUIRE) != 0, 1);
}

/* The library is loaded, into a process whose threads are all its own. */
void pdn_process_loaded(void);

/*
 * Before the first question to the loader, and before the first lock is taken: from here on the
 * kernel zeroes pdn_this_process in children. true: this is still the process that has loaded the
 * library, and it is the first time. Most processes never come here, and need no page for it.
 */
bool pdn_process_prepare(void);

/*
 * From here on the kernel zeroes pdn_this_process in children, if it can. To be called before a
 * lock in it is taken.
 */
void pdn_process_wipe_in_children(void);

/* Has anything in this process, or in one that it was forked from, ever begun? */
bool pdn_process_has_begun(void);

/*
 * The driver has described GPU memory to this process: from here on each child is off. Relaxed,
 * here and below: a child has what its thread saw when it forked.
 */
extern __attribute__((visibility("hidden"))) bool pdn_used_cuda, pdn_is_off;
static inline void pdn_process_uses_cuda(void)
{
	__atomic_store_n(&pdn_used_cuda, true, __ATOMIC_RELAXED);
}

/*
 * Is this a child of a process that has registered GPU memory? Known as soon as the child has taken
 * a lock or has run the fork handler.
 */
static inline bool pdn_process_is_off(void)
{
	return __atomic_load_n(&pdn_is_off, __ATOMIC_RELAXED);
}

/*
 * Variables that are zero in a child before it looks at them: the heads of lists and trees, and
 * counts. Only such as begin as 0. Other threads of the parent may have been in the middle of
 * changing them.
 */
#define PDN_NOT_INHERITED __attribute__((section("pdn_not_inherited")))

/*
 * Begin, or begin again; to be called where pdn_process_is_known() says no. Keeps errno, is
 * async-signal-safe.
 */
void pdn_process_begin(void);

/* Is this process not off? It begins here, if it has not begun. */
static inline bool pdn_process_is_on(void)
{
	if (__builtin_expect(__atomic_load_n(&pdn_this_process.known, __ATOMIC_ACQUIRE) == PDN_ON,
			     1))
		return true;
	if (!pdn_process_is_known())
		pdn_process_begin();
	return !pdn_process_is_off();
}

/*
 * A child has inherited data and descriptors of its parent's. Two events, one after the other:
 * close the descriptors, at once, whatever state the tables are in; and begin with empty tables,
 * when this thread is in the middle of no change. Async-signal-safe. Between the two the process
 * becomes off, if it does.
 */
PDN_EVENT(child_abandons, (void));
PDN_EVENT(child_begins, (void));

/* In the child of a fork, from the fork handler. */
void pdn_process_fork_child(void);

/* From here on hook/ passes each call through. */
PDN_EVENT(hook_is_off, (void));

#endif
