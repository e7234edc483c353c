/* SPDX-License-Identifier: MIT */
/* Contexts: created, current, ended. */
#include <dlfcn.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "contexts.h"
#include "core.h"
#include "overlap.h"
#include "handles.h"
#include "sim.h"

__thread struct sim_thread sim_thread;
static struct sim_context *primaries[16];
static struct sim_context *ended;
static uint64_t last_context_id;

struct sim_context *sim_context_of(CUcontext handle)
{
	return sim_handle(handle, SIM_CONTEXT);
}

static struct sim_context *new_context(int device, unsigned flags, unsigned api_version)
{
	struct sim_context *context = sim_handle_new(SIM_CONTEXT, sizeof(*context));

	if (!context)
		return NULL;
	context->device = device;
	context->flags = flags;
	context->api_version = api_version;
	context->id = ++last_context_id;
	context->heap.device = device;
	return context;
}

struct sim_context *sim_primary(int device)
{
	if (!primaries[device])
		primaries[device] = new_context(device, 0, 0);
	if (primaries[device])
		primaries[device]->primary = true;
	return primaries[device];
}

struct sim_context *sim_owner(void)
{
	struct sim_context *context = sim_current();

	return context->green ? sim_primary(context->device) : context;
}

static void set_alive(struct sim_context *context, bool alive)
{
	__atomic_store_n(&context->alive, alive, __ATOMIC_RELEASE);
}

CUresult sim_context_new(int device, unsigned flags, unsigned api_version,
			 struct sim_context **context)
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (flags & ~0x1ffu)
		return CUDA_ERROR_INVALID_VALUE;
	*context = new_context(device, flags, api_version);
	if (!*context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*context)->retained = 1;
	(*context)->heap.home = sim_addresses_take_home();
	set_alive(*context, true);
	return CUDA_SUCCESS;
}

void sim_context_push(struct sim_context *context)
{
	if (sim_thread.depth == SIM_CONTEXT_STACK) { /* the oldest is forgotten */
		unsigned i;

		for (i = 1; i < SIM_CONTEXT_STACK; i++)
			sim_thread.stack[i - 1] = sim_thread.stack[i];
		sim_thread.depth--;
	}
	sim_thread.stack[sim_thread.depth++] = context;
}

void sim_context_pop(void)
{
	sim_thread.depth--;
}

/* ---- the end of a context ------------------------------------------------------------------- */

typedef CUresult (*free_function)(CUdeviceptr);

/*
 * Real drivers look some of their own exports up by name, and call them. A library that watches
 * these calls must let them pass, so the simulated driver does the same.
 */
static free_function own_free(void **handle)
{
	Dl_info info;

	*handle = NULL;
	if (!dladdr((void *)&last_context_id, &info))
		return cuMemFree_v2;
	*handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!*handle)
		return cuMemFree_v2;
	return (free_function)dlsym(*handle, "cuMemFree_v2");
}

static void free_linear_memory(struct sim_context *context)
{
	struct sim_alloc *alloc = context->allocs, *next;
	free_function found = NULL;
	void *handle = NULL;
	bool by_name = true;

	sim_context_push(context);
	for (; alloc; alloc = next) {
		next = alloc->next;
		if (alloc->kind != SIM_LINEAR)
			continue;
		if (!found)
			found = own_free(&handle);
		/* Alternates between the look-up and the linkage table. */
		if (by_name)
			found(alloc->addr);
		else
			cuMemFree_v2(alloc->addr);
		by_name = !by_name;
	}
	sim_context_pop();
	if (handle)
		dlclose(handle);
}

void sim_context_end(struct sim_context *context)
{
	free_linear_memory(context);
	sim_modules_context_ended(context);
	sim_arrays_context_ended(context);
	while (context->allocs)
		sim_free_alloc(context->allocs);
	sim_streams_context_ended(context);
	if (context->heap.home)
		sim_addresses_drop(context->heap.home, SIM_PAGE);
	context->heap.home = 0;
	set_alive(context, false);
}

static void drop_from_this_thread(struct sim_context *context)
{
	if (sim_current() == context)
		sim_context_pop();
}

void sim_context_destroy(struct sim_context *context)
{
	sim_context_end(context);
	drop_from_this_thread(context);
	sim_handle_end(context);
	context->next_ended = ended; /* not freed: it may be current to other threads */
	ended = context;
}

/* ---- explicit contexts ---------------------------------------------------------------------- */

static CUresult create(CUcontext *handle, unsigned flags, CUdevice device, unsigned api_version)
{
	struct sim_context *context;
	CUresult result;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	sim_checkpoint_use_files();
	result = sim_context_new(device, flags, api_version, &context);
	if (result != CUDA_SUCCESS)
		return result;
	sim_context_push(context);
	*handle = (CUcontext)context;
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxCreate, (CUcontext * handle, unsigned int flags, CUdevice device),
	 (handle, flags, device))
{
	return create(handle, flags, device, 3010);
}

SIM_CALL(cuCtxCreate_v2, (CUcontext * handle, unsigned int flags, CUdevice device),
	 (handle, flags, device))
{
	return create(handle, flags, device, 3020);
}

SIM_CALL(cuCtxCreate_v3,
	 (CUcontext * handle, CUexecAffinityParam *affinity, int count, unsigned int flags,
	  CUdevice device),
	 (handle, affinity, count, flags, device))
{
	if (count < 0 || (count && !affinity))
		return CUDA_ERROR_INVALID_VALUE;
	return create(handle, flags, device, 3020);
}

SIM_CALL(cuCtxCreate_v4,
	 (CUcontext * handle, CUctxCreateParams *params, unsigned int flags, CUdevice device),
	 (handle, params, flags, device))
{
	if (params && params->execAffinityParams && params->cigParams)
		return CUDA_ERROR_INVALID_VALUE;
	return create(handle, flags, device, 3020);
}

