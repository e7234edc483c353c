/* SPDX-License-Identifier: MIT */
/*
 * What hook/cuda/memory/contexts.c predicts of a primary context: which release is the last one.
 * The source is included, and the cache and the driver are this file. Each function must take the
 * lock of the counts, and let go of it.
 */
#define pdn_lock_one	fake_lock_one
#define pdn_unlock_one	fake_unlock_one
#define pdn_end_context fake_end_context
#define pdn_end_device	fake_end_device
#define pdn_ended	fake_ended
#define pdn_recheck	fake_recheck
#include "hook/hook.h"

#undef PDN_DRIVER
#define PDN_DRIVER(name) fake_state
static CUresult fake_state(CUdevice device, unsigned *flags, int *active);
#include "hook/cuda/memory/contexts.c"

#include "tests/unit/hook/checked.h"

#define CONTEXT ((void *)0x1000)

static bool is_locked, is_active_there;
static unsigned rechecks, locks, guards_up;

void fake_lock_one(enum pdn_lock_name name)
{
	check(name == PDN_LOCK_CONTEXTS && !is_locked, "the lock is taken by who has not got it");
	is_locked = true;
	locks++;
}

void fake_unlock_one(enum pdn_lock_name name)
{
	check(name == PDN_LOCK_CONTEXTS && is_locked, "the lock is let go by who has it");
	is_locked = false;
}

pdn_guard fake_end_context(void *context)
{
	check(context == CONTEXT && !is_locked, "no call out of here under the lock");
	guards_up++;
	return 0;
}

pdn_guard fake_end_device(int device)
{
	(void)device;
	guards_up++;
	return 0;
}

void fake_ended(pdn_guard guard)
{
	(void)guard;
	guards_up--;
}

void fake_recheck(void *pool)
{
	(void)pool;
	check(!is_locked, "no recheck under the lock");
	rechecks++;
}

static CUresult fake_state(CUdevice device, unsigned *flags, int *active)
{
	(void)device;
	check(!is_locked, "the driver is not asked under the lock");
	*flags = 0;
	*active = is_active_there;
	return CUDA_SUCCESS;
}

/* Returns whether the release was taken for the last one. */
static bool release(CUresult result, bool is_active_afterwards)
{
	struct call call = {.result = result};

	pdn_primary_release(&call, 0);
	is_active_there = is_active_afterwards;
	pdn_primary_released(&call, 0);
	check(call.guards == (call.last ? 1 : 0), "the last release ends the context");
	pdn_caught_done(&call);
	return call.last;
}

static void reset(void)
{
	struct call call = {.result = CUDA_SUCCESS};

	pdn_primary_reset(&call, 0);
	is_active_there = false;
	pdn_primary_did_reset(0);
	pdn_caught_done(&call);
}

static unsigned guards_in_release;

static int release_in_driver(int device)
{
	(void)device;
	guards_in_release = guards_up;
	return CUDA_SUCCESS;
}

/* pindown's own: whether the context ends, in front of the driver's call. */
static bool release_own_hold(bool is_active_afterwards)
{
	is_active_there = is_active_afterwards;
	pdn_contexts_count.release(0, release_in_driver);
	check(!guards_up, "the guard goes down again");
	return guards_in_release;
}

static void own_holds(void)
{
	check(!pdn_contexts_count.is_held(0), "nobody holds it");
	pdn_primary_retained(CONTEXT, 0);
	check(pdn_contexts_count.is_held(0), "the program holds it");
	pdn_contexts_count.retained(CONTEXT, 0);
	check(!release_own_hold(true), "pindown's release is not the last");
	pdn_contexts_count.retained(CONTEXT, 0);
	check(!release(CUDA_SUCCESS, true), "the program's is not while pindown holds it");
	check(release_own_hold(false), "then pindown's is, and ends the context");
	check(!pdn_contexts_count.is_held(0), "nobody holds it any more");
	check(!pdn_contexts_count.is_held(-1), "a device that is not counted");
	pdn_primary_release(&(struct call){0}, 0);
	is_active_there = true;
	pdn_primary_released(&(struct call){.result = CUDA_SUCCESS}, 0);
	pdn_primary_retained(CONTEXT, 0);
	check(!pdn_contexts_count.is_held(0), "it is held by calls that were not seen, too");
	guards_up = 0;
	check(release(CUDA_SUCCESS, false), "so each release may be the last one");
}

int main(void)
{
	own_holds();
	pdn_primary_retained(CONTEXT, 0);
	pdn_primary_retained(CONTEXT, 0);
	check(!release(CUDA_SUCCESS, true), "the first of two releases is not the last");
	check(release(CUDA_SUCCESS, false), "the second one is");
	pdn_primary_retained(CONTEXT, 0);
	pdn_primary_retained(CONTEXT, 0);
	check(!release(CUDA_ERROR_INVALID_CONTEXT, true), "a release that fails");
	check(!release(CUDA_SUCCESS, true), "does not count");
	check(release(CUDA_SUCCESS, false), "so the second after it is the last");
	check(!rechecks, "what ends as predicted is not rechecked");
	pdn_primary_retained(CONTEXT, 0);
	pdn_primary_retained(CONTEXT, 0);
	check(!release(CUDA_SUCCESS, false), "a context that ends too early");
	check(rechecks == 1, "is rechecked");
	pdn_primary_retained(CONTEXT, 0);
	check(release(CUDA_SUCCESS, false), "and counted from the beginning");
	pdn_primary_retained(CONTEXT, 0);
	reset();
	check(rechecks == 1, "a reset ends it as predicted");
	check(!is_locked && locks > 10, "the lock was used, and nobody has it in the end");
	return checked_end();
}
