/* SPDX-License-Identifier: MIT */
/* Contexts of each kind, and the memory that ends with them. */
#include <pthread.h>
#include <string.h>

#include "facts.h"

static void *use_destroyed(void *arg)
{
	CUcontext context = NULL;
	pthread_barrier_t *barrier = ((void **)arg)[0];
	CUdeviceptr ptr;
	size_t left;
	CUdevice device;

	NEED(cuCtxSetCurrent(((void **)arg)[1]));
	pthread_barrier_wait(barrier);
	pthread_barrier_wait(barrier);
	ASK_ABOUT("elsewhere destroyed: cuCtxGetCurrent", cuCtxGetCurrent(&context));
	say("elsewhere destroyed: still current", "%d", context == ((void **)arg)[1]);
	ASK_ABOUT("elsewhere destroyed: cuMemAlloc", cuMemAlloc_v2(&ptr, 4096));
	ASK_ABOUT("elsewhere destroyed: cuMemFree(0)", cuMemFree_v2(0));
	ASK_ABOUT("elsewhere destroyed: cuMemGetInfo", cuMemGetInfo_v2(&left, NULL));
	ASK_ABOUT("elsewhere destroyed: cuCtxGetDevice", cuCtxGetDevice(&device));
	ASK_ABOUT("elsewhere destroyed: cuCtxSetCurrent(NULL)", cuCtxSetCurrent(NULL));
	return NULL;
}

void facts_contexts(void)
{
	CUcontext primary = begin(), a, b, now;
	CUdeviceptr linear, managed, pool, old;
	pthread_barrier_t barrier;
	pthread_t thread;
	void *host, *args[2] = {&barrier, NULL};
	uint64_t id;

	ASK(cuCtxCreate_v2(NULL, 0, 0));
	ASK(cuCtxCreate_v2(&a, 0, 99));
	ASK(cuCtxCreate_v2(&a, 0x8000, 0));
	NEED(cuCtxCreate_v2(&a, 0, 0));
	NEED(cuCtxGetCurrent(&now));
	say("a new context is current", "%d", now == a);
	NEED(cuMemAlloc_v2(&linear, MIB));
	NEED(cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	NEED(cuMemAllocHost_v2(&host, MIB));
	NEED(cuMemAllocAsync(&pool, MIB, NULL));
	NEED(cuStreamSynchronize(NULL));
	NEED(cuCtxPushCurrent_v2(primary));
	ASK_ABOUT("free of another context's memory",
		  (cuMemAlloc_v2(&old, 4096), cuCtxPushCurrent_v2(a), cuMemFree_v2(old)));
	NEED(cuCtxPopCurrent_v2(NULL));
	NEED(cuCtxPopCurrent_v2(NULL));
	pthread_barrier_init(&barrier, NULL, 2);
	args[1] = a;
	pthread_create(&thread, NULL, use_destroyed, args);
	pthread_barrier_wait(&barrier);
	ASK_ABOUT("destroy", cuCtxDestroy_v2(a));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	NEED(cuCtxGetCurrent(&now));
	say("after destroy, current", "%s",
	    now == primary ? "the one before"
	    : now	   ? "other"
			   : "none");
	ASK_ABOUT("its linear memory",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, linear));
	ASK_ABOUT("its managed memory",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, managed));
	ASK_ABOUT("its host memory",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)host));
	ASK_ABOUT("its pool memory",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pool));
	ASK_ABOUT("free of its linear memory", (cuCtxSetCurrent(primary), cuMemFree_v2(linear)));
	ASK_ABOUT("free of its pool memory", cuMemFreeAsync(pool, NULL));
	ASK_ABOUT("destroy of the primary context", cuCtxDestroy_v2(primary));
	NEED(cuCtxCreate_v2(&b, 0, 0));
	ASK(cuCtxPopCurrent_v2(&now));
	say("popped", "%d", now == b);
	ASK_ABOUT("destroy of one that is not current", cuCtxDestroy_v2(b));
	ASK(cuCtxDestroy_v2(NULL));
	ASK(cuCtxPushCurrent_v2(NULL));
	ASK(cuCtxSetCurrent(NULL));
	ASK(cuCtxPopCurrent_v2(&now));
	NEED(cuCtxCreate_v2(&a, 0, 0));
	ASK(cuCtxAttach(&b, 0));
	say("attached is current", "%d", a == b);
	ASK(cuCtxDetach(a));
	ASK_ABOUT("still usable", cuMemAlloc_v2(&linear, 4096));
	ASK_ABOUT("second detach", cuCtxDetach(a));
	ASK_ABOUT("memory after it",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, linear));
}

