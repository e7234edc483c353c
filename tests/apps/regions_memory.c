/* SPDX-License-Identifier: MIT */
/* Cases whose memory is ended by its address. */
#define _GNU_SOURCE
#include "regions.h"

#include <dlfcn.h>
#include <stdlib.h>

#define KIB 1024u
#define MIB (1024u * KIB)

/* ---- linear --------------------------------------------------------------------------------- */

static bool allocate(void)
{
	s.size = 4 * MIB;
	return OK(cuMemAlloc_v2(&s.at, s.size));
}

/* Neighbours in one 64 KiB page: each is a region of its own. */
static bool allocate_two_small(void)
{
	s.size = 1000;
	return OK(cuMemAlloc_v2(&s.at, s.size)) && OK(cuMemAlloc_v2(&s.other, s.size));
}

static bool allocate_pitch(void)
{
	size_t pitch = 0;
	bool done = OK(cuMemAllocPitch_v2(&s.at, &pitch, 3000, 1000, 4));

	s.size = pitch * 1000;
	return done;
}

static bool free_it(void)
{
	return OK(cuMemFree_v2(s.at));
}

static void clean_it(void)
{
	cuMemFree_v2(s.at);
}

static bool free_other(void)
{
	return OK(cuMemFree_v2(s.other));
}

static bool free_nothing(void)
{
	return OK(cuMemFree_v2(0));
}

static bool free_wrongly(void)
{
	return !OK(cuMemFree_v2(s.at + 512));
}

/* The driver keeps it until the stream's turn, so it can still be registered. */
static bool register_before_turn(void)
{
	pindown_region *region;

	if (pindown_api.get(s.at, s.size, 0, &region) != PINDOWN_OK)
		return false;
	pindown_api.put(region);
	return OK(cuStreamSynchronize(NULL));
}

static bool free_linear_async(void)
{
	return OK(cuMemFreeAsync(s.at, NULL)) && register_before_turn();
}

static bool free_linear_async_ptsz(void)
{
	return OK(cuMemFreeAsync_ptsz(s.at, CU_STREAM_LEGACY)) && register_before_turn();
}

static bool free_async_wrongly(void)
{
	return !OK(cuMemFreeAsync(s.at + 512, NULL));
}

static void clean_other(void)
{
	cuMemFree_v2(s.other);
}

/* ---- managed and host: can't be registered -------------------------------------------------- */

static bool allocate_managed(void)
{
	s.size = MIB;
	return OK(cuMemAllocManaged(&s.at, s.size, CU_MEM_ATTACH_GLOBAL));
}

static bool allocate_host(void)
{
	s.size = MIB;
	if (!OK(cuMemHostAlloc(&s.host, s.size, 0)))
		return false;
	s.at = (CUdeviceptr)(uintptr_t)s.host;
	return true;
}

static bool free_host(void)
{
	return OK(cuMemFreeHost(s.host));
}

static bool register_host(void)
{
	s.size = MIB;
	s.host = aligned_alloc(64 * KIB, s.size);
	s.at = (CUdeviceptr)(uintptr_t)s.host;
	return s.host != NULL && OK(cuMemHostRegister_v2(s.host, s.size, 0));
}

static bool unregister_host(void)
{
	bool done = OK(cuMemHostUnregister(s.host));

	free(s.host);
	return done;
}

static bool no_memory(void)
{
	s.at = 0x10000;
	s.size = 100;
	return true;
}

static bool nothing(void)
{
	return true;
}

/* ---- stream-ordered ------------------------------------------------------------------------- */

static bool allocate_async(void)
{
	s.size = 4 * MIB;
	return OK(cuMemAllocAsync(&s.at, s.size, NULL)) && OK(cuStreamSynchronize(NULL));
}

static bool free_async(void)
{
	return OK(cuMemFreeAsync(s.at, NULL));
}

static bool free_async_ptsz(void)
{
	return OK(cuMemFreeAsync_ptsz(s.at, NULL));
}

static bool allocate_from_pool(void)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s.device},
	};

	s.size = 4 * MIB;
	return OK(cuMemPoolCreate(&s.pool, &props)) &&
	       OK(cuMemAllocFromPoolAsync(&s.at, s.size, s.pool, NULL)) &&
	       OK(cuStreamSynchronize(NULL));
}

