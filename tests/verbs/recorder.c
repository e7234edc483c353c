/* SPDX-License-Identifier: MIT */
/* The recording libibverbs: devices and protection domains. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder_parts.h"

#define DEVICES 2

static struct ibv_device devices[DEVICES] = {
	{.node_type = 1, .name = "recorder0", .dev_name = "uverbs0"},
	{.node_type = 1, .name = "recorder1", .dev_name = "uverbs1"},
};

static void place_first_device(void)
{
	const char *path = getenv("RECORDER_CARD");

	if (path)
		snprintf(devices[0].ibdev_path, sizeof(devices[0].ibdev_path), "%s", path);
}

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(DEVICES + 1, sizeof(*list));

	place_first_device();
	for (int i = 0; list && i < DEVICES; i++)
		list[i] = &devices[i];
	if (count)
		*count = list ? DEVICES : 0;
	return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

/* By this libibverbs is known: its providers call it, and nobody else. */
EXPORT int ibv_cmd_reg_mr(void)
{
	return ENOSYS;
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* ---- contexts ------------------------------------------------------------------------------- */

static struct recorder_context *whole(struct ibv_context *context)
{
	return (struct recorder_context *)((char *)context -
					   offsetof(struct recorder_context, device));
}

/* A closed context is always used for the next one, as malloc may use its memory. */
static struct recorder_context *spare;

static struct recorder_context *new_context(void)
{
	struct recorder_context *context;

	recorder_lock();
	context = spare;
	spare = NULL;
	recorder_unlock();
	if (!context)
		return calloc(1, sizeof(*context));
	memset(context, 0, sizeof(*context));
	return context;
}

static void end_context(struct recorder_context *context)
{
	struct recorder_context *other;

	recorder_lock();
	other = spare;
	spare = context;
	recorder_unlock();
	free(other);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct recorder_call call = {.verb = RECORDER_OPEN_DEVICE};
	struct recorder_context *context;
	int error = recorder_begin(&call);

	context = error ? NULL : new_context();
	if (context) {
		context->ex[RECORDER_EX_ALLOC_NULL_MR] = (void (*)(void))recorder_alloc_null_mr;
		context->ex[RECORDER_EX_ADVISE_MR] = (void (*)(void))recorder_advise_mr;
		context->sz = sizeof(*context);
		context->device = device;
		context->ops[RECORDER_OP_ALLOC_MW] = (void (*)(void))recorder_alloc_mw;
		context->ops[RECORDER_OP_BIND_MW] = (void (*)(void))recorder_bind_mw;
		context->ops[RECORDER_OP_DEALLOC_MW] = (void (*)(void))recorder_dealloc_mw;
		context->cmd_fd = context->async_fd = -1;
		context->num_comp_vectors = 1;
		context->abi_compat = (void *)UINTPTR_MAX; /* more members precede the context */
	}
	errno = recorder_end(&call, context ? 0 : error ? error : ENOMEM);
	return context ? (struct ibv_context *)&context->device : NULL;
}

/* As in the kernel: everything that was open on the device ends. */
EXPORT int ibv_close_device(struct ibv_context *context)
{
	struct recorder_call call = {.verb = RECORDER_CLOSE_DEVICE};
	int error = recorder_begin(&call);

	if (!error) {
		recorder_lock();
		recorder_end_all(context);
		recorder_end_umems(context);
		recorder_unlock();
		end_context(whole(context));
	}
	recorder_end(&call, error);
	return error ? -1 : 0;
}

/* ---- protection domains --------------------------------------------------------------------- */

/* A deallocated domain is always used for the next one, as malloc may use its memory. */
static struct recorder_pd *spare_pds;

/* whose: the domain that regions on it belong to, or NULL for itself. */
static struct ibv_pd *new_pd(struct ibv_context *context, uint32_t handle,
			     struct recorder_pd *whose)
{
	struct recorder_pd *pd;

	recorder_lock();
	pd = spare_pds;
	if (pd)
		spare_pds = pd->spare;
	recorder_unlock();
	if (!pd)
		pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	*pd = (struct recorder_pd){.pd = {.context = context, .handle = handle}};
	pd->regions_of = whose ? whose : pd;
	return &pd->pd;
}

static void end_pd(struct recorder_pd *pd)
{
	recorder_lock();
	pd->spare = spare_pds;
	spare_pds = pd;
	recorder_unlock();
}

/* An imported domain: nothing in this process keeps it busy. */
static struct recorder_pd others_pd;

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	static uint32_t handles;
	struct recorder_call call = {.verb = RECORDER_ALLOC_PD};
	int error = recorder_begin(&call);
	struct ibv_pd *pd = NULL;

	if (!error) {
		pd = new_pd(context, __atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED), NULL);
		error = pd ? 0 : ENOMEM;
	}
	call.pd = pd;
	recorder_end(&call, error);
	if (error)
		errno = error;
	return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct recorder_call call = {.verb = RECORDER_DEALLOC_PD, .pd = pd};
	int error = recorder_begin(&call);

	recorder_lock();
	if (!error && ((struct recorder_pd *)pd)->users)
		error = EBUSY;
	recorder_unlock();
	if (!error)
		end_pd((struct recorder_pd *)pd);
	return recorder_end(&call, error);
}

/*
 * As mlx5's: in the kernel its regions belong to the parent, so none of them keeps it from being
 * deallocated.
 */
EXPORT struct ibv_pd *recorder_parent_domain(struct ibv_pd *of)
{
	return new_pd(of->context, of->handle, (struct recorder_pd *)of);
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct recorder_call call = {.verb = RECORDER_IMPORT_PD};
	int error = recorder_begin(&call);
	struct ibv_pd *pd = error ? NULL : new_pd(context, handle, &others_pd);

	call.pd = pd;
	recorder_end(&call, error);
	if (error)
		errno = error;
	return pd;
}

/* Nothing ends in the kernel, so regions may be left. */
EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	struct recorder_call call = {.verb = RECORDER_UNIMPORT_PD, .pd = pd};

	recorder_begin(&call);
	end_pd((struct recorder_pd *)pd);
	recorder_end(&call, 0);
}
