/* SPDX-License-Identifier: MIT */
/* Consumers: their rules, and the calls of their functions. */
#ifndef PDN_CONSUMER_H
#define PDN_CONSUMER_H

#include <stdint.h>

#include "cache/hook_events.h"
#include "cache/objects/client.h"
#include "cache/pindown.h"
#include "cache/trace/writer/events.h"

/*
 * Which objects of a consumer serve besides that of exactly the key. Relaxed and without the lock:
 * after the consumer's end no object of its id is live, so another one's rules find none.
 */
struct pdn_rules {
	uint64_t rights, flags;
};
/* By place in the table of clients: a caller may give the id of a subscriber. */
extern struct pdn_rules pdn_rules[PDN_CLIENTS];

/* Lock not held, for these. The object's number is for the trace. */
int pdn_consumer_create(struct pdn_client *consumer, uint32_t number,
			const struct pindown_object_request *what, void **data, bool *asked_dmabuf);
void pdn_consumer_destroy(struct pdn_client *consumer, uint32_t number,
			  const struct pindown_object_end *what);
/* A holder may let go of its object meanwhile: a callback may read the data all the same. */
void pdn_consumer_name_holders(struct pdn_client *consumer, const struct pdn_holder_search *search);

/*
 * Lock not held; the region is held, or belongs to the calling thread. Writes an event about an
 * object, or about objects, and completes it by what it says of regions. begin: ticks; 0: it took
 * no time.
 */
void pdn_consumer_trace(enum pdn_event event, const struct pindown_region *region,
			struct pdn_trace_note *what, uint64_t begin);

#endif
