/* SPDX-License-Identifier: MIT */
/*
 * Calls about memory that meet its end in another thread. The real driver may crash there: nobody
 * may ask about memory, or export it, while it is inside a free. This driver aborts, and shows both
 * stacks; with SIM_OVERLAPS=allowed it answers.
 */
#ifndef SIM_OVERLAP_H
#define SIM_OVERLAP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core.h"

/* What a call that is under way touches. It lies on the stack of its thread. */
struct sim_touch {
	const char *name;
	bool ends; /* the memory, or else asks about it */
	uint64_t begin, end;
	const void *context; /* that all ends of; or the owner of what is asked about */
	pthread_t thread;
	bool is_over; /* the memory has ended: the address may be another allocation's by now */
	bool is_met;  /* by another one, which aborts when this thread has shown its stack */
	struct sim_touch *next;
};

/* The arguments for SIM_TOUCHING. */
#define SIM_ASKS(ptr, length)                                               \
	{                                                                   \
		.begin = (uint64_t)(ptr), .end = (uint64_t)(ptr) + (length) \
	}
#define SIM_ENDS(ptr, length)                                                 \
	{                                                                     \
		.ends = true, .begin = ptr, .end = (uint64_t)(ptr) + (length) \
	}
#define SIM_ENDS_ALL_OF(context_)                 \
	{                                         \
		.ends = true, .context = context_ \
	}

/*
 * Without the API lock; the driver's calls of its own exports are not looked at. A length of 0: the
 * allocation that holds the address.
 */
void sim_touch_begin(struct sim_touch *touch, const char *name);
void sim_touch_end(struct sim_touch *touch);
/* A child of fork: the other threads are gone. */
void sim_touches_fork_child(void);

/* As SIM_ENTRY. */
#define SIM_TOUCHING(name_, need_, params, args, ...)                             \
	SIM_DECLARE(name_, need_, params);                                        \
	static CUresult entry_##name_ params                                      \
	{                                                                         \
		struct sim_touch touch = __VA_ARGS__;                             \
		CUresult result;                                                  \
                                                                                  \
		sim_touch_begin(&touch, #name_);                                  \
		if (sim_begin(&site_##name_, need_, &result)) {                   \
			result = body_##name_ args;                               \
			__atomic_store_n(&touch.is_over, true, __ATOMIC_RELEASE); \
			result = sim_end(&site_##name_, result);                  \
		}                                                                 \
		sim_touch_end(&touch);                                            \
		return result;                                                    \
	}                                                                         \
	static CUresult body_##name_ params

#endif