static void say_state(const char *when)
{
	unsigned flags;
	int active = -1;

	cuDevicePrimaryCtxGetState(0, &flags, &active);
	say(when, "%s", active ? "active" : "not active");
}

void facts_primary(void)
{
	CUcontext context, again;
	CUdeviceptr ptr, fresh;
	uint64_t id;

	NEED(cuInit(0));
	ASK_ABOUT("release without retain", cuDevicePrimaryCtxRelease_v2(0));
	ASK_ABOUT("reset without retain", cuDevicePrimaryCtxReset_v2(0));
	ASK(cuDevicePrimaryCtxRetain(NULL, 0));
	ASK(cuDevicePrimaryCtxRetain(&context, 99));
	say_state("at first");
	NEED(cuDevicePrimaryCtxRetain(&context, 0));
	NEED(cuDevicePrimaryCtxRetain(&again, 0));
	say("the same twice", "%d", context == again);
	say_state("retained twice");
	NEED(cuCtxSetCurrent(context));
	NEED(cuMemAlloc_v2(&ptr, MIB));
	NEED(cuDevicePrimaryCtxRelease_v2(0));
	say_state("released once");
	ASK_ABOUT("memory then", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	NEED(cuDevicePrimaryCtxRelease_v2(0));
	say_state("released twice");
	ASK_ABOUT("memory then", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	ASK_ABOUT("release a third time", cuDevicePrimaryCtxRelease_v2(0));
	NEED(cuCtxGetCurrent(&again));
	say("still current", "%d", context == again);
	ASK_ABOUT("cuMemAlloc then", cuMemAlloc_v2(&fresh, 4096));
	NEED(cuDevicePrimaryCtxRetain(&again, 0));
	say("the same handle", "%d", context == again);
	ASK_ABOUT("cuMemAlloc after a new retain", cuMemAlloc_v2(&fresh, MIB));
	say("at the same address", "%d", fresh == ptr);
	NEED(cuDevicePrimaryCtxRetain(&again, 0));
	ASK_ABOUT("reset", cuDevicePrimaryCtxReset_v2(0));
	say_state("after reset");
	ASK_ABOUT("memory then", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, fresh));
	ASK_ABOUT("cuMemAlloc then", cuMemAlloc_v2(&fresh, 4096));
	ASK_ABOUT("release after reset", cuDevicePrimaryCtxRelease_v2(0));
	say_state("after that");
	NEED(cuDevicePrimaryCtxRetain(&again, 0));
	say("the same handle", "%d", context == again);
	say_state("retained after reset");
	ASK_ABOUT("cuMemAlloc then", cuMemAlloc_v2(&fresh, 4096));
}

void facts_green(void)
{
	CUdevResource resource;
	CUdevResourceDesc description;
	CUgreenCtx green;
	CUcontext primary = begin(), context, owner = NULL;
	CUdeviceptr ptr, pool;
	uint64_t id;

	NEED(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	NEED(cuDevResourceGenerateDesc(&description, &resource, 1));
	ASK(cuGreenCtxCreate(&green, description, 0, 0));
	NEED(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	NEED(cuCtxFromGreenCtx(&context, green));
	say("is the primary context", "%d", context == primary);
	NEED(cuCtxSetCurrent(context));
	NEED(cuMemAlloc_v2(&ptr, MIB));
	NEED(cuMemAllocAsync(&pool, MIB, NULL));
	cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, ptr);
	say("its memory's context", "%s",
	    owner == context   ? "the green one"
	    : owner == primary ? "the primary one"
			       : "other");
	ASK_ABOUT("destroy of its context", cuCtxDestroy_v2(context));
	NEED(cuCtxSetCurrent(primary));
	ASK_ABOUT("destroy", cuGreenCtxDestroy(green));
	ASK_ABOUT("its memory then",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	ASK_ABOUT("free of it", cuMemFree_v2(ptr));
	ASK_ABOUT("its pool memory then",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pool));
}
