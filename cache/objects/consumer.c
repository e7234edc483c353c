/* SPDX-License-Identifier: MIT */
/*
 * The table of consumers, which attach objects to regions, and the calls of their callbacks. A
 * consumer's place is taken under the lock and counts its running callbacks, so that removing the
 * consumer can wait for the last of them.
 */
#define _GNU_SOURCE
#include <string.h>

#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/log.h"
#include "cache/base/pthread.h"
#include "cache/base/visible.h"
#include "cache/base/thread.h"
#include "cache/objects/object.h"
#include "cache/pindown.h"

static struct pdn_consumer consumers[PDN_CONSUMERS];
struct pdn_rules pdn_rules[PDN_CONSUMERS];

/* A callback that this thread is in: removing its consumer from there must not wait for it. */
struct call {
	struct pdn_consumer *consumer;
	const char *callback;
	const struct pindown_region *made_on; /* create: the region */
	bool asked_dmabuf;		      /* create: it has asked for the region's */
	struct call *outer;
};
static __thread struct call *calls __attribute__((tls_model("initial-exec")));

/* The id of a removed consumer must not be valid for the next one in its place. */
static uint32_t id_of(const struct pdn_consumer *consumer)
{
	return (consumer->turn & 0xffffff) * PDN_CONSUMERS + (uint32_t)(consumer - consumers) + 1;
}

struct pdn_consumer *pdn_consumer(uint32_t id)
{
	struct pdn_consumer *consumer = &consumers[(id - 1) % PDN_CONSUMERS];

	return consumer->taken && id_of(consumer) == id ? consumer : NULL;
}

uint32_t pdn_consumer_runs_here(const struct pdn_consumer *consumer)
{
	uint32_t count = 0;

	for (const struct call *c = calls; c; c = c->outer)
		count += c->consumer == consumer;
	return count;
}

bool *pdn_consumer_asked_dmabuf(const struct pindown_region *region)
{
	for (struct call *c = calls; c; c = c->outer)
		if (c->made_on == region)
			return &c->asked_dmabuf;
	return NULL;
}

bool pdn_any_consumer_runs_here(void)
{
	return calls != NULL;
}

PDN_EXPORT int pindown_consumer_add(const struct pindown_consumer *consumer, size_t size)
{
	PDN_UNCANCELLED;
	struct pindown_consumer ops = {0};
	int id = PINDOWN_ERR_NO_MEMORY;

	if (!consumer || size == 0)
		return PINDOWN_ERR_INVALID;
	memcpy(&ops, consumer, size < sizeof(ops) ? size : sizeof(ops));
	if (!ops.name || !ops.create || !ops.destroy || ops.flags & ~PINDOWN_CONSUMER_RANGES)
		return PINDOWN_ERR_INVALID;
	pdn_lock();
	for (unsigned i = 0; i < PDN_CONSUMERS && id < 0; i++)
		if (!consumers[i].taken) {
			consumers[i] =
				(struct pdn_consumer){.ops = ops, .turn = consumers[i].turn + 1};
			strncpy(consumers[i].name, ops.name, PDN_CONSUMER_NAME - 1);
			consumers[i].ops.name = consumers[i].name;
			/* Relaxed: see pdn_object_find_other(). */
			__atomic_store_n(&pdn_rules[i].rights, ops.rights, __ATOMIC_RELAXED);
			__atomic_store_n(&pdn_rules[i].flags, ops.flags, __ATOMIC_RELAXED);
			/* Release: for a child forked at this moment. */
			__atomic_store_n(&consumers[i].taken, true, __ATOMIC_RELEASE);
			id = (int)id_of(&consumers[i]);
		}
	pdn_unlock();
	return id;
}

void pdn_consumer_holders(int id, pdn_consumer_holders_function *holders,
			  pdn_consumer_may_retire_function *may_retire)
{
	struct pdn_consumer *consumer;

	pdn_lock();
	consumer = id < 1 ? NULL : pdn_consumer((uint32_t)id);
	if (consumer) {
		consumer->holders = holders;
		consumer->may_retire = may_retire;
	}
	pdn_unlock();
}

void pdn_consumer_enter(struct pdn_consumer *consumer)
{
	consumer->running++;
}

void pdn_consumer_leave(struct pdn_consumer *consumer)
{
	if (consumer->running) /* it may be 0: in a forked child the counts started again */
		consumer->running--;
	pdn_consumer_may_go(consumer);
	pdn_wake_waiters();
}

void pdn_consumer_may_go(struct pdn_consumer *consumer)
{
	if (consumer->leaving && !consumer->running && !consumer->has_objects(id_of(consumer)))
		consumer->taken = false;
}

/*
 * The callback has called pthread_exit(). Its region is never unpinned, but other threads no longer
 * wait for this one.
 */
static void callback_quits(void *arg)
{
	static bool said;
	struct call *here = arg;

	pdn_log_once(&said, PDN_LOG_ERROR,
		     "%s of the consumer \"%s\" has ended its thread (pthread_exit): the region "
		     "stays pinned",
		     here->callback, here->consumer->name);
	calls = here->outer;
	pdn_lock();
	pdn_consumer_leave(here->consumer);
	pdn_unlock();
	pdn_thread_quits();
}

/* As where it runs in a coroutine, which another thread continues. */
static void look_where_it_returned(const struct call *here, uintptr_t thread)
{
	static bool said;

	if (thread != pdn_thread_mark())
		pdn_log_once(&said, PDN_LOG_ERROR,
			     "%s of the consumer \"%s\" has returned in another thread than it was "
			     "called in: what the first thread was doing stays half done",
			     here->callback, here->consumer->name);
}

int pdn_consumer_create(struct pdn_consumer *consumer, const struct pindown_object_request *what,
			void **data, bool *asked_dmabuf)
{
	struct call here = {.consumer = consumer,
			    .callback = "create",
			    .made_on = what->region,
			    .outer = calls};
	uintptr_t thread = pdn_thread_mark();
	int error;

	calls = &here;
	PDN_WITH_CLEANUP(callback_quits, &here,
			 error = consumer->ops.create(what, data, consumer->ops.arg));
	look_where_it_returned(&here, thread);
	calls = here.outer;
	*asked_dmabuf = here.asked_dmabuf;
	return error;
}

int pdn_consumer_destroy(struct pdn_consumer *consumer, const struct pindown_object_end *what)
{
	struct call here = {.consumer = consumer, .callback = "destroy", .outer = calls};
	uintptr_t thread = pdn_thread_mark();
	int error;

	calls = &here;
	PDN_WITH_CLEANUP(callback_quits, &here,
			 error = consumer->ops.destroy(what, consumer->ops.arg));
	look_where_it_returned(&here, thread);
	calls = here.outer;
	return error;
}

void pdn_consumer_name_holders(struct pdn_consumer *consumer,
			       const struct pdn_holder_search *search)
{
	struct call here = {.consumer = consumer, .callback = "holders", .outer = calls};

	calls = &here;
	consumer->holders(search);
	calls = here.outer;
}

/* The child keeps the consumers, but callbacks in other threads of the parent do not run here. */
void pdn_consumers_fork_child(void)
{
	for (unsigned i = 0; i < PDN_CONSUMERS; i++) {
		consumers[i].running = pdn_consumer_runs_here(&consumers[i]);
		consumers[i].stats = (struct pindown_consumer_stats){0};
		if (consumers[i].leaving && !consumers[i].running)
			consumers[i].taken = false;
	}
}
