/* SPDX-License-Identifier: MIT */
/* Consumers, which attach objects to regions, and the calls of their functions. */
#define _GNU_SOURCE
#include <string.h>

#include "cache/base/thread/cancel.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/pthread.h"
#include "cache/base/visible.h"
#include "cache/hit/region.h"
#include "cache/objects/consumer.h"

struct pdn_rules pdn_rules[PDN_CLIENTS];

/* Relaxed: see pdn_object_find(). */
static void set_rules(uint32_t id, const struct pindown_consumer *ops)
{
	struct pdn_rules *rules = &pdn_rules[pdn_consumer_place(id)];

	__atomic_store_n(&rules->rights, ops->rights, __ATOMIC_RELAXED);
	__atomic_store_n(&rules->flags, ops->flags, __ATOMIC_RELAXED);
}

PDN_EXPORT int pindown_consumer_add(const struct pindown_consumer *consumer, size_t size)
{
	PDN_UNCANCELLED;
	struct pdn_client new = {0};
	int id;

	if (!consumer || size == 0)
		return PINDOWN_ERR_INVALID;
	memcpy(&new.ops, consumer, size < sizeof(new.ops) ? size : sizeof(new.ops));
	if (!new.ops.name || !new.ops.create || !new.ops.destroy ||
	    new.ops.flags & ~PINDOWN_CONSUMER_RANGES)
		return PINDOWN_ERR_INVALID;
	strncpy(new.name, new.ops.name, PDN_CONSUMER_NAME - 1);
	pdn_lock();
	id = pdn_client_add(PDN_CONSUMER, &new);
	if (id > 0)
		set_rules((uint32_t)id, &new.ops);
	pdn_unlock();
	return id;
}

void pdn_consumer_holders(int id, pdn_consumer_holders_function *holders,
			  pdn_consumer_may_retire_function *may_retire)
{
	struct pdn_client *consumer;

	pdn_lock();
	consumer = pdn_client(PDN_CONSUMER, id);
	if (consumer) {
		consumer->holders = holders;
		consumer->may_retire = may_retire;
	}
	pdn_unlock();
}

void pdn_consumer_trace(enum pdn_event event, const struct pindown_region *region,
			struct pdn_trace_note *what, uint64_t begin)
{
	uint64_t end;

	/* A callback may have forked, and this be the child. */
	if (!pdn_tracing(event) || pdn_process_is_off())
		return;
	if (!what->size) {
		what->addr = region->base;
		what->size = region->end - region->base;
	}
	what->pin_size = pdn_region_pin_length(region);
	what->buffer_id = region->buffer_id;
	what->region = pdn_region_number(region);
	what->device = region->device;
	end = pdn_ticks();
	pdn_trace_note(event, what, begin ? begin : end, end);
}

static struct pdn_trace_note note_of(const struct pdn_client *consumer, uint32_t number,
				     const struct pindown_key *key)
{
	return (struct pdn_trace_note){
		.name = consumer->name,
		.number = number,
		.extra = key->owner,
		.key = key->word[0],
	};
}

/* The calls are alone in their functions, for what a longjmp might change. */
static int call_create(struct pdn_client *consumer, const struct pindown_object_request *what,
		       void **data, bool *asked_dmabuf)
{
	struct pdn_call call = {.client = consumer, .callback = "create", .made_on = what->region};
	int result = 0;

	PDN_CALL(&call, result = consumer->ops.create(what, data, consumer->ops.arg));
	*asked_dmabuf = call.asked_dmabuf;
	return result;
}

int pdn_consumer_create(struct pdn_client *consumer, uint32_t number,
			const struct pindown_object_request *what, void **data, bool *asked_dmabuf)
{
	struct pdn_trace_note note = note_of(consumer, number, &what->key);
	const uint64_t begin = pdn_tracing(PDN_EV_REGISTER) ? pdn_ticks() : 0;

	note.result = call_create(consumer, what, data, asked_dmabuf);
	pdn_consumer_trace(PDN_EV_REGISTER, what->region, &note, begin);
	return note.result;
}

static int call_destroy(struct pdn_client *consumer, const struct pindown_object_end *what)
{
	struct pdn_call call = {.client = consumer, .callback = "destroy"};
	int result = 0;

	PDN_CALL(&call, result = consumer->ops.destroy(what, consumer->ops.arg));
	return result;
}

void pdn_consumer_destroy(struct pdn_client *consumer, uint32_t number,
			  const struct pindown_object_end *what)
{
	struct pdn_trace_note note = note_of(consumer, number, &what->key);
	const uint64_t begin = pdn_tracing(PDN_EV_DEREGISTER) ? pdn_ticks() : 0;

	note.reason = (uint16_t)what->reason;
	note.flags = what->in_use ? PDN_TRACE_IN_USE : 0;
	note.result = call_destroy(consumer, what);
	pdn_consumer_trace(PDN_EV_DEREGISTER, what->region, &note, begin);
}

void pdn_consumer_name_holders(struct pdn_client *consumer, const struct pdn_holder_search *search)
{
	struct pdn_call call = {.client = consumer, .callback = "holders"};

	PDN_CALL(&call, consumer->holders(search));
}
