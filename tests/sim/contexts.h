/* SPDX-License-Identifier: MIT */
/*
 * Contexts, and the current one of each thread. All functions but the inline ones need the API
 * lock.
 */
#ifndef SIM_CONTEXTS_H
#define SIM_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "memory.h"

struct sim_stream;
struct sim_green;

struct sim_context {
	bool alive; /* read without the lock by threads to whom it is current */
	bool primary;
	int device;
	unsigned retained; /* primary: number of users; others: count of cuCtxAttach */
	unsigned flags;
	unsigned api_version;
	uint64_t id;
	struct sim_heap heap;
	struct sim_alloc *allocs; /* they end with the context */
	struct sim_stream *legacy;
	struct sim_green *green;
	struct sim_context *next_ended;
};

#define SIM_CONTEXT_STACK 16

struct sim_thread {
	unsigned depth;
	struct sim_context *stack[SIM_CONTEXT_STACK];
};
extern __thread struct sim_thread sim_thread;

static inline struct sim_context *sim_current(void)
{
	return sim_thread.depth ? sim_thread.stack[sim_thread.depth - 1] : 0;
}

static inline CUresult sim_current_context_state(void)
{
	struct sim_context *context = sim_current();

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!__atomic_load_n(&context->alive, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return CUDA_SUCCESS;
}

/* The context that owns memory allocated now: a green context owns none itself. */
struct sim_context *sim_owner(void);
/* NULL: not the handle of a live context. */
struct sim_context *sim_context_of(CUcontext handle);
CUresult sim_context_new(int device, unsigned flags, unsigned api_version,
			 struct sim_context **context);
void sim_context_push(struct sim_context *context);
void sim_context_pop(void);
/* Ends everything that lives in it. */
void sim_context_end(struct sim_context *context);
/* Ends the context and its handle. */
void sim_context_destroy(struct sim_context *context);
/* The primary context of the device, active or not. */
struct sim_context *sim_primary(int device);

static inline bool sim_device_known(CUdevice device)
{
	extern bool sim_device_in_range(CUdevice);

	return sim_device_in_range(device);
}

bool sim_primary_retain(int device);
CUresult sim_primary_release(CUdevice device);

/* Parts of a context's end in other files. */
void sim_streams_context_ended(struct sim_context *context);
void sim_modules_context_ended(struct sim_context *context);
void sim_arrays_context_ended(struct sim_context *context);

/* Frees one allocation of any kind. */
void sim_free_alloc(struct sim_alloc *alloc);

#endif