/* As another process would import it; real drivers may refuse that in the process that owns it. */
static bool import_from_pool(void)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s.device},
	};
	CUmemPoolPtrExportData data;
	CUmemoryPool imported;

	s.size = 4 * MIB;
	return OK(cuMemPoolCreate(&s.pool, &props)) &&
	       OK(cuMemAllocFromPoolAsync(&s.other, s.size, s.pool, NULL)) &&
	       OK(cuStreamSynchronize(NULL)) &&
	       OK(cuMemPoolExportToShareableHandle(&s.fd, s.pool, props.handleTypes, 0)) &&
	       OK(cuMemPoolExportPointer(&data, s.other)) &&
	       OK(cuMemPoolImportFromShareableHandle(&imported, (void *)(intptr_t)s.fd,
						     props.handleTypes, 0)) &&
	       OK(cuMemPoolImportPointer(&s.at, imported, &data));
}

static void clean_imported_pool(void)
{
	cuMemFreeAsync(s.other, NULL);
	cuStreamSynchronize(NULL);
	cuMemPoolDestroy(s.pool);
}

static bool trim_pool(void)
{
	return OK(cuMemPoolTrimTo(s.pool, 0));
}

static bool destroy_pool(void)
{
	return OK(cuMemFreeAsync(s.at, NULL)) && OK(cuStreamSynchronize(NULL)) &&
	       OK(cuMemPoolDestroy(s.pool));
}

static void clean_pool(void)
{
	cuMemFreeAsync(s.at, NULL);
	cuStreamSynchronize(NULL);
	cuMemPoolDestroy(s.pool);
}

static void clean_pool_only(void)
{
	cuStreamSynchronize(NULL);
	cuMemPoolDestroy(s.pool);
}

/* ---- graphs --------------------------------------------------------------------------------- */

/* An allocation in a capture takes effect at the launch, and so does a free. */
static bool instantiate(CUgraph graph, CUgraphExec *exec, unsigned long long flags)
{
	return OK(cuGraphInstantiateWithFlags(exec, graph, flags));
}

static bool capture_allocation(unsigned long long flags)
{
	s.size = 4 * MIB;
	return OK(cuStreamCreate(&s.stream, CU_STREAM_NON_BLOCKING)) &&
	       OK(cuStreamBeginCapture_v2(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) &&
	       OK(cuMemAllocAsync(&s.at, s.size, s.stream)) &&
	       OK(cuStreamEndCapture(s.stream, &s.graph)) && instantiate(s.graph, &s.exec, flags);
}

static bool capture_only(void)
{
	return capture_allocation(0);
}

static bool launch(void)
{
	return OK(cuGraphLaunch(s.exec, s.stream)) && OK(cuStreamSynchronize(s.stream));
}

static bool launch_allocation(void)
{
	return capture_allocation(0) && launch();
}

static bool launch_that_frees_itself(void)
{
	return capture_allocation(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) && launch();
}

static bool free_on_stream(void)
{
	return OK(cuMemFreeAsync(s.at, s.stream)) && OK(cuStreamSynchronize(s.stream));
}

static bool capture_free(void)
{
	return OK(cuStreamBeginCapture_v2(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) &&
	       OK(cuMemFreeAsync(s.at, s.stream)) &&
	       OK(cuStreamEndCapture(s.stream, &s.second_graph)) &&
	       instantiate(s.second_graph, &s.second_exec, 0);
}

/* Functions that some drivers lack. */
static void *of_driver(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

/* Drivers before CUDA 13.3 have no such call. */
static bool begin_again(CUgraph graph)
{
	typeof(cuStreamBeginRecaptureToGraph) *begin;

	*(void **)&begin = of_driver("cuStreamBeginRecaptureToGraph");
	return begin != NULL &&
	       OK(begin(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, graph, NULL, NULL));
}

static bool launch_allocation_captured_twice(void)
{
	CUgraph same;
	CUdeviceptr at;

	return capture_allocation(0) && OK(cuGraphExecDestroy(s.exec)) && begin_again(s.graph) &&
	       OK(cuMemAllocAsync(&at, s.size, s.stream)) && at == s.at &&
	       OK(cuStreamEndCapture(s.stream, &same)) && same == s.graph &&
	       instantiate(s.graph, &s.exec, 0) && launch();
}

static bool capture_free_again(void)
{
	return begin_again(s.second_graph) && OK(cuMemFreeAsync(s.at, s.stream)) &&
	       OK(cuStreamEndCapture(s.stream, &s.second_graph));
}

static bool launch_allocation_and_capture_free(void)
{
	return launch_allocation() && capture_free();
}

static bool launch_allocation_for_two_captures(void)
{
	return of_driver("cuStreamBeginRecaptureToGraph") != NULL &&
	       launch_allocation_and_capture_free();
}

static bool launch_free(void)
{
	return OK(cuGraphLaunch(s.second_exec, s.stream)) && OK(cuStreamSynchronize(s.stream));
}

static void clean_graph(void)
{
	cuGraphExecDestroy(s.exec);
	cuGraphDestroy(s.graph);
	if (s.second_graph != NULL) {
		cuGraphExecDestroy(s.second_exec);
		cuGraphDestroy(s.second_graph);
	}
	cuStreamDestroy_v2(s.stream);
}

static void clean_launched_graph(void)
{
	free_on_stream();
	clean_graph();
}

static void clean_captured_free(void)
{
	launch_free();
	clean_graph();
}

/* A launch of a graph that is unrelated to the region. */
static bool allocate_beside_graph(void)
{
	return launch_allocation() && free_on_stream() &&
	       OK(cuMemAllocAsync(&s.at, s.size, NULL)) && OK(cuStreamSynchronize(NULL));
}

static void clean_beside_graph(void)
{
	cuMemFreeAsync(s.at, NULL);
	cuStreamSynchronize(NULL);
	clean_launched_graph();
}

/* ---- virtual memory management -------------------------------------------------------------- */

static bool map_handle(CUdeviceptr at, size_t size, CUmemGenericAllocationHandle *handle)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s.device},
	};
	CUmemAccessDesc access = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s.device},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return OK(cuMemCreate(handle, size, &prop, 0)) && OK(cuMemMap(at, size, 0, *handle, 0)) &&
	       OK(cuMemSetAccess(at, size, &access, 1));
}

