/* SPDX-License-Identifier: MIT */
/*
 * The actions that rows of entrypoints.def name, and the values that rows hand to the trace. Only
 * wrap.c includes this file. An action takes the caught call first. One that runs before the real
 * call ends something (end_...) or notes something in `call` for the action that runs after it; one
 * that runs after it is named for what has happened, and does nothing if the call failed.
 */
#ifndef HOOK_CUDA_ACTIONS_H
#define HOOK_CUDA_ACTIONS_H

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "cache/dmabuf/foreign_dmabufs.h"
#include "hook/cuda/addresses.h"
#include "hook/cuda/devicemap.h"
#include "hook/hook.h"
#include "hook/loader/patches.h"

#define NUMBER(x)  ((uint64_t)(uintptr_t)(x))
#define POINTER(x) ((void *)(uintptr_t)(x))

/* Relaxed: see where the flags are set, in owners.c and graphs.c. */
static inline bool is_set(const uint32_t *flag)
{
	return PDN_UNLIKELY(__atomic_load_n(flag, __ATOMIC_RELAXED));
}

/* ---- values ------------------------------------------------------------------------------ */

/* The number of `size` bytes that the call has stored at p; 0 if it failed or p is NULL. */
static inline __attribute__((always_inline)) uint64_t out(const struct call *call, const void *p,
							  size_t size)
{
	uint64_t number = 0;

	if (pdn_succeeded(call) && p)
		memcpy(&number, p, size); /* both processors are little-endian */
	return number;
}

/* The same, once for all calls that are made seldom. */
static uint64_t __attribute__((noinline, cold))
small_out(const struct call *call, const void *p, size_t size)
{
	return out(call, p, size);
}

static inline uint64_t first_bytes(const struct call *call, const CUuuid *id)
{
	return out(call, id, sizeof(uint64_t));
}

static inline uint64_t exported_descriptor(const struct call *call, const void *handle)
{
	return pdn_succeeded(call) && handle ? NUMBER(*(const int *)handle) : 0;
}

static inline uint64_t buffer_size(const struct call *call,
				   const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *buffer)
{
	return pdn_succeeded(call) && buffer ? buffer->size : 0;
}

static inline uint64_t imported_size(const struct call *call,
				     const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memory)
{
	return pdn_succeeded(call) && memory ? memory->size : 0;
}

static inline uint64_t instantiate_flags(const struct call *call,
					 const CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return pdn_succeeded(call) && params ? params->flags : 0;
}

/* Of a node that allocates, which has parameters of its own. */
static inline uint64_t alloc_node_address(const struct call *call,
					  const CUDA_MEM_ALLOC_NODE_PARAMS *node)
{
	return pdn_succeeded(call) && node ? node->dptr : 0;
}

static inline uint64_t alloc_node_size(const struct call *call,
				       const CUDA_MEM_ALLOC_NODE_PARAMS *node)
{
	return pdn_succeeded(call) && node ? node->bytesize : 0;
}

/* Of a node of any type. */
static inline bool is_node(const struct call *call, const CUgraphNodeParams *node,
			   CUgraphNodeType type)
{
	return pdn_succeeded(call) && node && node->type == type;
}

static inline uint64_t node_address(const struct call *call, const CUgraphNodeParams *node)
{
	if (is_node(call, node, CU_GRAPH_NODE_TYPE_MEM_ALLOC))
		return node->alloc.dptr;
	return is_node(call, node, CU_GRAPH_NODE_TYPE_MEM_FREE) ? node->free.dptr : 0;
}

