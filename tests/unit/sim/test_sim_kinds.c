/* SPDX-License-Identifier: MIT */
/* The simulated driver's other kinds of memory, and what ends each. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/support/sim_support.h"

static CUcontext context_of(CUdeviceptr ptr)
{
	CUcontext context = (CUcontext)1;

	ok(cu(cuPointerGetAttribute)(&context, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	return context;
}

static int rdma_capable(CUdeviceptr ptr)
{
	int capable = -1;

	ok(cu(cuPointerGetAttribute)(&capable, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
				     ptr));
	return capable;
}

/* ---- pools ---------------------------------------------------------------------------------- */

START_TEST(pool_memory_has_no_context_and_a_new_id_each_time)
{
	CUdeviceptr ptr, again;
	uint64_t id;

	start();
	ok(cu(cuMemAllocAsync)(&ptr, MIB, NULL));
	ck_assert_ptr_eq(context_of(ptr), NULL);
	ck_assert_int_eq(rdma_capable(ptr), 0);
	ok(set_sync_memops(ptr));
	ok(try_export(ptr & ~(64 * KIB - 1), MIB));
	id = id_of(ptr);
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ck_assert_uint_eq(id_of(ptr), 0);
	ok(cu(cuMemAllocAsync_ptsz)(&again, MIB, NULL));
	ck_assert_uint_eq(again, ptr);
	ck_assert_uint_gt(id_of(again), id);
	refused(cu(cuMemFreeAsync)(ptr + 512, NULL), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemFree_v2)(again));
	refused(cu(cuMemFreeAsync_ptsz)(again, NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

static cuuint64_t pool_figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
	cuuint64_t value = 0;

	ok(cu(cuMemPoolGetAttribute)(pool, attribute, &value));
	return value;
}

START_TEST(pools_keep_memory_until_they_are_trimmed_or_waited_for)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	cuuint64_t threshold = 1ull << 40;
	uint64_t before;
	CUmemoryPool pool;
	CUdeviceptr ptr;

	start();
	before = free_bytes();
	ok(cu(cuMemPoolCreate)(&pool, &props));
	ok(cu(cuMemAllocFromPoolAsync)(&ptr, 16 * MIB, pool, NULL));
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ck_assert_uint_eq(pool_figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	ck_assert_uint_eq(free_bytes(), before - 32 * MIB);
	ok(cu(cuStreamSynchronize)(NULL));
	ck_assert_uint_eq(free_bytes(), before);
	ok(cu(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	ok(cu(cuMemAllocFromPoolAsync)(&ptr, 16 * MIB, pool, NULL));
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ok(cu(cuCtxSynchronize)());
	ck_assert_uint_eq(pool_figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	ok(cu(cuMemPoolTrimTo)(pool, 0));
	ck_assert_uint_eq(free_bytes(), before);
	ok(cu(cuMemAllocFromPoolAsync)(&ptr, 16 * MIB, pool, NULL));
	ok(cu(cuMemPoolDestroy)(pool));
	ck_assert_uint_ne(id_of(ptr), 0);
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

START_TEST(pool_memory_is_exported_from_where_its_chunk_begins)
{
	CUdeviceptr first, second, chunk;
	int fd;

	start();
	ok(cu(cuMemAllocAsync)(&first, MIB, NULL));
	ok(cu(cuMemAllocAsync)(&second, MIB, NULL));
	ok(cu(cuPointerGetAttribute)(&chunk, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, second));
	ck_assert_uint_eq(chunk, first);
	refused(try_export(second, MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemFreeAsync)(first, NULL));
	refused(try_export(chunk, MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemsetD8_v2)(second, 0x6b, MIB));
	fd = export_of(chunk, second + MIB - chunk);
	ck_assert_int_eq(byte_of(fd, second - chunk), 0x6b);
	close(fd);
}
END_TEST

START_TEST(linear_memory_freed_in_a_stream_lives_until_it_is_waited_for)
{
	CUdeviceptr ptr;

	start();
	ptr = allocate(MIB);
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ck_assert_uint_ne(id_of(ptr), 0);
	ok(cu(cuStreamSynchronize)(NULL));
	ck_assert_uint_eq(id_of(ptr), 0);
	ptr = allocate(MIB);
	ok(cu(cuMemFreeAsync)(ptr, NULL));
	ok(cu(cuDevicePrimaryCtxRelease)(0));
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
}
END_TEST

/* ---- virtual memory management -------------------------------------------------------------- */

static CUmemGenericAllocationHandle create(uint64_t size)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;

	ok(cu(cuMemCreate)(&handle, size, &prop, 0));
	return handle;
}

static void map(CUdeviceptr va, uint64_t size, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	ok(cu(cuMemMap)(va, size, 0, handle, 0));
	ok(cu(cuMemSetAccess)(va, size, &access, 1));
}

START_TEST(mapped_memory_ends_with_its_mapping_alone)
{
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	CUdeviceptr va;
	uint64_t id;

	start();
	ok(cu(cuCtxCreate_v2)(&context, 0, 0));
	handle = create(2 * MIB);
	ok(cu(cuMemAddressReserve)(&va, 2 * MIB, 0, 0, 0));
	ck_assert_uint_eq(id_of(va), 0);
	map(va, 2 * MIB, handle);
	refused(set_sync_memops(va), CUDA_ERROR_NOT_SUPPORTED);
	id = id_of(va);
	ck_assert_uint_ne(id, 0);
	refused(cu(cuMemFree_v2)(va), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuCtxDestroy_v2)(context));
	ck_assert_uint_eq(id_of(va), id);
	ok(cu(cuMemUnmap)(va, 2 * MIB));
	ck_assert_uint_eq(id_of(va), 0);
	map(va, 2 * MIB, handle);
	ck_assert_uint_gt(id_of(va), id);
	ok(cu(cuMemRelease)(handle));
	ck_assert_uint_ne(id_of(va), 0);
	refused(cu(cuMemAddressFree)(va, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemUnmap)(va, 2 * MIB));
	ok(cu(cuMemAddressFree)(va, 2 * MIB));
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
}
END_TEST

START_TEST(an_export_may_cross_two_handles_in_any_order)
{
	CUmemGenericAllocationHandle first, second;
	CUdeviceptr va, base;
	size_t size;
	int fd;

	start();
	second = create(2 * MIB); /* its memory lies before the memory of the first */
	first = create(4 * MIB);
	ok(cu(cuMemAddressReserve)(&va, 8 * MIB, 0, 0, 0));
	map(va, 4 * MIB, first);
	map(va + 4 * MIB, 2 * MIB, second);
	ok(cu(cuMemsetD8_v2)(va, 1, 4 * MIB));
	ok(cu(cuMemsetD8_v2)(va + 4 * MIB, 2, 2 * MIB));
	ok(cu(cuMemGetAddressRange_v2)(&base, &size, va + MIB));
	ck_assert_uint_eq(base, va);
	ck_assert_uint_eq(size, 4 * MIB);
	fd = export_of(va + 2 * MIB, 4 * MIB);
	ck_assert_int_eq(byte_of(fd, 0), 1);
	ck_assert_int_eq(byte_of(fd, 2 * MIB), 2);
	ck_assert_int_eq(byte_of(fd, 4 * MIB - 1), 2);
	refused(try_export(va, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemUnmap)(va, 6 * MIB));
	ok(cu(cuMemRelease)(first));
	ok(cu(cuMemRelease)(second));
	ck_assert_uint_eq(cu(sim_kept_bytes)(0), 6 * MIB);
	close(fd);
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
}
END_TEST

/* ---- memory that the host can touch --------------------------------------------------------- */

START_TEST(host_and_managed_memory_can_be_touched_but_not_exported)
{
	CUdeviceptr managed;
	void *host, *own = aligned_alloc(4096, 64 * KIB);

	start();
	ok(cu(cuMemAllocManaged)(&managed, 64 * KIB, CU_MEM_ATTACH_GLOBAL));
	ok(cu(cuMemHostAlloc)(&host, 64 * KIB, CU_MEMHOSTALLOC_DEVICEMAP));
	memset((void *)managed, 3, 64 * KIB);
	memset(host, 4, 64 * KIB);
	ok(cu(cuMemcpy)((CUdeviceptr)host, managed, 10));
	ck_assert_int_eq(*(char *)host, 3);
	refused(try_export(managed, 64 * KIB), CUDA_ERROR_INVALID_VALUE);
	refused(try_export((CUdeviceptr)host, 64 * KIB), CUDA_ERROR_INVALID_VALUE);
	ok(set_sync_memops(managed));
	ok(set_sync_memops((CUdeviceptr)host));
	refused(cu(cuMemFreeHost)((void *)managed), CUDA_ERROR_INVALID_VALUE);
	refused(cu(cuMemFree_v2)((CUdeviceptr)host), CUDA_ERROR_INVALID_VALUE);
	ok(cu(cuMemFree_v2)(managed));
	ok(cu(cuMemFreeHost)(host));
	ck_assert_uint_eq(id_of((CUdeviceptr)host), 0);
	ok(cu(cuMemHostRegister_v2)(own, 64 * KIB, 0));
	ck_assert_uint_ne(id_of((CUdeviceptr)own + 5), 0);
	refused(cu(cuMemHostRegister_v2)(own, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ok(cu(cuMemHostUnregister)(own));
	refused(cu(cuMemHostUnregister)(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ck_assert_uint_eq(id_of((CUdeviceptr)own), 0);
	free(own);
}
END_TEST

/* ---- contexts and code ---------------------------------------------------------------------- */

START_TEST(a_destroyed_context_takes_its_memory_along)
{
	CUdeviceptr linear, managed, pool, elsewhere;
	CUcontext primary = start(), context;
	uint64_t before;
	void *host;
	int fd;

	elsewhere = allocate(MIB);
	before = free_bytes();
	ok(cu(cuCtxCreate_v2)(&context, 0, 0));
	linear = allocate(2 * MIB);
	allocate(100);
	allocate(200);
	ok(cu(cuMemAllocManaged)(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
	ok(cu(cuMemAllocHost_v2)(&host, MIB));
	ok(cu(cuMemAllocAsync)(&pool, MIB, NULL));
	ck_assert_ptr_eq(context_of(linear), context);
	fd = export_of(linear, 2 * MIB);
	ok(cu(cuCtxDestroy_v2)(context));
	ck_assert_uint_eq(id_of(linear), 0);
	ck_assert_uint_eq(id_of(managed), 0);
	ck_assert_uint_eq(id_of((CUdeviceptr)host), 0);
	ck_assert_uint_ne(id_of(pool), 0);
	ck_assert_uint_ne(id_of(elsewhere), 0);
	ok(cu(cuCtxSetCurrent)(primary));
	ok(cu(cuMemFreeAsync)(pool, NULL));
	ok(cu(cuCtxSynchronize)());
	ck_assert_uint_eq(free_bytes(), before - 2 * MIB);
	close(fd);
	ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

START_TEST(a_primary_context_ends_at_zero_or_when_it_is_reset)
{
	CUcontext context = start(), again;
	CUdeviceptr ptr = allocate(MIB);
	unsigned flags;
	int active;

	ok(cu(cuDevicePrimaryCtxRetain)(&again, 0));
	ck_assert_ptr_eq(again, context);
	ok(cu(cuDevicePrimaryCtxRelease_v2)(0));
	ck_assert_uint_ne(id_of(ptr), 0);
	ok(cu(cuDevicePrimaryCtxRelease)(0));
	ck_assert_uint_eq(id_of(ptr), 0);
	ok(cu(cuDevicePrimaryCtxGetState)(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	ok(cu(cuDevicePrimaryCtxRetain)(&again, 0));
	ck_assert_ptr_eq(again, context);
	ck_assert_uint_eq(id_of(ptr), 0);
	ptr = allocate(MIB);
	ok(cu(cuDevicePrimaryCtxReset)(0));
	ck_assert_uint_eq(id_of(ptr), 0);
}
END_TEST

START_TEST(variables_end_with_their_module)
{
	static const char text[] = ".version 7.0\n.target sm_70\n"
				   ".visible .global .align 4 .b8 table[1000];\n.global .u64 one;\n"
				   ".visible .entry kernel() { ld.global.u32 %r1, [x]; ret; }\n";
	CUmodule module, its;
	CUfunction function;
	CUdeviceptr table;
	CUlibrary library;
	CUkernel kernel;
	size_t size;

	start();
	ok(cu(cuModuleLoadData)(&module, text));
	ok(cu(cuModuleGetGlobal_v2)(&table, &size, module, "table"));
	ck_assert_uint_eq(size, 1000);
	ck_assert_uint_ne(id_of(table), 0);
	ok(cu(cuModuleGetGlobal_v2)(NULL, &size, module, "one"));
	ck_assert_uint_eq(size, 8);
	refused(cu(cuModuleGetGlobal_v2)(NULL, &size, module, "x"), CUDA_ERROR_NOT_FOUND);
	ok(cu(cuModuleGetFunction)(&function, module, "kernel"));
	refused(cu(cuModuleGetFunction)(&function, module, "kern"), CUDA_ERROR_NOT_FOUND);
	ok(cu(cuFuncGetModule)(&its, function));
	ck_assert_ptr_eq(its, module);
	refused(cu(cuFuncGetModule)(&its, NULL), CUDA_ERROR_INVALID_HANDLE);
	ok(cu(cuModuleUnload)(module));
	ck_assert_uint_eq(id_of(table), 0);
	ok(cu(cuLibraryLoadData)(&library, "\177ELF", NULL, NULL, 0, NULL, NULL, 0));
	ok(cu(cuLibraryGetGlobal)(&table, &size, library, "sim_global"));
	ck_assert_uint_ne(id_of(table), 0);
	ok(cu(cuLibraryUnload)(library));
	ck_assert_uint_eq(id_of(table), 0);
	ok(cu(cuLibraryLoadData)(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	ok(cu(cuLibraryGetKernel)(&kernel, library, "kernel"));
	ok(cu(cuKernelGetFunction)(&function, kernel));
	ok(cu(cuFuncGetModule)(&its, function));
	ok(cu(cuLibraryGetModule)(&module, library));
	ck_assert_ptr_eq(its, module);
	ok(cu(cuModuleGetGlobal_v2)(&table, &size, its, "table"));
	ok(cu(cuLibraryUnload)(library));
	ck_assert_uint_eq(id_of(table), 0);
}
END_TEST

START_TEST(a_mapped_resource_ends_with_unmap)
{
	CUresult (*register_buffer)(CUgraphicsResource *, unsigned, unsigned) = (CUresult(*)(
		CUgraphicsResource *, unsigned, unsigned))sim_symbol("cuGraphicsGLRegisterBuffer");
	CUgraphicsResource resource;
	CUdeviceptr ptr;
	size_t size;
	uint64_t id;

	start();
	ok(register_buffer(&resource, 3, 0));
	refused(cu(cuGraphicsResourceGetMappedPointer_v2)(&ptr, &size, resource),
		CUDA_ERROR_NOT_MAPPED);
	ok(cu(cuGraphicsMapResources)(1, &resource, NULL));
	ok(cu(cuGraphicsResourceGetMappedPointer_v2)(&ptr, &size, resource));
	id = id_of(ptr);
	ck_assert_uint_ne(id, 0);
	ok(cu(cuMemsetD8_v2)(ptr, 7, size));
	ok(cu(cuGraphicsUnmapResources)(1, &resource, NULL));
	ck_assert_uint_eq(id_of(ptr), 0);
	ok(cu(cuGraphicsMapResources_ptsz)(1, &resource, NULL));
	ok(cu(cuGraphicsResourceGetMappedPointer_v2)(&ptr, &size, resource));
	ck_assert_uint_gt(id_of(ptr), id);
	ok(cu(cuGraphicsUnregisterResource)(resource));
	ck_assert_uint_eq(id_of(ptr), 0);
	ck_assert_uint_eq(cu(sim_used_bytes)(0), 0);
}
END_TEST

START_TEST(a_checkpoint_moves_memory_and_leaves_exports_behind)
{
	CUdeviceptr ptr;
	uint64_t before;
	int fd;

	start();
	before = free_bytes();
	ptr = allocate(2 * MIB);
	ok(cu(cuMemsetD8_v2)(ptr, 1, 2 * MIB));
	fd = export_of(ptr, 2 * MIB);
	ok(cu(cuCheckpointProcessLock)(getpid(), NULL));
	ok(cu(cuCheckpointProcessCheckpoint)(getpid(), NULL));
	refused(cu(cuCheckpointProcessUnlock)(getpid(), NULL), CUDA_ERROR_ILLEGAL_STATE);
	ok(cu(cuCheckpointProcessRestore)(getpid(), NULL));
	ok(cu(cuCheckpointProcessUnlock)(getpid(), NULL));
	ok(cu(cuMemsetD8_v2)(ptr + 1, 2, 1));
	ck_assert_int_eq(byte_of(fd, 0), 1);
	ck_assert_int_eq(byte_of(fd, 1), 1);
	close(fd);
	fd = export_of(ptr, 2 * MIB);
	ck_assert_int_eq(byte_of(fd, 0), 1);
	ck_assert_int_eq(byte_of(fd, 1), 2);
	close(fd);
	ok(cu(cuMemFree_v2)(ptr));
	ck_assert_uint_eq(free_bytes(), before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated driver: kinds of memory");
	TCase *tests = suite_case(suite, "kinds", NULL, NULL);

	tcase_add_test(tests, pool_memory_has_no_context_and_a_new_id_each_time);
	tcase_add_test(tests, pools_keep_memory_until_they_are_trimmed_or_waited_for);
	tcase_add_test(tests, pool_memory_is_exported_from_where_its_chunk_begins);
	tcase_add_test(tests, linear_memory_freed_in_a_stream_lives_until_it_is_waited_for);
	tcase_add_test(tests, mapped_memory_ends_with_its_mapping_alone);
	tcase_add_test(tests, an_export_may_cross_two_handles_in_any_order);
	tcase_add_test(tests, host_and_managed_memory_can_be_touched_but_not_exported);
	tcase_add_test(tests, a_destroyed_context_takes_its_memory_along);
	tcase_add_test(tests, a_primary_context_ends_at_zero_or_when_it_is_reset);
	tcase_add_test(tests, variables_end_with_their_module);
	tcase_add_test(tests, a_mapped_resource_ends_with_unmap);
	tcase_add_test(tests, a_checkpoint_moves_memory_and_leaves_exports_behind);
	return run_suite(suite);
}