static bool map_one(void)
{
	s.size = 2 * MIB;
	return OK(cuMemAddressReserve(&s.at, 4 * MIB, 0, 0, 0)) &&
	       map_handle(s.at, 2 * MIB, &s.handle);
}

/* Two mappings side by side under one registration, as in grown segments. */
static bool map_two(void)
{
	bool done = map_one() && map_handle(s.at + 2 * MIB, 2 * MIB, &s.second);

	s.size = 4 * MIB;
	return done;
}

/* Two mappings side by side; only the first is registered. */
static bool map_two_register_first(void)
{
	bool done = map_two();

	s.size = 2 * MIB;
	return done;
}

static bool unmap_first(void)
{
	return OK(cuMemUnmap(s.at, 2 * MIB));
}

static bool unmap_second(void)
{
	return OK(cuMemUnmap(s.at + 2 * MIB, 2 * MIB));
}

static bool unmap_both(void)
{
	return OK(cuMemUnmap(s.at, 4 * MIB));
}

static bool release_handle(void)
{
	bool done = OK(cuMemRelease(s.handle));

	s.handle = 0;
	return done;
}

/* Also bound to a multicast object, by the newer call if there is one. */
static bool map_and_bind(void)
{
	CUresult (*create)(CUmemGenericAllocationHandle *, const CUmulticastObjectProp *);
	CUresult (*add)(CUmemGenericAllocationHandle, CUdevice);
	typeof(cuMulticastBindAddr_v2) *bind_new;
	CUmulticastObjectProp prop = {.numDevices = 1, .size = 2 * MIB};

	*(void **)&create = of_driver("cuMulticastCreate");
	*(void **)&add = of_driver("cuMulticastAddDevice");
	*(void **)&bind_new = of_driver("cuMulticastBindAddr_v2");
	if (create == NULL || add == NULL || !map_one() || !OK(create(&s.second, &prop)) ||
	    !OK(add(s.second, s.device)))
		return false;
	return OK(bind_new != NULL ? bind_new(s.second, s.device, 0, s.at, s.size, 0)
				   : cuMulticastBindAddr(s.second, 0, s.at, s.size, 0));
}

static bool unbind(void)
{
	return OK(cuMulticastUnbind(s.second, s.device, 0, s.size));
}

static void clean_vmm(void)
{
	cuMemUnmap(s.at, 2 * MIB);
	cuMemUnmap(s.at + 2 * MIB, 2 * MIB);
	if (s.handle != 0)
		cuMemRelease(s.handle);
	if (s.second != 0)
		cuMemRelease(s.second);
	cuMemAddressFree(s.at, 4 * MIB);
}

