/* SPDX-License-Identifier: MIT */
/* The table of clients, and the calls of their callbacks; of subscribers, all there is. */
#define _GNU_SOURCE
#include "cache/base/thread/cancel.h"
#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/environment/log.h"
#include "cache/base/thread/pthread.h"
#include "cache/base/thread/thread.h"
#include "cache/base/visible.h"
#include "cache/hit/region.h"
#include "cache/objects/client.h"

static struct pdn_client clients[PDN_CLIENTS];

/* Which places are taken, and up to where any ever was. Written under the lock. */
static bool taken[PDN_CLIENTS];
static unsigned used;

static __thread struct pdn_call *calls __attribute__((tls_model("initial-exec")));

static bool is_consumer(const struct pdn_client *client)
{
	return client < &clients[PDN_CONSUMERS];
}

/* The id of a removed client must not be valid for the next one in its place. */
static uint32_t id_of(const struct pdn_client *client)
{
	return (client->turn & 0xffffff) * PDN_CLIENTS + (uint32_t)(client - clients) + 1;
}

int pdn_client_add(enum pdn_client_kind kind, const struct pdn_client *client)
{
	unsigned end = kind == PDN_CONSUMER ? PDN_CONSUMERS : PDN_CLIENTS;

	for (unsigned i = kind == PDN_CONSUMER ? 0 : PDN_CONSUMERS; i < end; i++) {
		uint32_t turn = clients[i].turn + 1;

		if (taken[i])
			continue;
		clients[i] = *client;
		clients[i].turn = turn;
		/* Release: for a child forked at this moment. */
		__atomic_store_n(&taken[i], true, __ATOMIC_RELEASE);
		if (i >= used)
			__atomic_store_n(&used, i + 1, __ATOMIC_RELAXED);
		return (int)id_of(&clients[i]);
	}
	return PINDOWN_ERR_NO_MEMORY;
}

struct pdn_client *pdn_client(enum pdn_client_kind kind, int64_t id)
{
	struct pdn_client *client = &clients[(uint64_t)(id - 1) % PDN_CLIENTS];

	return id > 0 && taken[client - clients] && id_of(client) == (uint64_t)id &&
			       is_consumer(client) == (kind == PDN_CONSUMER)
		       ? client
		       : NULL;
}

void pdn_client_may_go(struct pdn_client *client)
{
	if (client->leaving && !client->running &&
	    !(client->has_objects && client->has_objects(id_of(client))))
		__atomic_store_n(&taken[client - clients], false, __ATOMIC_RELAXED);
}

void pdn_client_leave(struct pdn_client *client)
{
	if (client->running) /* it may be 0: in a forked child the counts started again */
		client->running--;
	pdn_client_may_go(client);
	pdn_wake_waiters();
}

uint32_t pdn_client_runs_here(const struct pdn_client *client)
{
	uint32_t count = 0;

	for (const struct pdn_call *c = calls; c; c = c->outer)
		count += c->client == client;
	return count;
}

bool pdn_client_wait(uint64_t *deadline)
{
	if (pdn_wait_for_work(*deadline))
		return true;
	*deadline = pdn_race_deadline();
	return !pdn_may_be_awaited();
}

bool pdn_may_be_awaited(void)
{
	const struct pdn_thread *self = pdn_self();

	return !self || self->guard_depth > 0 || calls;
}

bool pdn_runs_callback(void)
{
	return calls != NULL;
}

bool *pdn_consumer_asked_dmabuf(const struct pindown_region *region)
{
	for (struct pdn_call *c = calls; c; c = c->outer)
		if (c->made_on == region)
			return &c->asked_dmabuf;
	return NULL;
}

/* ---- calls ---------------------------------------------------------------------------------- */

bool pdn_call_begin(struct pdn_call *call)
{
	struct pdn_client *client = call->client;
	bool may;

	pdn_lock();
	may = is_consumer(client) || (taken[client - clients] && !client->leaving);
	client->running += may;
	pdn_unlock();
	if (!may)
		return false;
	call->thread = pdn_thread_mark();
	call->outer = calls;
	calls = call;
	return true;
}

static void leave(struct pdn_client *client)
{
	pdn_lock();
	pdn_client_leave(client);
	pdn_unlock();
}

/* Of a consumer's callback, the consumer is named. */
static void complain(bool *said, const struct pdn_call *call, const char *what)
{
	const char *name = call->client->name;

	pdn_log_once(said, PDN_LOG_ERROR, "%s%s%s%s %s", call->callback,
		     name[0] ? " of the consumer \"" : "", name, name[0] ? "\"" : "", what);
}

/*
 * The callback has called pthread_exit(). Its region is never unpinned, but other threads no longer
 * wait for this one.
 */
void pdn_call_quits_thread(void *arg)
{
	static bool said;
	struct pdn_call *call = arg;

	complain(&said, call, "has ended its thread (pthread_exit): the region stays pinned");
	calls = call->outer;
	leave(call->client);
	pdn_thread_quits();
}

void pdn_call_end(struct pdn_call *call)
{
	static bool said;

	/* As where it runs in a coroutine, which another thread continues. */
	if (call->thread != pdn_thread_mark())
		complain(&said, call,
			 "has returned in another thread than it was called in: what the first "
			 "thread was doing stays half done");
	leave(call->client); /* first: a child without fork handlers begins again in there */
	calls = call->outer;
}

/* ---- subscribers ---------------------------------------------------------------------------- */

PDN_EXPORT int pindown_subscribe(pindown_callback callback, void *arg)
{
	PDN_UNCANCELLED;
	const struct pdn_client subscriber = {.notify = callback, .arg = arg};
	int id;

	if (!callback)
		return PINDOWN_ERR_INVALID;
	pdn_lock();
	id = pdn_client_add(PDN_SUBSCRIBER, &subscriber);
	pdn_unlock();
	return id;
}

PDN_EXPORT int pindown_unsubscribe(int id)
{
	PDN_UNCANCELLED;
	uint64_t deadline = pdn_race_deadline();
	struct pdn_client *client;
	int result = PINDOWN_ERR_INVALID;

	pdn_lock();
	client = pdn_client(PDN_SUBSCRIBER, id);
	if (client && !client->leaving) {
		result = PINDOWN_OK;
		/* No longer called. The place stays until its callbacks return, and no longer. */
		client->leaving = true;
		while (result == PINDOWN_OK && pdn_client(PDN_SUBSCRIBER, id) &&
		       client->running > pdn_client_runs_here(client))
			if (!pdn_client_wait(&deadline))
				result = PINDOWN_ERR_DEADLOCK;
		if (pdn_client(PDN_SUBSCRIBER, id))
			pdn_client_may_go(client);
	}
	pdn_unlock();
	return result;
}

static void notify(struct pdn_client *client, const struct pindown_invalidation *what)
{
	struct pdn_call call = {.client = client, .callback = "a subscriber"};

	PDN_CALL(&call, client->notify(what, client->arg));
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

	/* Relaxed: one that comes meanwhile may be notified, or not; the call asks again. */
	for (unsigned i = PDN_CONSUMERS; i < __atomic_load_n(&used, __ATOMIC_RELAXED); i++)
		if (__atomic_load_n(&taken[i], __ATOMIC_RELAXED))
			notify(&clients[i], &what);
}

/* The child keeps the clients, but callbacks in other threads of the parent do not run here. */
void pdn_clients_fork_child(void)
{
	for (unsigned i = 0; i < used; i++) {
		clients[i].running = pdn_client_runs_here(&clients[i]);
		clients[i].stats = (struct pindown_consumer_stats){0};
		pdn_client_may_go(&clients[i]);
	}
}
