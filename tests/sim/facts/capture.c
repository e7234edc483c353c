/* SPDX-License-Identifier: MIT */
/* Calls during the capture of a stream, and their effect on the capture. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "facts.h"

static CUstream stream, beside;
static CUdeviceptr target;
static CUgraph graph;
static CUcontext context_here;
static CUstreamCaptureMode elsewhere_mode;

static CUresult call_alloc(void)
{
	CUdeviceptr ptr;

	return cuMemAlloc_v2(&ptr, 4096);
}

static CUresult call_free(void)
{
	CUresult result = cuMemFree_v2(target);

	if (id_of(target))
		say("(the memory is still there)", "1");
	return result;
}

static CUresult call_free_zero(void)
{
	return cuMemFree_v2(0);
}

static CUresult call_alloc_host(void)
{
	void *host;

	return cuMemAllocHost_v2(&host, 4096);
}

static CUresult call_copy(void)
{
	return cuMemcpyHtoD_v2(target, "1234567", 8);
}

static CUresult call_export(void)
{
	return export_range(target, 64 * KIB);
}

static CUresult call_id(void)
{
	uint64_t id;

	return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, target);
}

static CUresult call_range(void)
{
	return cuMemGetAddressRange_v2(NULL, NULL, target);
}

static CUresult call_context(void)
{
	CUcontext context;

	return cuCtxGetCurrent(&context);
}

static CUresult call_push_pop(void)
{
	CUcontext context;

	cuCtxGetCurrent(&context);
	return cuCtxPushCurrent_v2(context) ?: cuCtxPopCurrent_v2(&context);
}

static CUresult call_sync_memops(void)
{
	unsigned on = 1;

	return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, target);
}

static CUresult call_info(void)
{
	size_t left, total;

	return cuMemGetInfo_v2(&left, &total);
}

static CUresult call_free_async(void)
{
	return cuMemFreeAsync(target, stream);
}

static CUresult call_synchronize(void)
{
	return cuStreamSynchronize(stream);
}

static CUresult call_synchronize_beside(void)
{
	return cuStreamSynchronize(beside);
}

static CUresult call_query_legacy(void)
{
	return cuStreamQuery(NULL);
}

static CUresult call_managed(void)
{
	CUdeviceptr ptr;

	return cuMemAllocManaged(&ptr, 4096, CU_MEM_ATTACH_GLOBAL);
}

static CUresult call_register(void)
{
	static char page[8192] __attribute__((aligned(4096)));
	CUresult result = cuMemHostRegister_v2(page, 4096, 0);

	if (result == CUDA_SUCCESS)
		result = cuMemHostUnregister(page);
	return result;
}

static CUresult call_context_synchronize(void)
{
	return cuCtxSynchronize();
}

static CUresult call_handle(void)
{
	CUipcMemHandle handle;

	return cuIpcGetMemHandle(&handle, target);
}

static CUresult call_load(void)
{
	CUmodule module;
	CUresult result = cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n"
						    ".address_size 64\n"
						    ".visible .global .align 4 .u32 one;\n");

	if (result == CUDA_SUCCESS)
		result = cuModuleUnload(module);
	return result;
}

static CUresult call_map(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr va;

	return cuMemCreate(&handle, 2 * MIB, &prop, 0)
		       ?: cuMemAddressReserve(&va, 2 * MIB, 0, 0, 0)
		       ?: cuMemMap(va, 2 * MIB, 0, handle, 0)
		       ?: cuMemUnmap(va, 2 * MIB)
		       ?: cuMemRelease(handle)
		       ?: cuMemAddressFree(va, 2 * MIB);
}

static CUresult call_trim(void)
{
	CUmemoryPool pool;

	return cuDeviceGetDefaultMemPool(&pool, 0) ?: cuMemPoolTrimTo(pool, 0);
}

static CUresult call_context_create(void)
{
	CUcontext context;
	CUresult result = cuCtxCreate_v2(&context, 0, 0);

	return result ?: cuCtxDestroy_v2(context);
}

static CUresult call_retain(void)
{
	CUcontext context;

	return cuDevicePrimaryCtxRetain(&context, 0) ?: cuDevicePrimaryCtxRelease_v2(0);
}

static CUresult call_event(void)
{
	CUevent event;

	return cuEventCreate(&event, 0) ?: cuEventQuery(event) ?: cuEventDestroy_v2(event);
}

static CUresult call_async_beside(void)
{
	CUdeviceptr ptr;

	return cuMemAllocAsync(&ptr, MIB, beside) ?: cuMemFreeAsync(ptr, beside);
}

static CUresult call_free_linear_beside(void)
{
	return cuMemFreeAsync(target, beside);
}

static const struct call {
	const char *name;
	CUresult (*call)(void);
	bool needs_new_target;
} calls[] = {
	{"cuMemAlloc", call_alloc, false},
	{"cuMemFree(0)", call_free_zero, false},
	{"cuMemFree", call_free, true},
	{"cuMemAllocHost", call_alloc_host, false},
	{"cuMemcpyHtoD", call_copy, false},
	{"export", call_export, false},
	{"buffer id", call_id, false},
	{"address range", call_range, false},
	{"cuCtxGetCurrent", call_context, false},
	{"context push and pop", call_push_pop, false},
	{"sync memops", call_sync_memops, false},
	{"cuMemGetInfo", call_info, false},
	{"cuMemFreeAsync of linear memory", call_free_async, false},
	{"cuMemAllocManaged", call_managed, false},
	{"register and unregister", call_register, false},
	{"cuCtxSynchronize", call_context_synchronize, false},
	{"cuIpcGetMemHandle", call_handle, false},
	{"load and unload of a module", call_load, false},
	{"create, reserve, map, unmap, release, free", call_map, false},
	{"trim of the default pool", call_trim, false},
	{"context create and destroy", call_context_create, false},
	{"primary context retain and release", call_retain, false},
	{"event create, query, destroy", call_event, false},
	{"cuMemAllocAsync and FreeAsync in another stream", call_async_beside, false},
	{"cuMemFreeAsync of linear memory in another stream", call_free_linear_beside, true},
	{"cuStreamSynchronize", call_synchronize, false},
	{"cuStreamSynchronize of another", call_synchronize_beside, false},
	{"cuStreamQuery of the legacy stream", call_query_legacy, false},
};

/* The capture ends well, or with an error when the call has invalidated it. */
static void during_capture(const struct call *call, const char *mode_name, CUstreamCaptureMode mode,
			   bool relax_thread)
{
	CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	char question[128];
	CUresult result;

	if (call->needs_new_target)
		NEED(cuMemAlloc_v2(&target, 2 * MIB));
	NEED(cuStreamBeginCapture_v2(stream, mode));
	if (relax_thread)
		NEED(cuThreadExchangeStreamCaptureMode(&thread_mode));
	result = call->call();
	if (relax_thread)
		NEED(cuThreadExchangeStreamCaptureMode(&thread_mode));
	snprintf(question, sizeof(question), "%s, %s", mode_name, call->name);
	answer(question, result);
	result = cuStreamEndCapture(stream, &graph);
	if (result == CUDA_SUCCESS)
		cuGraphDestroy(graph);
	else
		answer("    the capture ends with", result);
	if (call->needs_new_target && !id_of(target))
		NEED(cuMemAlloc_v2(&target, 2 * MIB));
}