/* clang-format off */
const struct regions_case regions_memory_cases[] = {
	CASE("linear, cuMemFree", allocate, free_it, GONE),
	CASE("linear, cuMemFree of a neighbour in its page", allocate_two_small, free_other, KEPT,
	 .clean = clean_it),
	CASE("linear, cuMemFree beside a neighbour", allocate_two_small, free_it, GONE,
	 .clean = clean_other),
	CASE("linear, cuMemFree of 0", allocate, free_nothing, KEPT, .clean = clean_it),
	CASE("linear, cuMemFree that fails", allocate, free_wrongly, USABLE, .clean = clean_it),
	CASE("linear, cuMemFreeAsync", allocate, free_linear_async, GONE),
	CASE("linear, cuMemFreeAsync_ptsz", allocate, free_linear_async_ptsz, GONE),
	CASE("linear, cuMemFreeAsync that fails", allocate, free_async_wrongly, USABLE,
	 .clean = clean_it),
	CASE("pitch, cuMemFree", allocate_pitch, free_it, GONE),
	CASE("pitch, cuMemFreeAsync", allocate_pitch, free_linear_async, GONE),
	CASE("managed", allocate_managed, free_it, REFUSED, .refusal = PINDOWN_ERR_MANAGED),
	CASE("host, cuMemHostAlloc", allocate_host, free_host, REFUSED,
	 .refusal = PINDOWN_ERR_HOST),
	CASE("host, cuMemHostRegister", register_host, unregister_host, REFUSED,
	 .refusal = PINDOWN_ERR_HOST),
	CASE("no memory at all", no_memory, nothing, REFUSED, .refusal = PINDOWN_ERR_NOT_DEVICE),
	CASE("stream-ordered, cuMemFreeAsync", allocate_async, free_async, GONE),
	CASE("stream-ordered, cuMemFreeAsync_ptsz", allocate_async, free_async_ptsz, GONE),
	CASE("stream-ordered, cuMemFree", allocate_async, free_it, GONE),
	CASE("pool, cuMemFreeAsync", allocate_from_pool, free_async, GONE,
	 .clean = clean_pool_only),
	CASE("another process's pool, cuMemFreeAsync", import_from_pool, free_async, GONE,
	 .clean = clean_imported_pool, .unexportable = true),
	CASE("pool, cuMemPoolTrimTo", allocate_from_pool, trim_pool, KEPT, .clean = clean_pool),
	CASE("pool, cuMemPoolDestroy", allocate_from_pool, destroy_pool, GONE),
	CASE("a graph's, not launched yet", capture_only, launch, REFUSED,
	 .refusal = PINDOWN_ERR_NOT_DEVICE, .clean = clean_launched_graph),
	CASE("a graph's, cuMemFreeAsync", launch_allocation, free_on_stream, GONE,
	 .clean = clean_graph, .is_volatile = true),
	CASE("a graph's, cuMemFree", launch_allocation, free_it, GONE, .clean = clean_graph,
	 .is_volatile = true),
	CASE("a graph's, cuMemFreeAsync that is captured", launch_allocation, capture_free, KEPT,
	 .clean = clean_captured_free, .is_volatile = true),
	CASE("a graph's, cuGraphLaunch of the captured free", launch_allocation_and_capture_free,
	 launch_free, GONE, .clean = clean_graph, .is_volatile = true),
	CASE("a graph's that is captured twice, cuMemFreeAsync", launch_allocation_captured_twice,
	 free_on_stream, GONE, .clean = clean_graph, .is_volatile = true),
	CASE("a graph's, cuMemFreeAsync that is captured twice", launch_allocation_for_two_captures,
	 capture_free_again, KEPT, .clean = clean_captured_free, .is_volatile = true),
	CASE("a graph's, launched anew with AUTO_FREE_ON_LAUNCH", launch_that_frees_itself, launch,
	 GONE, .clean = clean_launched_graph, .is_volatile = true, .lingers = true),
	CASE("stream-ordered, cuGraphLaunch of a graph beside it", allocate_beside_graph, launch,
	 KEPT, .clean = clean_beside_graph),
	CASE("mapped, cuMemUnmap", map_one, unmap_first, GONE, .clean = clean_vmm),
	CASE("mapped, cuMemRelease", map_one, release_handle, KEPT, .clean = clean_vmm),
	CASE("mapped, cuMulticastUnbind", map_and_bind, unbind, KEPT, .clean = clean_vmm),
	CASE("two mappings, cuMemUnmap of the first", map_two, unmap_first, GONE,
	 .clean = clean_vmm),
	CASE("two mappings, cuMemUnmap of the second", map_two, unmap_second, GONE,
	 .clean = clean_vmm),
	CASE("two mappings, cuMemUnmap of both", map_two, unmap_both, GONE, .clean = clean_vmm),
	CASE("the first of two mappings, cuMemUnmap of the second", map_two_register_first,
	 unmap_second, KEPT, .clean = clean_vmm),
	{.name = NULL},
};
/* clang-format on */
