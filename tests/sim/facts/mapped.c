/* SPDX-License-Identifier: MIT */
/* Pools and virtual memory management. */
#include <unistd.h>

#include "facts.h"

static uint64_t mapping_of(CUdeviceptr ptr, CUdeviceptr *base)
{
	uint64_t size = 0;

	NEED(cuPointerGetAttribute(base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, ptr));
	NEED(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, ptr));
	return size;
}

/* Allocations across the border of two chunks. */
static void ask_across_chunks(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr at[3], base;
	cuuint64_t threshold = 1ull << 40;
	CUmemoryPool pool;
	uint64_t size;
	int i;

	NEED(cuMemPoolCreate(&pool, &props));
	NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	NEED(cuMemAllocFromPoolAsync(&at[0], 60 * MIB, pool, NULL));
	NEED(cuMemFreeAsync(at[0], NULL));
	for (i = 0; i < 3; i++)
		NEED(cuMemAllocFromPoolAsync(&at[i], 20 * MIB, pool, NULL));
	for (i = 0; i < 3; i++) {
		size = mapping_of(at[i], &base);
		say("20 MiB", "%llu MiB from the first; its mapping %llu MiB before, %llu MiB",
		    (unsigned long long)((at[i] - at[0]) / MIB),
		    (unsigned long long)((at[i] - base) / MIB), (unsigned long long)(size / MIB));
		ASK_ABOUT("itself", export_range(at[i], 20 * MIB));
		ASK_ABOUT("from its chunk's start", export_range(base, at[i] - base + 20 * MIB));
		size = mapping_of(at[i] + 19 * MIB, &base);
		say("mapping of its last MiB", "%lld MiB before, %llu MiB",
		    (long long)(at[i] + 19 * MIB - base) / (long long)MIB,
		    (unsigned long long)(size / MIB));
	}
	ASK_ABOUT("the first two", export_range(at[0], 40 * MIB));
	ASK_ABOUT("the last two", export_range(at[1], 40 * MIB));
}

/*
 * Pool memory lies in chunks, several allocations in one. Which ranges can be exported? First four
 * allocations of 1 MiB at the start of a chunk, then small ones, then a large one.
 */
void facts_pool_exports(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr at[4], small[3], base, large;
	CUmemoryPool pool;
	uint64_t size;
	int i;

	begin();
	NEED(cuMemPoolCreate(&pool, &props));
	for (i = 0; i < 4; i++)
		NEED(cuMemAllocFromPoolAsync(&at[i], MIB, pool, NULL));
	size = mapping_of(at[1], &base);
	say("mapping", "%llu MiB, %lld before the second", (unsigned long long)(size / MIB),
	    (long long)(at[1] - base));
	say("they lie in a row", "%d", at[3] == at[0] + 3 * MIB);
	ASK_ABOUT("first", export_range(at[0], MIB));
	ASK_ABOUT("page of the first", export_range(at[0], 64 * KIB));
	ASK_ABOUT("inside of the first", export_range(at[0] + 64 * KIB, 64 * KIB));
	ASK_ABOUT("second", export_range(at[1], MIB));
	ASK_ABOUT("page of the second", export_range(at[1], 64 * KIB));
	ASK_ABOUT("inside of the second", export_range(at[1] + 64 * KIB, 64 * KIB));
	ASK_ABOUT("third", export_range(at[2], MIB));
	ASK_ABOUT("third and fourth", export_range(at[2], 2 * MIB));
	ASK_ABOUT("first and second", export_range(at[0], 2 * MIB));
	ASK_ABOUT("all four", export_range(at[0], 4 * MIB));
	ASK_ABOUT("all four and more", export_range(at[0], 8 * MIB));
	ASK_ABOUT("the whole chunk", export_range(base, size));
	NEED(cuMemFreeAsync(at[0], NULL));
	ASK_ABOUT("first freed: second", export_range(at[1], MIB));
	ASK_ABOUT("first freed: first and second", export_range(at[0], 2 * MIB));
	ASK_ABOUT("first freed: the whole chunk", export_range(base, size));
	ASK_ABOUT("first freed: second to fourth", export_range(at[1], 3 * MIB));
	NEED(cuMemFreeAsync(at[1], NULL));
	ASK_ABOUT("two freed: the whole chunk", export_range(base, size));
	ASK_ABOUT("two freed: third", export_range(at[2], MIB));
	for (i = 0; i < 3; i++)
		NEED(cuMemAllocFromPoolAsync(&small[i], 100 * KIB, pool, NULL));
	say("small ones", "%lld %lld %lld", (long long)(small[0] - base),
	    (long long)(small[1] - base), (long long)(small[2] - base));
	for (i = 0; i < 3; i++) {
		CUdeviceptr from = small[i] & ~(64 * KIB - 1);
		CUdeviceptr to = (small[i] + 164 * KIB - 1) & ~(64 * KIB - 1);

		ASK_ABOUT("small one, rounded out", export_range(from, to - from));
		ASK_ABOUT("small one, from the chunk's start", export_range(base, to - base));
	}
	NEED(cuMemAllocFromPoolAsync(&large, 64 * MIB, pool, NULL));
	ASK_ABOUT("64 MiB", export_range(large, 64 * MIB));
	ASK_ABOUT("inside of 64 MiB", export_range(large + 4 * MIB, 4 * MIB));
	ask_across_chunks();
}

