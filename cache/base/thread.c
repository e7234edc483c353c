/* SPDX-License-Identifier: MIT */
/* A record for each thread, and the stripes of hold counts. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/barrier.h"
#include "cache/base/process.h"
#include "cache/base/thread.h"

__thread struct pdn_thread *pdn_self_tls __attribute__((tls_model("initial-exec")));

struct pdn_thread pdn_anonymous = {.counters = &pdn_anonymous.own_counters, .stripe_asked = true};

/* The first few need no memory of their own: most processes have few threads that use CUDA. */
static struct pdn_thread first_records[4];
static unsigned first_used;

uint32_t pdn_thread_records;
PDN_WEAK_EVENT(thread_starts, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_exits, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_counts, (struct pdn_thread *));
PDN_WEAK_EVENT(thread_quits, (void));
static struct pdn_thread *all; /* pushed to with compare-and-swap, never popped */
static pthread_key_t at_thread_exit;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/*
 * Taken with acquire, given back with release: the next owner continues from the counts of the
 * last.
 */
static uint32_t stripes_taken = 1u << PDN_STRIPE_SHARED; /* one bit each */
uint32_t pdn_stripes_first = PDN_STRIPE_SHARED + 1, pdn_stripes_used = PDN_STRIPE_SHARED + 1;

static void give_back_stripe(struct pdn_thread *self)
{
	/* Its counts stay as they are: they are summed, and the next owner continues from there. */
	if (self->stripe != PDN_STRIPE_SHARED)
		__atomic_fetch_and(&stripes_taken, ~(1u << self->stripe), __ATOMIC_RELEASE);
	self->stripe = PDN_STRIPE_SHARED;
	self->stripe_asked = false;
	self->holds = NULL;
}

/*
 * A thread can end in the middle of a call whose end it was to report. It frees no more. Release:
 * as in pdn_ended().
 */
static void drop_guards(struct pdn_thread *self)
{
	for (unsigned i = 0; i < PDN_GUARDS; i++)
		__atomic_store_n(&self->guards[i].kind, 0, __ATOMIC_RELEASE);
	self->guard_depth = 0;
}

/*
 * With asynchronous cancellation, in the middle of a hit as well. Release: as at the end of
 * hold_if().
 */
static void drop_announcement(struct pdn_thread *self)
{
	__atomic_store_n(&self->probing, 0, __ATOMIC_RELEASE);
}

static void detach(void *record)
{
	struct pdn_thread *self = record;

	drop_guards(self);
	drop_announcement(self);
	PDN_NOTIFY(thread_exits, self);
	give_back_stripe(self);
	pdn_self_tls = NULL;
	/*
	 * Release: pairs with reuse_record() and pdn_thread_is_alone(), which then see all of the
	 * above.
	 */
	__atomic_store_n(&self->owned, 0, __ATOMIC_RELEASE);
}

static void init_once(void)
{
	if (pthread_key_create(&at_thread_exit, detach) != 0)
		at_thread_exit = (pthread_key_t)-1; /* then records are not reused */
	pdn_barrier_init();
	if (!pdn_process_is_known())
		pdn_process_begin();
}

