/* SPDX-License-Identifier: MIT */
/*
 * Clients are subscribers and consumers: the cache calls their functions. A client has a place
 * in one table, which counts its callbacks that run, so that removing it can wait for the last of
 * them. All callbacks are called here, without the lock.
 */
#ifndef PDN_CLIENT_H
#define PDN_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/hook_events.h"
#include "cache/pindown.h"

/* Their places: the consumers' first. */
#define PDN_CONSUMERS	32
#define PDN_SUBSCRIBERS 64
#define PDN_CLIENTS	(PDN_CONSUMERS + PDN_SUBSCRIBERS)

#define PDN_CONSUMER_NAME 16

enum pdn_client_kind { PDN_CONSUMER, PDN_SUBSCRIBER };

struct pdn_client {
	uint32_t running; /* callbacks */
	uint32_t turn;	  /* how often the place has been given away: part of the id */
	bool leaving;

	/* A subscriber's. */
	pindown_callback notify;
	void *arg;

	/* A consumer's. */
	/* Has it objects that are yet to be destroyed? Set with `leaving`; NULL: it has none. */
	bool (*has_objects)(uint32_t consumer);
	struct pindown_consumer ops;
	struct pindown_consumer_stats stats; /* only what is counted; under the lock */
	char name[PDN_CONSUMER_NAME];
	/* Names the program's registrations; NULL: it can't. Set once (pdn_consumer_holders()). */
	pdn_consumer_holders_function *holders;
	pdn_consumer_may_retire_function *may_retire;
};

/* ---- lock held ------------------------------------------------------------------------------ */

/* A copy of it gets a place. Returns its id, or PINDOWN_ERR_NO_MEMORY. */
int pdn_client_add(enum pdn_client_kind kind, const struct pdn_client *client);

/*
 * The one with this id, also while it is being removed; NULL: there is none. Also without the lock,
 * for a consumer that has an object which this thread makes or ends.
 */
struct pdn_client *pdn_client(enum pdn_client_kind kind, int64_t id);

static inline struct pdn_client *pdn_consumer(uint32_t id)
{
	return pdn_client(PDN_CONSUMER, id);
}

/* A consumer's place in the table, from its id. */
static inline unsigned pdn_consumer_place(uint32_t id)
{
	return (id - 1) % PDN_CLIENTS;
}

/*
 * A callback has ended, or an object: a client that is being removed goes with the last of both, as
 * a thread that ends an object calls this.
 */
void pdn_client_may_go(struct pdn_client *client);
void pdn_client_leave(struct pdn_client *client); /* one less is running */

/* How many of its running callbacks this thread is in. */
uint32_t pdn_client_runs_here(const struct pdn_client *client);

/*
 * Wait until something has changed. false: it has taken long, and another thread may be waiting for
 * this one. `deadline` begins as pdn_race_deadline().
 */
bool pdn_client_wait(uint64_t *deadline);

/* ---- lock not held -------------------------------------------------------------------------- */

/* A callback that this thread is in: removing its client from there must not wait for it. */
struct pdn_call {
	struct pdn_client *client;
	const char *callback;
	const struct pindown_region *made_on; /* create: the region */
	bool asked_dmabuf;		      /* create: it has asked for the region's */
	uintptr_t thread;
	struct pdn_call *outer;
};

/* Run a statement that calls a client's function; not that of a subscriber which is leaving. */
#define PDN_CALL(call, statement)                                                 \
	do {                                                                      \
		if (pdn_call_begin(call)) {                                       \
			PDN_WITH_CLEANUP(pdn_call_quits_thread, call, statement); \
			pdn_call_end(call);                                       \
		}                                                                 \
	} while (0)
bool pdn_call_begin(struct pdn_call *call);
void pdn_call_end(struct pdn_call *call);
void pdn_call_quits_thread(void *call);

bool pdn_runs_callback(void); /* this thread is in a callback */

/* Can another thread be waiting for this one? If it is in a callback, or frees memory. */
bool pdn_may_be_awaited(void);

/*
 * The flag that says whether the create callback that this thread is running on a region has asked
 * for its dma-buf; NULL: this thread runs none there.
 */
bool *pdn_consumer_asked_dmabuf(const struct pindown_region *region);

/* Notify all subscribers that a region has ended. */
void pdn_tell_subscribers(const struct pindown_region *region, bool in_use);

void pdn_clients_fork_child(void);

#endif