static void in_mode(const char *name, CUstreamCaptureMode mode, bool relax_thread)
{
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		during_capture(&calls[i], name, mode, relax_thread);
}

/* Another thread captures: which calls may this thread make? */
static void *capture_elsewhere(void *arg)
{
	pthread_barrier_t *barrier = arg;
	CUresult result;

	NEED(cuCtxSetCurrent(context_here));
	NEED(cuStreamBeginCapture_v2(stream, elsewhere_mode));
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	result = cuStreamEndCapture(stream, &graph);
	if (result == CUDA_SUCCESS)
		cuGraphDestroy(graph);
	else
		answer("    the other thread's capture ends with", result);
	return NULL;
}

static void while_another_captures(const char *name, CUstreamCaptureMode mode,
				   CUstreamCaptureMode own_mode)
{
	static const struct call asked[] = {
		{"cuMemAlloc", call_alloc, false},
		{"export", call_export, false},
		{"sync memops", call_sync_memops, false},
		{"cuStreamSynchronize of another", call_synchronize_beside, false},
	};
	pthread_barrier_t barrier;
	pthread_t thread;
	char question[128];
	size_t i;

	elsewhere_mode = mode;
	NEED(cuMemAlloc_v2(&target, 2 * MIB));
	for (i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		pthread_barrier_init(&barrier, NULL, 2);
		pthread_create(&thread, NULL, capture_elsewhere, &barrier);
		pthread_barrier_wait(&barrier);
		NEED(cuThreadExchangeStreamCaptureMode(&own_mode));
		snprintf(question, sizeof(question), "%s, %s", name, asked[i].name);
		answer(question, asked[i].call());
		NEED(cuThreadExchangeStreamCaptureMode(&own_mode));
		pthread_barrier_wait(&barrier);
		pthread_join(thread, NULL);
		pthread_barrier_destroy(&barrier);
	}
}