/* Acquire: pairs with detach(). */
static struct pdn_thread *reuse_record(void)
{
	for (struct pdn_thread *t = pdn_threads(); t; t = t->next) {
		uint32_t free = 0;

		if (__atomic_load_n(&t->owned, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&t->owned, &free, 1, false, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return t;
	}
	return NULL;
}

/*
 * first_used is a number and nothing else: relaxed. The link is for pdn_threads(), whose callers
 * find the record filled in, and for pdn_thread_is_alone(), in one order with all that it pairs
 * with.
 */
static struct pdn_thread *new_record(void)
{
	const size_t total = sizeof(first_records) / sizeof(first_records[0]);
	unsigned n = __atomic_load_n(&first_used, __ATOMIC_RELAXED);
	struct pdn_thread *t;

	while (n < total)
		if (__atomic_compare_exchange_n(&first_used, &n, n + 1, false, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			t = &first_records[n];
			goto link;
		}
	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t == MAP_FAILED)
		return NULL;
link:
	__atomic_fetch_add(&pdn_thread_records, 1, __ATOMIC_RELAXED);
	t->counters = &t->own_counters;
	t->owned = 1;
	t->next = pdn_threads();
	while (!__atomic_compare_exchange_n(&all, &t->next, t, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_ACQUIRE))
		;
	return t;
}

struct pdn_thread *pdn_thread_attach(void)
{
	struct pdn_thread *self;
	int saved = errno;

	pthread_once(&once, init_once);
	self = reuse_record();
	if (!self)
		self = new_record();
	if (self) {
		/*
		 * Pairs with pdn_thread_is_alone(): it sees this thread, or this thread sees what
		 * it has stored before.
		 */
		__atomic_exchange_n(&self->owned, 1, __ATOMIC_SEQ_CST);
		self->tid = (int32_t)syscall(SYS_gettid);
		pdn_self_tls = self;
		if (at_thread_exit != (pthread_key_t)-1)
			pthread_setspecific(at_thread_exit, self);
		PDN_NOTIFY(thread_starts, self);
		PDN_NOTIFY(thread_counts, self);
	}
	errno = saved;
	return self;
}

uint32_t pdn_my_tid(void)
{
	const struct pdn_thread *self = pdn_self();

	return (uint32_t)(self ? self->tid : syscall(SYS_gettid));
}

/* Acquire: pairs with new_record(), which has filled in what it links. */
struct pdn_thread *pdn_threads(void)
{
	return __atomic_load_n(&all, __ATOMIC_ACQUIRE);
}

bool pdn_thread_is_alone(void)
{
	const struct pdn_thread *self = pdn_self_tls;

	/*
	 * All sequentially consistent, to pair with pdn_thread_attach(); all holds of a thread that
	 * has ended are seen.
	 */
	for (const struct pdn_thread *t = __atomic_load_n(&all, __ATOMIC_SEQ_CST); t; t = t->next)
		if (t != self && __atomic_load_n(&t->owned, __ATOMIC_SEQ_CST))
			return false;
	return true;
}

bool pdn_thread_waits(uint32_t tid)
{
	/* Acquire: pairs with pdn_thread_attach(), so that the number is that of its owner. */
	for (const struct pdn_thread *t = pdn_threads(); t; t = t->next)
		if (__atomic_load_n(&t->owned, __ATOMIC_ACQUIRE) && (uint32_t)t->tid == tid)
			return __atomic_load_n(&t->waits, __ATOMIC_RELAXED);
	return true;
}

/* Before the first hold there: pairs with pdn_holds_any(). */
static void use_stripe(uint32_t stripe)
{
	uint32_t used = __atomic_load_n(&pdn_stripes_used, __ATOMIC_RELAXED);

	while (used <= stripe &&
	       !__atomic_compare_exchange_n(&pdn_stripes_used, &used, stripe + 1, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

/* As use_stripe(). */
void pdn_thread_use_shared_stripe(void)
{
	if (__atomic_load_n(&pdn_stripes_first, __ATOMIC_RELAXED) != PDN_STRIPE_SHARED)
		__atomic_store_n(&pdn_stripes_first, PDN_STRIPE_SHARED, __ATOMIC_SEQ_CST);
}

void pdn_thread_claim_stripe(struct pdn_thread *self)
{
	uint32_t taken = __atomic_load_n(&stripes_taken, __ATOMIC_RELAXED);

	self->stripe_asked = true;
	while (~taken & ((1u << PDN_STRIPES) - 1)) {
		uint32_t stripe = (uint32_t)__builtin_ctz(~taken);

		if (__atomic_compare_exchange_n(&stripes_taken, &taken, taken | 1u << stripe, false,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			use_stripe(stripe);
			self->stripe = stripe;
			return;
		}
	}
}

void pdn_thread_look_now(void)
{
	for (struct pdn_thread *t = pdn_threads(); t; t = t->next)
		__atomic_store_n(&t->until_look, 0, __ATOMIC_RELAXED);
}

void pdn_thread_fork_child(void)
{
	struct pdn_thread *self = pdn_self_tls;

	/*
	 * Relaxed: there is no other thread. This one may have been interrupted in a get, and keeps
	 * its stripe.
	 */
	__atomic_store_n(&stripes_taken, 1u << PDN_STRIPE_SHARED | (self ? 1u << self->stripe : 0),
			 __ATOMIC_RELAXED);
	for (struct pdn_thread *t = pdn_threads(); t; t = t->next) {
		memset(t->guards, 0, sizeof(t->guards));
		memset(&t->own_counters, 0, sizeof(t->own_counters));
		t->counters = &t->own_counters;
		t->guard_depth = 0;
		t->probing = 0;
		t->waits = 0;
		t->owned = t == self;
		if (t == self)
			continue;
		t->stripe = PDN_STRIPE_SHARED;
		t->stripe_asked = false;
		t->holds = NULL;
	}
	if (self)
		self->tid = (int32_t)syscall(SYS_gettid);
}

void __attribute__((cold)) pdn_thread_quits(void)
{
	PDN_NOTIFY(thread_quits);
}

uint64_t pdn_counter_sum(unsigned which)
{
	uint64_t sum = 0;

	for (struct pdn_thread *t = pdn_threads(); t; t = t->next) {
		/*
		 * Acquire: pairs with trace/stream.c and top/page.c, which move them when they have
		 * filled them.
		 */
		char *counters = (char *)__atomic_load_n(&t->counters, __ATOMIC_ACQUIRE);

		/* Relaxed: pairs with pdn_count(); the sum need not be exact. */
		sum += __atomic_load_n((uint64_t *)(void *)(counters + which), __ATOMIC_RELAXED);
	}
	return sum;
}
