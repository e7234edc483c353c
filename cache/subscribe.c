/* SPDX-License-Identifier: MIT */
/*
 * Subscribers, and notifying them. A place in the table is taken under the lock and counts the
 * callbacks that run in it, so that unsubscribing can wait for the last of them without a lock
 * held.
 */
#define _GNU_SOURCE

#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/pthread.h"
#include "cache/base/visible.h"
#include "cache/base/thread.h"
#include "cache/pindown.h"
#include "cache/hit/region.h"
#include "cache/subscribe.h"

#define MOST 64

static struct subscriber {
	pindown_callback callback; /* NULL: the place is free */
	void *arg;
	uint32_t running;
	uint32_t turn; /* how often the place has been given away: part of the id */
	bool leaving;
} subscribers[MOST];

/*
 * A bit for each place that is to be called, so that the others cost no lock. Relaxed: a subscriber
 * that is added while a region ends may be notified of it, or not.
 */
static uint64_t subscribed;
_Static_assert(MOST == 64, "a bit for each");

/* The place whose callback this thread is in: unsubscribing from there must not wait. */
struct call {
	unsigned place;
	struct call *outer;
};
static __thread struct call *calls __attribute__((tls_model("initial-exec")));

/* An id that its owner has given back must not end the subscription of the place's next owner. */
static int id_of(unsigned place)
{
	return (int)((subscribers[place].turn & 0xffffff) * MOST + place + 1);
}

static uint32_t runs_here(unsigned place)
{
	uint32_t count = 0;

	for (const struct call *c = calls; c; c = c->outer)
		count += c->place == place;
	return count;
}

bool pdn_subscriber_runs_here(void)
{
	return calls != NULL;
}

PDN_EXPORT int pindown_subscribe(pindown_callback callback, void *arg)
{
	PDN_UNCANCELLED;
	int id = PINDOWN_ERR_NO_MEMORY;

	if (!callback)
		return PINDOWN_ERR_INVALID;
	pdn_lock();
	for (unsigned i = 0; i < MOST && id < 0; i++)
		if (!subscribers[i].callback) {
			subscribers[i] =
				(struct subscriber){.arg = arg, .turn = subscribers[i].turn + 1};
			/* Release: for a child that is forked meanwhile. */
			__atomic_store_n(&subscribers[i].callback, callback, __ATOMIC_RELEASE);
			__atomic_fetch_or(&subscribed, 1ull << i, __ATOMIC_RELAXED);
			id = id_of(i);
		}
	pdn_unlock();
	return id;
}

/*
 * Can a callback in another thread be waiting for this one? A consumer's callback need not be
 * asked about: a subscriber's waits for it only so long.
 */
static bool may_be_awaited(void)
{
	const struct pdn_thread *self = pdn_self();

	return calls || (self && self->guard_depth > 0);
}

PDN_EXPORT int pindown_unsubscribe(int id)
{
	PDN_UNCANCELLED;
	unsigned place = (unsigned)(id - 1) % MOST;
	struct subscriber *s = &subscribers[place];
	uint64_t deadline = pdn_race_deadline();
	int result = PINDOWN_ERR_INVALID;

	if (id < 1)
		return result;
	pdn_lock();
	if (s->callback && !s->leaving && id_of(place) == id) {
		result = PINDOWN_OK;
		/* No longer called. The place stays until its callbacks return, and no longer. */
		s->leaving = true;
		__atomic_fetch_and(&subscribed, ~(1ull << place), __ATOMIC_RELAXED);
		while (result == PINDOWN_OK && id_of(place) == id && s->running > runs_here(place))
			if (!pdn_wait_busy(deadline)) {
				deadline = pdn_race_deadline();
				if (may_be_awaited())
					result = PINDOWN_ERR_DEADLOCK;
			}
		if (id_of(place) == id && !s->running)
			s->callback = NULL;
	}
	pdn_unlock();
	return result;
}

/* Lock held. */
static bool enter(struct subscriber *s)
{
	if (!s->callback || s->leaving)
		return false;
	s->running++;
	return true;
}

static void leave(struct subscriber *s)
{
	pdn_lock();
	s->running--;
	if (s->leaving && !s->running)
		s->callback = NULL;
	pdn_wake_waiters();
	pdn_unlock();
}

/*
 * The callback has called pthread_exit(). The region that it was notified of is not unpinned any
 * more, but other threads continue.
 */
static void callback_quits(void *arg)
{
	static bool said;
	struct call *here = arg;

	pdn_log_once(&said, PDN_LOG_ERROR,
		     "a subscriber has ended its thread (pthread_exit): the region that it was "
		     "notified of stays pinned");
	leave(&subscribers[here->place]);
	calls = here->outer;
	pdn_thread_quits();
}

/* As where it runs in a coroutine, which another thread continues. */
static void look_where_it_returned(uintptr_t thread)
{
	static bool said;

	if (thread != pdn_thread_mark())
		pdn_log_once(&said, PDN_LOG_ERROR,
			     "a subscriber has returned in another thread than it was called in: "
			     "what the first thread was doing stays half done");
}

static void call(unsigned place, const struct pindown_invalidation *what)
{
	struct subscriber *s = &subscribers[place];
	struct call here = {.place = place, .outer = calls};
	uintptr_t thread = pdn_thread_mark();
	bool in;

	pdn_lock();
	in = enter(s);
	pdn_unlock();
	if (!in)
		return;
	calls = &here;
	PDN_WITH_CLEANUP(callback_quits, &here, s->callback(what, s->arg));
	look_where_it_returned(thread);
	leave(s); /* first: a child without its parent's fork handlers begins again in there */
	calls = here.outer;
}

void pdn_tell_subscribers(const struct pindown_region *region, bool in_use)
{
	struct pindown_invalidation what = {
		.base = region->base,
		.length = region->end - region->base,
		.buffer_id = region->buffer_id,
		.reason = region->reason,
		.in_use = in_use,
		.region = (struct pindown_region *)(uintptr_t)region,
	};

	for (unsigned i = 0; i < MOST && __atomic_load_n(&subscribed, __ATOMIC_RELAXED) >> i; i++)
		if (__atomic_load_n(&subscribed, __ATOMIC_RELAXED) >> i & 1)
			call(i, &what);
}

/*
 * The child keeps its subscribers; callbacks that ran in other threads of the parent do not run
 * here.
 */
void pdn_subscribe_fork_child(void)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < MOST; i++) {
		subscribers[i].running = runs_here(i);
		if (subscribers[i].leaving && !subscribers[i].running)
			subscribers[i].callback = NULL;
		if (subscribers[i].callback && !subscribers[i].leaving)
			all |= 1ull << i;
	}
	__atomic_store_n(&subscribed, all, __ATOMIC_RELAXED);
}
