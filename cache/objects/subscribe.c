/* SPDX-License-Identifier: MIT */
/* Subscribers, and notifying them. */
#define _GNU_SOURCE
#include "cache/base/cancel.h"
#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/pthread.h"
#include "cache/base/visible.h"
#include "cache/hit/region.h"
#include "cache/objects/client.h"
#include "cache/objects/subscribe.h"

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

	for (struct pdn_client *client = NULL; (client = pdn_next_subscriber(client));)
		notify(client, &what);
}
