/* SPDX-License-Identifier: MIT */
/*
 * Predicts which call ends a context: a destroy or the last detach, and for a primary context the
 * last release or a reset. Memory that ends must be unpinned before the call, so which release is
 * the last one is predicted from counts kept here. Where a count can't be trusted, each release is
 * taken for the last one. After the call the driver is asked.
 */
#include <errno.h>

#include "hook/hook.h"
#include "cache/base/lock.h"
#include "hook/cuda/records.h"

#define DEVICES 64

/* Usage counts of the contexts that the program has created. */
static struct pd_counts usage;

struct green {
	void *green;
	int64_t device;
};
static PD_TABLE(struct green) greens;

struct green_context {
	void *green, *context;
};
static PD_TABLE(struct green_context) green_contexts;

/* Under PD_LOCK_CONTEXTS. */
static struct {
	int retained;  /* how often, by the calls that were seen; a reset does not change it */
	bool active;   /* retained, and not reset since */
	bool unsure;   /* it was also retained by calls that were not seen */
	void *context; /* its handle, NULL until it is known */
} primary[DEVICES];

/* ---- contexts that the program creates --------------------------------------------------- */

static uint64_t key_of(const void *handle)
{
	return (uintptr_t)handle;
}

void pd_context_created(void *context)
{
	pd_count_set(&usage, key_of(context), 1);
}

void pd_context_attached(void *context)
{
	pd_count_change(&usage, key_of(context), 1);
}

void pd_context_destroyed(void *context)
{
	pd_count_remove(&usage, key_of(context));
}

void pd_context_detach(struct call *call, void *context)
{
	call->last = pd_count_change(&usage, key_of(context), -1) <= 0;
	if (call->last)
		pd_caught_context(call, context);
}

void pd_context_detached(const struct call *call, void *context)
{
	if (!pd_succeeded(call))
		pd_count_change(&usage, key_of(context), 1);
	else if (call->last)
		pd_count_end(&usage, key_of(context));
}

/* ---- primary contexts --------------------------------------------------------------------- */

static bool counted(CUdevice device)
{
	return device >= 0 && device < DEVICES;
}

/* 1, 0, or -1 if the driver does not say. */
static int is_active(CUdevice device)
{
	typeof(cuDevicePrimaryCtxGetState) *ask = PD_DRIVER(cuDevicePrimaryCtxGetState);
	unsigned flags;
	int active = 0, error = errno;
	bool told = ask && ask(device, &flags, &active) == CUDA_SUCCESS;

	errno = error;
	return told ? active != 0 : -1;
}

void pd_primary_retained(void *context, CUdevice device)
{
	if (!counted(device))
		return;
	pd_take(PD_LOCK_CONTEXTS);
	primary[device].retained++;
	primary[device].active = true;
	if (context)
		primary[device].context = context;
	pd_let_go(PD_LOCK_CONTEXTS);
}

static void end_primary(struct call *call, CUdevice device)
{
	void *context = NULL;

	if (counted(device)) {
		pd_take(PD_LOCK_CONTEXTS);
		context = primary[device].context;
		pd_let_go(PD_LOCK_CONTEXTS);
	}
	if (context)
		pd_caught_context(call, context);
	else
		pd_caught_guard(call, pd_end_device(device));
}

/*
 * Counts the release before the call: of two threads that release at the same time, one must see
 * that it is the last.
 */
void pd_primary_release(struct call *call, CUdevice device)
{
	call->last = true;
	if (counted(device)) {
		pd_take(PD_LOCK_CONTEXTS);
		if (--primary[device].retained > 0 && !primary[device].unsure)
			call->last = false;
		pd_let_go(PD_LOCK_CONTEXTS);
	}
	if (call->last)
		end_primary(call, device);
}

/*
 * After a release or reset: corrects the count by what the driver says. If the context has ended
 * unexpectedly, regions are rechecked. Another thread may have retained the context meanwhile.
 */
static void compare_with_driver(CUdevice device, bool expected_end)
{
	int active = is_active(device);
	bool recheck = false;

	if (active < 0)
		return;
	pd_take(PD_LOCK_CONTEXTS);
	if (!active) {
		recheck = primary[device].active && !expected_end;
		if (recheck)
			primary[device].retained = 0;
	} else if (primary[device].retained <= 0) {
		primary[device].unsure = true;
	}
	primary[device].active = active;
	if (primary[device].retained < 0)
		primary[device].retained = 0;
	if (!active && !primary[device].retained)
		primary[device].unsure = false;
	pd_let_go(PD_LOCK_CONTEXTS);
	if (recheck)
		pd_recheck(NULL);
}

void pd_primary_released(const struct call *call, CUdevice device)
{
	if (!counted(device))
		return;
	if (pd_succeeded(call)) {
		compare_with_driver(device, call->last);
		return;
	}
	pd_take(PD_LOCK_CONTEXTS);
	primary[device].retained++;
	pd_let_go(PD_LOCK_CONTEXTS);
}

void pd_primary_reset(struct call *call, CUdevice device)
{
	end_primary(call, device);
}

void pd_primary_did_reset(CUdevice device)
{
	if (counted(device))
		compare_with_driver(device, true);
}

/* ---- green contexts: each retains its device's primary context ---------------------------- */

void pd_green_created(void *green, CUdevice device)
{
	pd_record_replace(&greens, (&(struct green){.green = green, .device = device}));
	pd_primary_retained(NULL, device);
}

void pd_green_context(void *context, void *green)
{
	pd_record_add(&green_contexts,
		      (&(struct green_context){.green = green, .context = context}));
}

static CUdevice device_of(void *green)
{
	struct green found;

	if (!pd_record_get(&greens, key_of(green), 0, &found, 1))
		return CU_DEVICE_INVALID;
	return (CUdevice)found.device;
}

void pd_green_destroy(struct call *call, void *green)
{
	CUdevice device = device_of(green);
	struct green_context made[4];
	unsigned count = pd_record_get(&green_contexts, key_of(green), 0, made, 4);

	for (unsigned i = 0; i < count; i++)
		pd_caught_context(call, made[i].context);
	if (counted(device))
		pd_primary_release(call, device);
}

void pd_green_destroyed(const struct call *call, void *green)
{
	CUdevice device = device_of(green);

	if (counted(device))
		pd_primary_released(call, device);
	if (!pd_succeeded(call))
		return;
	if (!counted(device))
		pd_recheck(NULL);
	pd_record_remove(&greens, key_of(green));
	pd_record_remove(&green_contexts, key_of(green));
}
