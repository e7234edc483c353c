/* SPDX-License-Identifier: MIT */
/*
 * The events that hook/ reports to the cache. The cache knows nothing of interception: hook/ says
 * that memory is about to end, has ended, has come to life, or can no longer be trusted.
 *
 * The order is the point: pdn_end_*() is called before the real driver call that ends the memory,
 * and returns when no idle region of it is pinned any more and no lookup can find one. Its guard
 * stays up until pdn_ended(), after the real call, so that no pin of the dying memory can slip in
 * between.
 *
 * Every function here keeps errno, takes no lock across a call out, and may be called from any
 * thread.
 */
#ifndef PDN_HOOK_EVENTS_H
#define PDN_HOOK_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/driver/driver.h" /* pdn_find_driver_symbol, pdn_is_mapped: set by hook/ */

/*
 * A guard: the memory that one thread is about to end. It is kept in the caller's thread record,
 * where pinning threads find it; the caller keeps only this number. Guards nest (a callback may
 * free something else).
 */
typedef unsigned pdn_guard;
#define PDN_GUARD_RETIRES 0x40000000u /* a bit: pdn_ended() has an address to reserve */

/* The allocation that holds addr ends (length 0), or all that overlap [addr, addr + length) do. */
pdn_guard pdn_end_range(uint64_t addr, uint64_t length);

/*
 * The same of the allocation that begins at addr, which the program frees with cuMemFree: also
 * registrations that the program holds end, if PINDOWN_HELD says so (retired.h).
 */
pdn_guard pdn_end_allocation(uint64_t addr);

/*
 * The allocation that holds addr ends in stream order (cuMemFreeAsync, a graph's launch): no lookup
 * finds it from here on, but its holders may use it up to the free's turn in the stream, which
 * nobody reports.
 */
pdn_guard pdn_end_in_order(uint64_t addr);

/* A context ends, and with it the regions whose memory it owns (not pool and VMM memory). */
pdn_guard pdn_end_context(void *context);

/* All device memory of one device's primary context ends, but the context's handle is not known. */
pdn_guard pdn_end_device(int device);

/* Everything ends: checkpoint. */
pdn_guard pdn_end_all(void);

/* The real call has returned, with any result. */
void pdn_ended(pdn_guard guard);

/*
 * From now on calls that end this range can't all be seen (graph-owned memory): regions there, now
 * and in future, are checked by buffer id on each hit, until pdn_allocated().
 */
void pdn_volatile(uint64_t addr, uint64_t length);

/*
 * The program is about to free this memory in stream order, with the guard of pdn_end_in_order()
 * up, and the driver keeps it, with its buffer id, until the stream's turn. So it can still be got.
 * But it is volatile from now on, and a region there ends as soon as its getter holds it, and is
 * unpinned at the last put: nobody reports the turn, and nothing idle may outlive it. All of this
 * until pdn_allocated(), which is also for a free that fails. false: it was so before.
 */
bool pdn_ends_later(uint64_t addr, uint64_t length);

/*
 * The driver has just handed out this range, and its end will be seen. A region that is still live
 * there means that a free was not seen: it is invalidated and, unless the memory was volatile,
 * counted as missed.
 */
void pdn_allocated(uint64_t addr, uint64_t length);

/*
 * Something happened that may have ended memory of this pool (or, with NULL, any memory): compare
 * the buffer ids of its regions with the driver's, and drop and count those that differ.
 */
void pdn_recheck(void *pool);

/*
 * Destroy a consumer's idle objects of this owner, which lives on, as pindown_end_owner() does for
 * an owner that ends: the card has no room for more.
 */
void pdn_drop_idle_of(int consumer, uint64_t owner);

struct pindown_key;
struct pindown_object;

/*
 * A registration that the program has, and that holds a consumer's object: for the trace, which
 * names it when its memory ends.
 */
struct pdn_holder {
	const struct pindown_object *object;
	uint64_t addr, size; /* as the program named the memory */
	bool was_named;	     /* found() has returned true for it before */
	uint64_t caller;     /* the code that registered: see pdn_trace_origin(); 0: unknown */
};

/* A wanted object, and its data, stay for as long as the search. */
struct pdn_holder_search {
	bool (*wants)(void *arg, const struct pindown_object *object);
	bool (*found)(void *arg, const struct pdn_holder *holder); /* true: it has been named */
	void *arg;
};

/*
 * A consumer's function that finds the registrations which hold wanted objects. It runs in the
 * thread that ends the memory, without a lock; other threads may make and end registrations
 * meanwhile.
 */
typedef void pdn_consumer_holders_function(const struct pdn_holder_search *search);

/*
 * May an object, which was just made, end while the program holds registrations by it, if the
 * address of the memory is retired? Then a late use of these must reach no other memory, and they
 * must stay readable, so that the program can drop them. Runs without a lock.
 */
typedef bool pdn_consumer_may_retire_function(const struct pindown_key *key, const void *data);

void pdn_consumer_holders(int consumer, pdn_consumer_holders_function *holders,
			  pdn_consumer_may_retire_function *may_retire);

/* A registration of GPU memory was left to libibverbs, and is only counted. */
void pdn_left_to_card(void);

/* Around fork(): to be called from pthread_atfork handlers, and in the child of _Fork(). */
void pdn_fork_prepare(void);
void pdn_fork_parent(void);
void pdn_fork_child(void);

/* The process has begun to exit: no more calls to the driver, which may be shut down already. */
void pdn_exiting(void);

/* hook/ says whether frees are watched; until then every hit is checked by buffer id. */
void pdn_set_intercepting(bool yes);

/*
 * Something shows that not every free is seen: from now on every hit, also of regions that are
 * pinned already, is checked by buffer id, for good. A hit that another thread has begun before
 * this returns may still go unchecked. The first call in a process prints one line, which says why:
 * the format makes the first half of a sentence, without a full stop ("cuMemFree_v3 is ...").
 *
 * It takes the cache's lock, so do not call it under that; it asks nothing of the loader and
 * allocates nothing, so it may be called in the middle of a look-up of the program's, and in a
 * process in which nothing was ever pinned.
 */
void pdn_distrust(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