void facts_pools(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, default_pool;
	CUdeviceptr a, b, small;
	cuuint64_t reserved;
	uint64_t id, later;

	begin();
	ASK(cuMemAllocAsync(NULL, MIB, NULL));
	ASK(cuMemAllocAsync(&a, 0, NULL));
	NEED(cuMemAllocAsync(&a, MIB, NULL));
	NEED(cuMemAllocAsync(&small, 100, NULL));
	describe("pool", a);
	describe("small pool", small);
	id = id_of(a);
	ASK(cuMemFreeAsync(0, NULL));
	ASK_ABOUT("free of an interior address", cuMemFreeAsync(a + 512, NULL));
	ASK_ABOUT("free", cuMemFreeAsync(a, NULL));
	ASK_ABOUT("free again", cuMemFreeAsync(a, NULL));
	describe("freed pool", a);
	NEED(cuMemAllocAsync(&b, MIB, NULL));
	later = id_of(b);
	say("same address, later id", "%d %d", a == b, later > id);
	ASK_ABOUT("cuMemFree of pool memory", cuMemFree_v2(b));
	NEED(cuStreamSynchronize(NULL));
	NEED(cuMemAlloc_v2(&a, MIB));
	ASK_ABOUT("cuMemFreeAsync of linear memory", cuMemFreeAsync(a, NULL));
	ASK_ABOUT("its id then", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	ASK_ABOUT("its export then", export_range(a, 64 * KIB));
	NEED(cuStreamSynchronize(NULL));
	ASK_ABOUT("its id after a synchronize",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	NEED(cuDeviceGetDefaultMemPool(&default_pool, 0));
	ASK_ABOUT("destroy of the default pool", cuMemPoolDestroy(default_pool));
	ASK(cuMemPoolCreate(&pool, NULL));
	NEED(cuMemPoolCreate(&pool, &props));
	NEED(cuMemAllocFromPoolAsync(&a, 3 * MIB, pool, NULL));
	NEED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	say("3 MiB reserve at least", "%d", reserved >= 3 * MIB);
	ASK_ABOUT("pool destroyed with an allocation", cuMemPoolDestroy(pool));
	ASK_ABOUT("the allocation then",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	ASK_ABOUT("its export", export_range(a, 64 * KIB));
	ASK_ABOUT("its free", cuMemFreeAsync(a, NULL));
	NEED(cuStreamSynchronize(NULL));
	NEED(cuMemPoolCreate(&pool, &props));
	NEED(cuMemAllocFromPoolAsync(&a, 64 * MIB, pool, NULL));
	NEED(cuMemFreeAsync(a, NULL));
	NEED(cuStreamSynchronize(NULL));
	NEED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	say("reserved after a synchronize", "%llu", (unsigned long long)reserved);
	ASK_ABOUT("export of what was freed", export_range(a, 64 * KIB));
	reserved = 1ull << 40;
	NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &reserved));
	NEED(cuMemAllocFromPoolAsync(&a, 64 * MIB, pool, NULL));
	NEED(cuMemFreeAsync(a, NULL));
	NEED(cuStreamSynchronize(NULL));
	NEED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	say("reserved with a threshold", "%d", reserved >= 64 * MIB);
	ASK_ABOUT("export of what was freed but reserved", export_range(a, 64 * KIB));
	NEED(cuMemPoolTrimTo(pool, 0));
	NEED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	say("reserved after a trim", "%llu", (unsigned long long)reserved);
	ASK_ABOUT("pool destroyed", cuMemPoolDestroy(pool));
}

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static CUmemAccessDesc access_desc = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
				      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void share_handle(CUmemGenericAllocationHandle handle)
{
	CUmemGenericAllocationHandle again = 0;
	int fd;

	ASK_ABOUT("share", cuMemExportToShareableHandle(
				   &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	ASK_ABOUT("import in the same process",
		  cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	say("the same handle", "%d", again == handle);
	close(fd);
	ASK_ABOUT("release of the import", cuMemRelease(again));
}

static void ask_range_together(CUdeviceptr ptr)
{
	CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
					CU_POINTER_ATTRIBUTE_RANGE_SIZE,
					CU_POINTER_ATTRIBUTE_BUFFER_ID};
	uint64_t start = 0, size = 0, id = 0;
	void *out[] = {&start, &size, &id};

	ASK_ABOUT("its range, together with others", cuPointerGetAttributes(3, wanted, out, ptr));
	say("range", "%llu MiB before, %llu MiB, id %d", (unsigned long long)((ptr - start) / MIB),
	    (unsigned long long)(size / MIB), id != 0);
}

void facts_vmm(void)
{
	CUmemGenericAllocationHandle first, second, kept;
	unsigned long long flags = 7;
	uint64_t id, later;
	size_t granularity;
	CUdeviceptr va;
	char text[8];

	begin();
	NEED(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	say("granularity", "%zu", granularity);
	ASK(cuMemCreate(&first, 4096, &prop, 0));
	ASK(cuMemAddressReserve(&va, 4096, 0, 0, 0));
	ASK(cuMemAddressReserve(&va, 0, 0, 0, 0));
	ASK(cuMemAddressReserve(&va, 2 * MIB, 3, 0, 0));
	NEED(cuMemCreate(&first, 2 * MIB, &prop, 0));
	NEED(cuMemCreate(&second, 4 * MIB, &prop, 0));
	NEED(cuMemAddressReserve(&va, 8 * MIB, 0, 0, 0));
	describe("reserved, not mapped", va);
	ask_range_together(va + 4 * MIB);
	ASK_ABOUT("map outside of a reservation", cuMemMap(va + 64 * MIB, 2 * MIB, 0, first, 0));
	ASK_ABOUT("map more than the handle has", cuMemMap(va, 4 * MIB, 0, first, 0));
	ASK_ABOUT("map with an offset", cuMemMap(va, 2 * MIB, 2 * MIB, second, 0));
	NEED(cuMemMap(va, 2 * MIB, 0, first, 0));
	NEED(cuMemMap(va + 2 * MIB, 4 * MIB, 0, second, 0));
	ASK_ABOUT("map twice", cuMemMap(va, 2 * MIB, 0, first, 0));
	ASK_ABOUT("copy without access", cuMemcpyHtoD_v2(va, "1234567", 8));
	ASK_ABOUT("export without access", export_range(va, 2 * MIB));
	ASK_ABOUT("access to a part", cuMemSetAccess(va + 2 * MIB, 2 * MIB, &access_desc, 1));
	ASK_ABOUT("access beyond the mapping", cuMemSetAccess(va, 8 * MIB, &access_desc, 1));
	NEED(cuMemSetAccess(va, 6 * MIB, &access_desc, 1));
	ASK_ABOUT("access asked", cuMemGetAccess(&flags, &access_desc.location, va));
	say("access", "%llu", flags);
	describe("mapped", va + 4096);
	ASK_ABOUT("export of the first", export_range(va, 2 * MIB));
	ASK_ABOUT("export inside of the first", export_range(va + 64 * KIB, 64 * KIB));
	ASK_ABOUT("export of the second", export_range(va + 2 * MIB, 4 * MIB));
	ASK_ABOUT("export inside of the second", export_range(va + 4 * MIB, 64 * KIB));
	ASK_ABOUT("export across their border", export_range(va + MIB, 2 * MIB));
	ASK_ABOUT("export across two handles", export_range(va, 6 * MIB));
	ASK_ABOUT("export past the mapping", export_range(va, 8 * MIB));
	say("two handles have two ids", "%d", id_of(va) != id_of(va + 2 * MIB));
	ASK_ABOUT("copy across two handles", cuMemsetD8_v2(va, 3, 6 * MIB));
	id = id_of(va);
	ASK_ABOUT("unmap a part", cuMemUnmap(va + 2 * MIB, 2 * MIB));
	ASK_ABOUT("free of mapped addresses", cuMemAddressFree(va, 8 * MIB));
	ASK_ABOUT("cuMemFree of a mapping", cuMemFree_v2(va));
	ASK_ABOUT("release while mapped", cuMemRelease(first));
	ASK_ABOUT("id then", cuPointerGetAttribute(&later, CU_POINTER_ATTRIBUTE_BUFFER_ID, va));
	ASK_ABOUT("release again", cuMemRelease(first));
	ASK_ABOUT("retain by address", cuMemRetainAllocationHandle(&kept, (void *)va));
	ASK_ABOUT("unmap", cuMemUnmap(va, 2 * MIB));
	describe("unmapped", va);
	ask_range_together(va);
	NEED(cuMemMap(va, 2 * MIB, 0, kept, 0));
	NEED(cuMemSetAccess(va, 2 * MIB, &access_desc, 1));
	say("mapped again: later id", "%d", id_of(va) > id);
	ASK_ABOUT("contents then", cuMemcpyDtoH_v2(text, va, 8));
	say("contents", "%d", text[0]);
	ASK_ABOUT("unmap both at once", cuMemUnmap(va, 6 * MIB));
	ASK_ABOUT("unmap again", cuMemUnmap(va, 6 * MIB));
	share_handle(second);
	prop.allocFlags.gpuDirectRDMACapable = 1;
	NEED(cuMemCreate(&first, 2 * MIB, &prop, 0));
	NEED(cuMemMap(va, 2 * MIB, 0, first, 0));
	NEED(cuMemSetAccess(va, 2 * MIB, &access_desc, 1));
	describe("mapped, rdma capable", va);
	NEED(cuMemUnmap(va, 2 * MIB));
	NEED(cuMemRelease(first));
	ASK_ABOUT("free of a part of the addresses", cuMemAddressFree(va, 2 * MIB));
	ASK_ABOUT("free of the addresses", cuMemAddressFree(va, 8 * MIB));
	ASK_ABOUT("free of the addresses again", cuMemAddressFree(va, 8 * MIB));
	ASK(cuMemRelease(kept));
	ASK(cuMemRelease(second));
	ASK(cuMemRelease(0));
}