static void free_pool_memory_in_capture(void)
{
	CUresult result;

	NEED(cuMemAllocAsync(&target, MIB, stream));
	NEED(cuStreamSynchronize(stream));
	NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ASK_ABOUT("cuMemFreeAsync of pool memory", cuMemFreeAsync(target, stream));
	result = cuStreamEndCapture(stream, &graph);
	answer("the capture ends with", result);
	ASK_ABOUT("its id then", call_id());
}

static void capture_and_launch(void)
{
	CUstreamCaptureStatus status;
	char text[8] = "";
	CUgraphExec exec;
	CUdeviceptr ptr;

	NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK_ABOUT("begin twice", cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK(cuStreamIsCapturing(stream, &status));
	say("status", "%d", (int)status);
	ASK_ABOUT("allocation", cuMemAllocAsync(&ptr, MIB, stream));
	say("an address comes back", "%d", ptr != 0);
	ASK_ABOUT("its id", (target = ptr, call_id()));
	ASK_ABOUT("its export", export_range(ptr, 64 * KIB));
	ASK_ABOUT("fill", cuMemsetD8Async(ptr, 5, MIB, stream));
	ASK_ABOUT("copy", cuMemcpyDtoHAsync_v2(text, ptr, 8, stream));
	ASK_ABOUT("free", cuMemFreeAsync(ptr, stream));
	ASK_ABOUT("end", cuStreamEndCapture(stream, &graph));
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ASK_ABOUT("launch", cuGraphLaunch(exec, stream));
	NEED(cuStreamSynchronize(stream));
	say("copied", "%d", text[0]);
	describe("captured and freed, after the launch", ptr);
	NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	NEED(cuMemAllocAsync(&ptr, MIB, stream));
	NEED(cuStreamEndCapture(stream, &graph));
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
	target = ptr;
	ASK_ABOUT("captured, not freed: id before the launch", call_id());
	NEED(cuGraphLaunch(exec, stream));
	NEED(cuStreamSynchronize(stream));
	describe("captured, not freed, after the launch", ptr);
	NEED(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK_ABOUT("free of it in another capture", cuMemFreeAsync(ptr, stream));
	ASK_ABOUT("free of it again", cuMemFreeAsync(ptr, stream));
	ASK_ABOUT("its id", call_id());
	ASK_ABOUT("end", cuStreamEndCapture(stream, &graph));
}

void facts_capture(void)
{
	context_here = begin();
	NEED(cuMemAlloc_v2(&target, 2 * MIB));
	NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	NEED(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
	ASK_ABOUT("capture of the legacy stream",
		  cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ASK_ABOUT("end without a beginning", cuStreamEndCapture(stream, &graph));
	in_mode("global", CU_STREAM_CAPTURE_MODE_GLOBAL, false);
	in_mode("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, false);
	in_mode("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, false);
	in_mode("global, thread relaxed", CU_STREAM_CAPTURE_MODE_GLOBAL, true);
	while_another_captures("another thread globally", CU_STREAM_CAPTURE_MODE_GLOBAL,
			       CU_STREAM_CAPTURE_MODE_GLOBAL);
	while_another_captures("another thread globally, this one thread-local",
			       CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	while_another_captures("another thread globally, this one relaxed",
			       CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED);
	while_another_captures("another thread thread-locally", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
			       CU_STREAM_CAPTURE_MODE_GLOBAL);
	free_pool_memory_in_capture();
	capture_and_launch();
}
