/* SPDX-License-Identifier: MIT */
/*
 * Predicts which call ends a context: a destroy or the last detach, and for a primary context the
 * last release or a reset. Memory that ends must be unpinned before the call, so which release is
 * the last one is predicted from counts kept here. Where a count can't be trusted, each release is
 * taken for the last one. After the call the driver is asked.
 */
#include <errno.h>

#include "hook/hook.h"
#include "cache/base/thread/lock.h"
#include "hook/cuda/memory/records.h"

#define DEVICES 64

/* Usage counts of the contexts that the program has created. */
static struct pdn_key_counts usage;

struct green {
	void *green;
	int64_t device;
};
static PDN_TABLE(struct green) greens;

struct green_context {
	void *green, *context;
};
static PDN_TABLE(struct green_context) green_contexts;

/* Under PDN_LOCK_CONTEXTS. */
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

void pdn_context_created(void *context)
{
	pdn_count_set(&usage, key_of(context), 1);
}

void pdn_context_attached(void *context)
{
	pdn_count_change(&usage, key_of(context), 1);
}

void pdn_context_destroyed(void *context)
{
	pdn_count_remove(&usage, key_of(context));
}

void pdn_context_detach(struct call *call, void *context)
{
	call->last = pdn_count_change(&usage, key_of(context), -1) <= 0;
	if (call->last)
		pdn_caught_context(call, context);
}

void pdn_context_detached(const struct call *call, void *context)
{
	if (!pdn_succeeded(call))
		pdn_count_change(&usage, key_of(context), 1);
	else if (call->last)
		pdn_count_end(&usage, key_of(context));
}

/* ---- primary contexts --------------------------------------------------------------------- */

static bool counted(CUdevice device)
{
	return device >= 0 && device < DEVICES;
}

/* 1, 0, or -1 if the driver does not say. */
static int is_active(CUdevice device)
{
	typeof(cuDevicePrimaryCtxGetState) *ask = PDN_DRIVER(cuDevicePrimaryCtxGetState);
	unsigned flags;
	int active = 0, error = errno;
	bool told = ask && ask(device, &flags, &active) == CUDA_SUCCESS;

	errno = error;
	return told ? active != 0 : -1;
}

void pdn_primary_retained(void *context, CUdevice device)
{
	if (!counted(device))
		return;
	pdn_lock_one(PDN_LOCK_CONTEXTS);
	primary[device].retained++;
	primary[device].active = true;
	if (context)
		primary[device].context = context;
	pdn_unlock_one(PDN_LOCK_CONTEXTS);
}

static void end_primary(struct call *call, CUdevice device)
{
	void *context = NULL;

	if (counted(device)) {
		pdn_lock_one(PDN_LOCK_CONTEXTS);
		context = primary[device].context;
		pdn_unlock_one(PDN_LOCK_CONTEXTS);
	}
	if (context)
		pdn_caught_context(call, context);
	else
		pdn_caught_guard(call, pdn_end_device(device));
}

/*
 * Counts the release before the call: of two threads that release at the same time, one must see
 * that it is the last.
 */
void pdn_primary_release(struct call *call, CUdevice device)
{
	call->last = true;
	if (counted(device)) {
		pdn_lock_one(PDN_LOCK_CONTEXTS);
		if (--primary[device].retained > 0 && !primary[device].unsure)
			call->last = false;
		pdn_unlock_one(PDN_LOCK_CONTEXTS);
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
	pdn_lock_one(PDN_LOCK_CONTEXTS);
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
	pdn_unlock_one(PDN_LOCK_CONTEXTS);
	if (recheck)
		pdn_recheck(NULL);
}

void pdn_primary_released(const struct call *call, CUdevice device)
{
	if (!counted(device))
		return;
	if (pdn_succeeded(call)) {
		compare_with_driver(device, call->last);
		return;
	}
	pdn_lock_one(PDN_LOCK_CONTEXTS);
	primary[device].retained++;
	pdn_unlock_one(PDN_LOCK_CONTEXTS);
}

void pdn_primary_reset(struct call *call, CUdevice device)
{
	end_primary(call, device);
}

void pdn_primary_did_reset(CUdevice device)
{
	if (counted(device))
		compare_with_driver(device, true);
}

/* ---- pindown's own holds of a primary context --------------------------------------------- */

/* Where there are holds that were not seen, a count does not say which release is the last. */
static bool is_held(int device)
{
	bool held;

	if (!counted(device))
		return false;
	pdn_lock_one(PDN_LOCK_CONTEXTS);
	held = primary[device].retained > 0 && !primary[device].unsure;
	pdn_unlock_one(PDN_LOCK_CONTEXTS);
	return held;
}

/* As a wrapper does it for the program. */
static void release_own(int device, int (*real)(int device))
{
	struct call call = {.guards = 0};

	pdn_primary_release(&call, device);
	call.result = (CUresult)real(device);
	pdn_primary_released(&call, device);
	pdn_caught_done(&call);
}

const struct pdn_primary_counts pdn_contexts_count = {
	.is_held = is_held, .retained = pdn_primary_retained, .release = release_own};

/* ---- green contexts: each retains its device's primary context ---------------------------- */

void pdn_green_created(void *green, CUdevice device)
{
	pdn_record_replace(&greens, (&(struct green){.green = green, .device = device}));
	pdn_primary_retained(NULL, device);
}

void pdn_green_context(void *context, void *green)
{
	pdn_record_add(&green_contexts,
		       (&(struct green_context){.green = green, .context = context}));
}

static CUdevice device_of(void *green)
{
	struct green found;

	if (!pdn_record_get(&greens, key_of(green), 0, &found, 1))
		return CU_DEVICE_INVALID;
	return (CUdevice)found.device;
}

void pdn_green_destroy(struct call *call, void *green)
{
	CUdevice device = device_of(green);
	struct green_context made[4];
	unsigned count = pdn_record_get(&green_contexts, key_of(green), 0, made, 4);

	for (unsigned i = 0; i < count; i++)
		pdn_caught_context(call, made[i].context);
	if (counted(device))
		pdn_primary_release(call, device);
}

void pdn_green_destroyed(const struct call *call, void *green)
{
	CUdevice device = device_of(green);

	if (counted(device))
		pdn_primary_released(call, device);
	if (!pdn_succeeded(call))
		return;
	if (!counted(device))
		pdn_recheck(NULL);
	pdn_record_remove(&greens, key_of(green));
	pdn_record_remove(&green_contexts, key_of(green));
}
