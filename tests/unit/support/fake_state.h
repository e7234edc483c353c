/* SPDX-License-Identifier: MIT */
/* What the scripted driver's files share: its memory, its exports, and the script. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/unit/support/fake_driver.h"

struct memory {
	uint64_t base, size, id;
	enum fake_kind kind;
	void *context, *pool;
	int device;
	bool alive;
	const void *ending; /* inside a free: of this thread */
};

/* A question that is under way, on the stack of its thread. */
struct fake_question {
	uint64_t begin, end;
	const void *thread;
	struct fake_question *next;
};

/* Guards all that follows. Never held while a test's own function runs. */
extern pthread_mutex_t fake_lock;

extern struct memory fake_memory[];
extern unsigned fake_memories;
extern uint64_t fake_last_id;

/* The script. */
extern uint64_t fake_space;
extern unsigned fake_swaps;
extern bool fake_dmabuf_missing;

/*
 * What this thread last asked about. A range rounded out to whole pages may hold several small
 * allocations: this tells which of them an export is for.
 */
extern __thread uint64_t fake_asked_last;
extern __thread void *fake_current_context;

/*
 * Each call begins with fake_entered(): a result other than success is the call's result. It ends
 * with fake_leaving().
 */
int fake_entered(enum fake_call call);
int fake_leaving(enum fake_call call, int result);

/*
 * The same for a call about memory. The real driver may crash where it is asked about memory that
 * it frees in another thread: this one aborts.
 */
int fake_asks(enum fake_call call, struct fake_question *question, uint64_t addr, uint64_t length);
int fake_answers(enum fake_call call, struct fake_question *question, int result);

/* Call it with the lock held. The memory that is alive at addr, or NULL. */
struct memory *fake_find(uint64_t addr);

/* Call it with the lock held. */
int fake_make_export(int *handle, uint64_t base, uint64_t size);

#endif
