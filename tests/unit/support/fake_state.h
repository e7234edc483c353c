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
};

/* Guards all that is below; never held while a test's own function runs. */
extern pthread_mutex_t fake_lock;

extern struct memory fake_memory[];
extern unsigned fake_memories;
extern uint64_t fake_last_id;

/* The script. */
extern uint64_t fake_space;
extern unsigned fake_swaps;
extern bool fake_dmabuf_missing;

/*
 * What this thread asked about last. A range rounded out to whole pages may hold several small
 * allocations: this tells which of them an export is for.
 */
extern __thread uint64_t fake_asked_last;
extern __thread void *fake_current_context;

/* What each call begins with: anything but success is the call's result. And what it ends with. */
int fake_entered(enum fake_call call);
int fake_leaving(enum fake_call call, int result);

/* With the lock. What lives at addr, or NULL. */
struct memory *fake_find(uint64_t addr);

/* With the lock. */
int fake_make_export(int *handle, uint64_t base, uint64_t size);

#endif