static CUresult destroy_handle(CUcontext handle)
{
	struct sim_context *context = sim_context_of(handle);

	if (!context)
		return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_VALUE;
	if (context->primary || context->green)
		return CUDA_ERROR_INVALID_CONTEXT;
	sim_context_destroy(context);
	return CUDA_SUCCESS;
}

SIM_TOUCHING(cuCtxDestroy, SIM_NEEDS_INIT, (CUcontext handle), (handle), SIM_ENDS_ALL_OF(handle))
{
	return destroy_handle(handle);
}

SIM_TOUCHING(cuCtxDestroy_v2, SIM_NEEDS_INIT, (CUcontext handle), (handle), SIM_ENDS_ALL_OF(handle))
{
	return destroy_handle(handle);
}

SIM_CTX_CALL(cuCtxAttach, (CUcontext * handle, unsigned int flags), (handle, flags))
{
	if (!handle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	sim_current()->retained++;
	*handle = (CUcontext)sim_current();
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxDetach, (CUcontext handle), (handle))
{
	struct sim_context *context = sim_context_of(handle);

	if (!context || context != sim_current() || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--context->retained == 0)
		sim_context_destroy(context);
	return CUDA_SUCCESS;
}

/* ---- primary contexts ----------------------------------------------------------------------- */

bool sim_primary_retain(int device)
{
	struct sim_context *context = sim_primary(device);

	if (!context)
		return false;
	context->retained++;
	context->api_version = 3020;
	if (!context->alive)
		context->heap.home = sim_addresses_take(SIM_PAGE, 0);
	set_alive(context, true);
	return true;
}

SIM_CALL(cuDevicePrimaryCtxRetain, (CUcontext * handle, CUdevice device), (handle, device))
{
	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sim_primary_retain(device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = (CUcontext)sim_primary(device);
	return CUDA_SUCCESS;
}

CUresult sim_primary_release(CUdevice device)
{
	struct sim_context *context;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	context = sim_primary(device);
	if (!context || !context->retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (--context->retained == 0)
		sim_context_end(context);
	return CUDA_SUCCESS;
}

SIM_CALL(cuDevicePrimaryCtxRelease, (CUdevice device), (device))
{
	return sim_primary_release(device);
}

SIM_CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
{
	return sim_primary_release(device);
}

static CUresult reset(CUdevice device)
{
	struct sim_context *context;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	context = sim_primary(device);
	if (context && context->alive)
		sim_context_end(context);
	return CUDA_SUCCESS;
}

SIM_CALL(cuDevicePrimaryCtxReset, (CUdevice device), (device))
{
	return reset(device);
}

SIM_CALL(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))
{
	return reset(device);
}

SIM_CALL(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned int *flags, int *active),
	 (device, flags, active))
{
	struct sim_context *context;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	context = sim_primary(device);
	if (!flags || !active || !context)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = context->flags;
	*active = context->alive;
	return CUDA_SUCCESS;
}

static CUresult set_primary_flags(CUdevice device, unsigned flags)
{
	struct sim_context *context;

	if (!sim_device_known(device))
		return CUDA_ERROR_INVALID_DEVICE;
	context = sim_primary(device);
	if (!context || flags & ~0x1ffu)
		return CUDA_ERROR_INVALID_VALUE;
	context->flags = flags;
	return CUDA_SUCCESS;
}

SIM_CALL(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags), (device, flags))
{
	return set_primary_flags(device, flags);
}

SIM_CALL(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned int flags), (device, flags))
{
	return set_primary_flags(device, flags);
}

/* ---- current to a thread -------------------------------------------------------------------- */

SIM_LOCKLESS_CALL(cuCtxGetCurrent, (CUcontext * handle), (handle))
{
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (CUcontext)sim_current();
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxSetCurrent, (CUcontext handle), (handle))
{
	struct sim_context *context = sim_context_of(handle);

	if (handle && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (sim_thread.depth)
		sim_context_pop();
	if (context)
		sim_context_push(context);
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext handle)
{
	struct sim_context *context = sim_context_of(handle);

	if (!context)
		return handle ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	sim_context_push(context);
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxPushCurrent, (CUcontext handle), (handle))
{
	return push(handle);
}

SIM_CALL(cuCtxPushCurrent_v2, (CUcontext handle), (handle))
{
	return push(handle);
}

static CUresult pop(CUcontext *handle)
{
	if (!sim_thread.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (handle)
		*handle = (CUcontext)sim_current();
	sim_context_pop();
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxPopCurrent, (CUcontext * handle), (handle))
{
	return pop(handle);
}

SIM_CALL(cuCtxPopCurrent_v2, (CUcontext * handle), (handle))
{
	return pop(handle);
}

SIM_CALL(cuCtxGetDevice, (CUdevice * device), (device))
{
	if (!sim_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = sim_current()->device;
	return CUDA_SUCCESS;
}

SIM_CTX_CALL(cuCtxGetFlags, (unsigned int *flags), (flags))
{
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = sim_current()->flags;
	return CUDA_SUCCESS;
}

static struct sim_context *named_or_current(CUcontext handle)
{
	return handle ? sim_context_of(handle) : sim_current();
}

SIM_CALL(cuCtxGetApiVersion, (CUcontext handle, unsigned int *version), (handle, version))
{
	struct sim_context *context = named_or_current(handle);

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = context->api_version;
	return CUDA_SUCCESS;
}

SIM_CALL(cuCtxGetId, (CUcontext handle, unsigned long long *id), (handle, id))
{
	struct sim_context *context = named_or_current(handle);

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = context->id;
	return CUDA_SUCCESS;
}