static inline uint64_t node_size(const struct call *call, const CUgraphNodeParams *node)
{
	return is_node(call, node, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ? node->alloc.bytesize : 0;
}

/* Of a frame whose planes are memory, the first one. */
static inline bool has_planes(const struct call *call, const CUeglFrame *frame)
{
	return pdn_succeeded(call) && frame && frame->frameType == CU_EGL_FRAME_TYPE_PITCH;
}

static inline uint64_t plane_address(const struct call *call, const CUeglFrame *frame)
{
	return has_planes(call, frame) ? NUMBER(frame->frame.pPitch[0]) : 0;
}

static inline uint64_t plane_size(const struct call *call, const CUeglFrame *frame)
{
	return has_planes(call, frame) ? (uint64_t)frame->pitch * frame->height : 0;
}

/* ---- memory that the call itself names --------------------------------------------------- */

#define NONE \
	do { \
	} while (0)

/* A library can patch our code without asking the loader for anything: look now and then. */
static void look_for_patches(void)
{
	static uint32_t allocations;
	/* Relaxed: threads that count at the same time may count one. */
	uint32_t count = __atomic_load_n(&allocations, __ATOMIC_RELAXED) + 1;

	__atomic_store_n(&allocations, count, __ATOMIC_RELAXED);
	if (PDN_UNLIKELY(count % 1024 == 0))
		pdn_patches_look();
}

static void __attribute__((noinline))
device_memory_begins(uint64_t addr, uint64_t length, enum pdn_device_map map)
{
	if (!addr || !length)
		return;
	look_for_patches();
	pdn_device_seen_in(map, addr, length);
	pdn_allocated(addr, length);
}

static inline void allocated(const struct call *call, uint64_t addr, uint64_t length)
{
	if (pdn_succeeded(call))
		device_memory_begins(addr, length, PDN_DEVICE_LINEAR);
}

static inline void host_allocated(const struct call *call, uint64_t addr, uint64_t length)
{
	if (pdn_succeeded(call) && addr && length)
		pdn_allocated(addr, length);
}

static inline void mapped(const struct call *call, uint64_t addr, uint64_t length)
{
	if (pdn_succeeded(call)) {
		pdn_mapped(addr, length);
		device_memory_begins(addr, length, PDN_DEVICE_ALL);
	}
}

static inline void unmapped(const struct call *call, uint64_t addr, uint64_t length)
{
	if (pdn_succeeded(call))
		pdn_unmapped(addr, length);
}

static inline void end_allocation(struct call *call, uint64_t addr)
{
	pdn_caught_range(call, addr, 0);
}

/* By cuMemFree: registrations that the program holds may end, too. */
static inline void end_linear(struct call *call, uint64_t addr)
{
	if (addr)
		pdn_caught_guard(call, pdn_end_allocation(addr));
}

static inline void freed(const struct call *call, uint64_t addr)
{
	if (is_set(&pdn_owner_external) && pdn_succeeded(call))
		pdn_owner_freed(addr);
}

static inline void end_range(struct call *call, uint64_t addr, uint64_t length)
{
	if (length)
		pdn_caught_range(call, addr, length);
}

/* Memory of the pool may have ended; of any pool, if it is NULL. */
static inline void recheck(const struct call *call, void *pool)
{
	if (pdn_succeeded(call))
		pdn_recheck(pool);
}

static inline void pool_destroyed(const struct call *call, void *pool)
{
	recheck(call, pool);
	if (pdn_succeeded(call))
		pdn_pool_destroyed(pool);
}

static inline void pool_set(const struct call *call, void *pool, CUmemPool_attribute attribute,
			    const void *value)
{
	if (pdn_succeeded(call))
		pdn_pool_set(pool, attribute, value);
}

static inline void end_everything(struct call *call)
{
	pdn_caught_guard(call, pdn_end_all());
}

static inline void end_process(struct call *call, int pid)
{
	if (pid == getpid())
		end_everything(call);
}

/* ---- memory that can be registered (PINDOWN_RDMA_CAPABLE) -------------------------------- */

static inline const CUmemAllocationProp *capable(struct call *call, const CUmemAllocationProp *prop)
{
	call->asked = NULL;
	return PDN_UNLIKELY(pdn_config()->rdma_capable) ? pdn_capable(call, prop) : prop;
}

/*
 * The properties for a second call, if the first one was changed and has failed; NULL: none is due.
 * The error does not matter, and may be that memory is short: the driver may have more memory that
 * can't be registered. The program gets the result and the errno of the second call, which is the
 * one that it has made.
 */
static inline const CUmemAllocationProp *refused(struct call *call)
{
	const CUmemAllocationProp *asked = call->asked;

	if (!asked || pdn_succeeded(call))
		return NULL;
	call->asked = NULL;
	errno = call->error;
	return asked;
}

static inline void repeated(struct call *call, CUresult result)
{
	call->result = result;
	if (call->begun)
		call->ended = pdn_ticks();
}

static inline void created(struct call *call, CUmemGenericAllocationHandle *handle, size_t size,
			   unsigned long long flags)
{
	typeof(cuMemCreate) *real = call->real;
	const CUmemAllocationProp *asked = refused(call);

	if (asked)
		repeated(call, real(handle, size, asked, flags));
}

/* The granularity is that of the memory which the program is going to get. */
static inline void granularity_found(struct call *call, size_t *granularity,
				     CUmemAllocationGranularity_flags option)
{
	typeof(cuMemGetAllocationGranularity) *real = call->real;
	const CUmemAllocationProp *asked = refused(call);

	if (asked)
		repeated(call, real(granularity, asked, option));
}

static inline uint64_t created_handle(const struct call *call,
				      const CUmemGenericAllocationHandle *handle)
{
	return small_out(call, handle, sizeof(*handle)) |
	       (call->asked ? PDN_TRACE_MADE_CAPABLE : 0);
}

/* ---- memory on a stream ------------------------------------------------------------------ */

/* In stream order, at the call; but while the stream is captured only a graph's node is made. */
static inline bool is_captured(CUstream stream, enum pdn_flavour flavour)
{
	return is_set(&pdn_captures) && pdn_is_capturing(stream, flavour);
}

static inline void allocated_on(const struct call *call, CUstream stream, enum pdn_flavour flavour,
				uint64_t addr, uint64_t length)
{
	if (!pdn_succeeded(call))
		return;
	if (is_captured(stream, flavour))
		pdn_graph_alloc(addr, length);
	else
		device_memory_begins(addr, length, PDN_DEVICE_ALL);
}

/* Inlined always: see FAST in wrap.c. */
static inline __attribute__((always_inline)) void end_on(struct call *call, CUstream stream,
							 enum pdn_flavour flavour, uint64_t addr)
{
	call->captured = is_captured(stream, flavour);
	call->later = 0;
	if (call->captured)
		return;
	if (PDN_UNLIKELY(pdn_device_may_be_in(PDN_DEVICE_LINEAR, addr)))
		call->later = pdn_stays_until_turn(addr);
	pdn_caught_in_order(call, addr);
	if (PDN_UNLIKELY(call->later) && !pdn_ends_later(addr, call->later))
		call->later = 0;
}

/* If the call failed, the memory lives on, unless a call before has freed it. */
static inline void freed_on(const struct call *call, uint64_t addr)
{
	if (PDN_UNLIKELY(!pdn_succeeded(call)) && call->later)
		pdn_allocated(addr, call->later);
	if (PDN_UNLIKELY(call->captured) && pdn_succeeded(call))
		pdn_graph_free(addr);
	else
		freed(call, addr);
}

/* ---- stream capture and graphs ----------------------------------------------------------- */

static inline void capture_begun(const struct call *call)
{
	if (pdn_succeeded(call))
		pdn_capture_begun();
}

static inline void note_capture(struct call *call, CUstream stream, enum pdn_flavour flavour)
{
	call->captured = pdn_is_capturing(stream, flavour);
}

static inline void capture_ended(const struct call *call, CUstream stream, enum pdn_flavour flavour)
{
	if (call->captured && !pdn_is_capturing(stream, flavour))
		pdn_capture_ended();
}

/* A capture ends with its stream; which was asked before that, as the handle is gone. */
static inline void note_capture_before_end(struct call *call, CUstream stream)
{
	call->captured = is_captured(stream, PDN_LEGACY);
}

static inline void stream_destroyed(const struct call *call)
{
	if (call->captured && pdn_succeeded(call))
		pdn_capture_ended();
}

static inline void alloc_node_added(const struct call *call, const CUDA_MEM_ALLOC_NODE_PARAMS *node)
{
	if (pdn_succeeded(call))
		pdn_graph_alloc(alloc_node_address(call, node), alloc_node_size(call, node));
}

static inline void free_node_added(const struct call *call, uint64_t addr)
{
	if (pdn_succeeded(call))
		pdn_graph_free(addr);
}

static inline void node_added(const struct call *call, const CUgraphNodeParams *node)
{
	if (is_node(call, node, CU_GRAPH_NODE_TYPE_MEM_ALLOC))
		pdn_graph_alloc(node->alloc.dptr, node->alloc.bytesize);
	else if (is_node(call, node, CU_GRAPH_NODE_TYPE_MEM_FREE))
		pdn_graph_free(node->free.dptr);
}

static inline void instantiated(const struct call *call, const CUgraphExec *exec, CUgraph graph,
				uint64_t flags)
{
	if (pdn_succeeded(call) && is_set(&pdn_graph_memory))
		pdn_graph_instantiated(exec ? *exec : NULL, graph, flags);
}

static inline void exec_updated(const struct call *call, CUgraphExec exec, CUgraph graph)
{
	if (pdn_succeeded(call) && is_set(&pdn_graph_memory))
		pdn_graph_updated(exec, graph);
}

static inline void end_freed_by_launch(struct call *call, CUgraphExec exec)
{
	if (is_set(&pdn_graph_memory))
		pdn_graph_launch(call, exec);
}

static inline void exec_destroyed(const struct call *call, CUgraphExec exec)
{
	if (pdn_succeeded(call) && is_set(&pdn_graph_memory))
		pdn_graph_forget(exec);
}

/* ---- memory that ends with its owner ----------------------------------------------------- */

static inline void owns(const struct call *call, enum pdn_owner owner, const void *handle,
			uint64_t addr, uint64_t length)
{
	if (!pdn_succeeded(call))
		return;
	if (addr && length)
		pdn_device_seen(addr, length);
	pdn_owner_owns(owner, handle, addr, length);
}

static inline void end_owned(struct call *call, enum pdn_owner owner, const void *handle)
{
	pdn_owner_end(call, owner, handle);
}

static inline void owner_ended(const struct call *call, enum pdn_owner owner, const void *handle)
{
	if (pdn_succeeded(call))
		pdn_owner_ended(owner, handle);
}

static inline void end_resources(struct call *call, const CUgraphicsResource *resources,
				 unsigned count)
{
	for (unsigned i = 0; is_set(&pdn_owner_graphics) && resources && i < count; i++)
		end_owned(call, PDN_OWNER_GRAPHICS, resources[i]);
}

static inline void resources_ended(const struct call *call, const CUgraphicsResource *resources,
				   unsigned count)
{
	for (unsigned i = 0; is_set(&pdn_owner_graphics) && resources && i < count; i++)
		owner_ended(call, PDN_OWNER_GRAPHICS, resources[i]);
}

/* How long the planes behind the first one are depends on the format. */
static inline void owns_planes(const struct call *call, const void *resource,
			       const CUeglFrame *frame)
{
	uint64_t bytes = plane_size(call, frame);

	if (!plane_address(call, frame) || !bytes)
		return;
	for (unsigned i = 0; i < frame->planeCount && i < CU_EGL_PLANES; i++) {
		uint64_t at = NUMBER(frame->frame.pPitch[i]);

		pdn_device_seen(at, bytes);
		pdn_owner_owns(PDN_OWNER_GRAPHICS, resource, at, 1);
	}
}

static inline void frame_acquired(const struct call *call, const CUeglStreamConnection *connection,
				  const CUgraphicsResource *frame)
{
	if (pdn_succeeded(call) && connection)
		pdn_owner_frame_of(frame ? *frame : NULL, *connection);
}

/* The call may change *connection. */
static inline void end_connection(struct call *call, const CUeglStreamConnection *connection)
{
	call->connection = connection ? *connection : NULL;
	end_owned(call, PDN_OWNER_EGL, call->connection);
}

static inline void connection_ended(const struct call *call)
{
	owner_ended(call, PDN_OWNER_EGL, call->connection);
}

static inline void unloaded(const struct call *call, enum pdn_owner owner, const void *handle)
{
	owner_ended(call, owner, handle);
	recheck(call, NULL);
}

static inline void module_of_library(const struct call *call, const CUmodule *module,
				     CUlibrary library)
{
	if (pdn_succeeded(call))
		pdn_owner_module_of(module ? *module : NULL, library);
}

static inline void module_of_function(const struct call *call, const CUmodule *module)
{
	if (pdn_succeeded(call))
		pdn_owner_module_of_a_function(module ? *module : NULL);
}

/* ---- contexts ---------------------------------------------------------------------------- */

static inline void context_created(const struct call *call, const CUcontext *context)
{
	if (pdn_succeeded(call))
		pdn_context_created(context ? *context : NULL);
}

static inline void context_attached(const struct call *call, const CUcontext *context)
{
	if (pdn_succeeded(call))
		pdn_context_attached(context ? *context : NULL);
}

static inline void end_context(struct call *call, CUcontext context)
{
	pdn_caught_context(call, context);
}

static inline void context_destroyed(const struct call *call, CUcontext context)
{
	if (pdn_succeeded(call))
		pdn_context_destroyed(context);
}

static inline void end_attachment(struct call *call, CUcontext context)
{
	pdn_context_detach(call, context);
}

static inline void context_detached(const struct call *call, CUcontext context)
{
	pdn_context_detached(call, context);
}

static inline void primary_retained(const struct call *call, const CUcontext *context,
				    CUdevice device)
{
	if (pdn_succeeded(call))
		pdn_primary_retained(context ? *context : NULL, device);
}

static inline void end_primary(struct call *call, CUdevice device)
{
	pdn_primary_release(call, device);
}

static inline void primary_released(const struct call *call, CUdevice device)
{
	pdn_primary_released(call, device);
}

static inline void end_primary_by_reset(struct call *call, CUdevice device)
{
	pdn_primary_reset(call, device);
}

static inline void primary_reset(const struct call *call, CUdevice device)
{
	if (pdn_succeeded(call))
		pdn_primary_did_reset(device);
}

static inline void green_created(const struct call *call, const CUgreenCtx *green, CUdevice device)
{
	if (pdn_succeeded(call))
		pdn_green_created(green ? *green : NULL, device);
}

static inline void context_of_green(const struct call *call, const CUcontext *context,
				    CUgreenCtx green)
{
	if (pdn_succeeded(call))
		pdn_green_context(context ? *context : NULL, green);
}

static inline void end_green(struct call *call, CUgreenCtx green)
{
	pdn_green_destroy(call, green);
}

static inline void green_destroyed(const struct call *call, CUgreenCtx green)
{
	pdn_green_destroyed(call, green);
}

/* ---- memory that is shared --------------------------------------------------------------- */

/* A dma-buf that the program, or middleware in it, makes itself. */
static inline void export(struct call *call, uint64_t addr, uint64_t length,
			  CUmemRangeHandleType type)
{
	if (type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
		call->buffer_id = pdn_export_begins(addr, length);
}

static inline void exported(const struct call *call, const void *handle, uint64_t addr,
			    uint64_t length, CUmemRangeHandleType type, uint64_t flags)
{
	if (pdn_succeeded(call) && handle && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
		pdn_exported(addr, length, flags, *(const int *)handle, call->buffer_id,
			     call->caller);
}

static inline void pointer_imported(const struct call *call, uint64_t addr)
{
	if (pdn_succeeded(call))
		pdn_pointer_imported(addr);
}

static inline void ipc_opened(const struct call *call, uint64_t addr)
{
	if (pdn_succeeded(call)) {
		pdn_device_seen(addr, 1); /* all of it, if the driver tells what it is */
		pdn_ipc_opened(addr);
	}
}

static inline void end_ipc(struct call *call, uint64_t addr)
{
	pdn_ipc_close(call, addr);
}

static inline void ipc_closed(const struct call *call, uint64_t addr)
{
	pdn_ipc_closed(call, addr);
}

/* ---- look-ups ---------------------------------------------------------------------------- */

static void *ask_v1(const struct pdn_asked *asked, int version)
{
	typeof(cuGetProcAddress) *real = asked->real;
	void *found = NULL;

	return real(asked->name, &found, version, asked->flags) == CUDA_SUCCESS ? found : NULL;
}

static void *ask_v2(const struct pdn_asked *asked, int version)
{
	typeof(cuGetProcAddress_v2) *real = asked->real;
	void *found = NULL;

	return real(asked->name, &found, version, asked->flags, NULL) == CUDA_SUCCESS ? found
										      : NULL;
}

static inline void found_by(void *ask(const struct pdn_asked *, int), const struct call *call,
			    const char *symbol, void **found, int version, uint64_t flags)
{
	if (pdn_succeeded(call) && symbol && found && *found) {
		struct pdn_asked asked = {
			.name = symbol, .flags = flags, .ask = ask, .real = call->real};

		*found = pdn_substitute(&asked, version, *found);
	}
}

static inline void found_v1(const struct call *call, const char *symbol, void **found, int version,
			    uint64_t flags)
{
	found_by(ask_v1, call, symbol, found, version, flags);
}

static inline void found_v2(const struct call *call, const char *symbol, void **found, int version,
			    uint64_t flags)
{
	found_by(ask_v2, call, symbol, found, version, flags);
}

#endif
