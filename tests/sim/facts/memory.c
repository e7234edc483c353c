/* SPDX-License-Identifier: MIT */
/* Linear memory, its export, and host memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "facts.h"

void facts_start(void)
{
	CUdeviceptr ptr;
	CUcontext context = (CUcontext)1;
	int count, version;

	ASK_ABOUT("cuMemAlloc before cuInit", cuMemAlloc_v2(&ptr, 4096));
	ASK_ABOUT("cuMemFree(0) before cuInit", cuMemFree_v2(0));
	ASK_ABOUT("cuCtxGetCurrent before cuInit", cuCtxGetCurrent(&context));
	ASK_ABOUT("cuDeviceGetCount before cuInit", cuDeviceGetCount(&count));
	ASK_ABOUT("cuDriverGetVersion before cuInit", cuDriverGetVersion(&version));
	ASK(cuInit(1));
	NEED(cuInit(0));
	ASK_ABOUT("cuMemAlloc without a context", cuMemAlloc_v2(&ptr, 4096));
	ASK_ABOUT("cuMemFree(0) without a context", cuMemFree_v2(0));
	ASK_ABOUT("cuMemFree(1) without a context", cuMemFree_v2(1));
	ASK_ABOUT("cuCtxGetCurrent without a context", cuCtxGetCurrent(&context));
	say("current context", "%s", context ? "some" : "none");
	ASK_ABOUT("cuCtxGetCurrent(NULL)", cuCtxGetCurrent(NULL));
	ASK_ABOUT("cuPointerGetAttribute of 0 without a context",
		  cuPointerGetAttribute(&ptr, CU_POINTER_ATTRIBUTE_BUFFER_ID, 0));
	ASK_ABOUT("cuMemGetAddressRange without a context", cuMemGetAddressRange_v2(NULL, NULL, 1));
	ASK_ABOUT("cuMemGetAddressRange with a result without a context",
		  cuMemGetAddressRange_v2(&ptr, NULL, 1));
	ASK_ABOUT("export without a context", export_range(65536, 65536));
	ASK_ABOUT("cuStreamSynchronize without a context", cuStreamSynchronize(NULL));
}

void facts_linear(void)
{
	CUdeviceptr a, b, c, again, at;
	uint64_t id;
	unsigned on = 1;
	size_t size;
	char text[16];

	begin();
	ASK(cuMemAlloc_v2(NULL, 100));
	ASK(cuMemAlloc_v2(&a, 0));
	ASK(cuMemAlloc_v2(&a, 1ull << 50));
	ASK(cuMemAlloc_v2(&a, SIZE_MAX));
	NEED(cuMemAlloc_v2(&a, 100));
	NEED(cuMemAlloc_v2(&b, 100));
	NEED(cuMemAlloc_v2(&c, MIB));
	say("100 B, 100 B, 1 MiB lie at", "%lld %lld", (long long)(b - a), (long long)(c - a));
	say("ids differ", "%d", id_of(a) != id_of(b) && id_of(b) != id_of(c));
	say("ids grow", "%d", id_of(a) < id_of(b) && id_of(b) < id_of(c));
	describe("100 B", a);
	describe("inside 1 MiB", c + 5000);
	ASK_ABOUT("id of the byte after 100 B",
		  cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + 100));
	ASK_ABOUT("address range of the byte after 100 B",
		  cuMemGetAddressRange_v2(&at, &size, a + 100));
	ASK(cuMemGetAddressRange_v2(NULL, NULL, a));
	ASK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	ASK(cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
	ASK(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	ASK(cuPointerGetAttribute(&id, (CUpointer_attribute)0, a));
	ASK(cuPointerGetAttribute(&id, (CUpointer_attribute)99, a));
	ASK(cuMemFree_v2(0));
	ASK_ABOUT("free of an interior address", cuMemFree_v2(c + 512));
	ASK_ABOUT("free of a host address", cuMemFree_v2((CUdeviceptr)text));
	id = id_of(c);
	ASK_ABOUT("free", cuMemFree_v2(c));
	ASK_ABOUT("free again", cuMemFree_v2(c));
	describe("freed", c);
	NEED(cuMemAlloc_v2(&again, MIB));
	say("same address again", "%d", again == c);
	say("id is greater", "%d", id_of(again) > id);
	ASK_ABOUT("copy to freed memory", (cuMemFree_v2(again), cuMemcpyHtoD_v2(again, text, 8)));
	ASK_ABOUT("copy beyond the end",
		  cuMemcpyHtoD_v2(a, text, 16) ?: cuMemcpyDtoH_v2(text, a + 96, 8));
	ASK_ABOUT("copy of no bytes to a wild address", cuMemcpyHtoD_v2(12345, text, 0));
	ASK_ABOUT("fill of freed memory", cuMemsetD8_v2(again, 1, 16));
	ASK_ABOUT("fill of no bytes of 0", cuMemsetD8_v2(0, 1, 0));
	ASK_ABOUT("odd address, 32-bit fill", cuMemsetD32_v2(a + 2, 1, 2));
	NEED(cuMemFree_v2(a));
	NEED(cuMemFree_v2(b));
	NEED(cuMemAlloc_v2(&a, 4 * MIB));
	NEED(cuMemFree_v2(a));
	NEED(cuMemAlloc_v2(&b, 4 * MIB));
	say("4 MiB, the same address again", "%d", a == b);
	say("4 MiB begin at a multiple of 2 MiB", "%d", b % (2 * MIB) == 0);
}

static void ask_for_ids(CUdeviceptr live, CUdeviceptr dead)
{
	CUpointer_attribute wanted[] = {
		CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
	uint64_t id = 7, context = 7;
	int type = 7, ordinal = 7;
	void *out[] = {&id, &type, &ordinal, &context};

	ASK_ABOUT("attributes together, live", cuPointerGetAttributes(4, wanted, out, live));
	say("their values", "%d %d %d %d", id != 0, type, ordinal, context != 0);
	id = context = type = ordinal = 7;
	ASK_ABOUT("attributes together, freed", cuPointerGetAttributes(4, wanted, out, dead));
	say("their values", "%d %d %d %d", id != 0, type, ordinal, context != 0);
	ASK_ABOUT("no attributes together", cuPointerGetAttributes(0, wanted, out, live));
}

/*
 * Five neighbours of 64 KiB in one block: the second and the fourth live, the others are freed.
 * Which ranges can be exported?
 */
static void ask_around_freed_neighbours(void)
{
	CUdeviceptr at[5], block, tiny[3];
	int i;

	for (i = 0; i < 5; i++)
		NEED(cuMemAlloc_v2(&at[i], 64 * KIB));
	block = at[0];
	say("neighbours lie in a row", "%d", at[4] == block + 256 * KIB);
	for (i = 0; i < 5; i += 2)
		NEED(cuMemFree_v2(at[i]));
	ASK_ABOUT("freed page", export_range(block, 64 * KIB));
	ASK_ABOUT("freed, live", export_range(block, 128 * KIB));
	ASK_ABOUT("freed, live, freed", export_range(block, 192 * KIB));
	ASK_ABOUT("live, freed", export_range(block + 64 * KIB, 128 * KIB));
	ASK_ABOUT("live, freed, live", export_range(block + 64 * KIB, 192 * KIB));
	ASK_ABOUT("freed between", export_range(block + 128 * KIB, 64 * KIB));
	ASK_ABOUT("freed, never used", export_range(block + 256 * KIB, 128 * KIB));
	ASK_ABOUT("never used", export_range(block + 512 * KIB, 64 * KIB));
	ASK_ABOUT("the rest of the block after the live ones",
		  export_range(block + 192 * KIB, 2 * MIB - 192 * KIB));
	ASK_ABOUT("the whole block", export_range(block, 2 * MIB));
	ASK_ABOUT("beyond the block", export_range(block, 2 * MIB + 64 * KIB));
	ASK_ABOUT("half of a live page", export_range(block + 64 * KIB, 32 * KIB));
	NEED(cuMemFree_v2(at[1]));
	NEED(cuMemFree_v2(at[3]));
	for (i = 0; i < 3; i++)
		NEED(cuMemAlloc_v2(&tiny[i], 1000));
	NEED(cuMemFree_v2(tiny[0]));
	ASK_ABOUT("page that begins with freed bytes", export_range(tiny[0], 64 * KIB));
	ASK_ABOUT("host page that begins with freed bytes", export_range(tiny[0], 4096));
	NEED(cuMemFree_v2(tiny[1]));
	NEED(cuMemFree_v2(tiny[2]));
	ASK_ABOUT("page after all was freed", export_range(tiny[0], 64 * KIB));
	NEED(cuMemAlloc_v2(&at[0], 2 * MIB));
	NEED(cuMemAlloc_v2(&at[1], 2 * MIB));
	ASK_ABOUT("across two blocks in a row", export_range(at[0], 4 * MIB));
}

void facts_export(void)
{
	CUdeviceptr a, b, big;
	long before, allocated;
	int fd, other;

	begin();
	NEED(cuMemAlloc_v2(&a, 64 * KIB));
	NEED(cuMemAlloc_v2(&big, 3 * MIB + 777));
	ASK(cuMemGetHandleForAddressRange(NULL, big, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	ASK(cuMemGetHandleForAddressRange(&fd, big, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1));
	ASK(cuMemGetHandleForAddressRange(&fd, big, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 2));
	ASK(cuMemGetHandleForAddressRange(&fd, big, 4096, 0, 0));
	ASK(cuMemGetHandleForAddressRange(&fd, big, 4096, 2, 0));
	ASK_ABOUT("0 bytes", export_range(big, 0));
	ASK_ABOUT("100 bytes", export_range(big, 100));
	ASK_ABOUT("base not page-aligned", export_range(big + 512, 4096));
	ASK_ABOUT("one host page", export_range(big, 4096));
	ASK_ABOUT("a page inside", export_range(big + 64 * KIB, 64 * KIB));
	ASK_ABOUT("two pages inside, at a host page",
		  export_range(big + 2 * MIB + 4096, 128 * KIB));
	ASK_ABOUT("to the end of its 64 KiB", export_range(big, 3 * MIB + 64 * KIB));
	ASK_ABOUT("to the end of its 2 MiB block", export_range(big, 4 * MIB));
	ASK_ABOUT("beyond that", export_range(big, 4 * MIB + 64 * KIB));
	ASK_ABOUT("address 0", export_range(0, 4096));
	NEED(cuMemGetHandleForAddressRange(&fd, big, 64 * KIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					   0));
	say("close-on-exec", "%d", !!(fcntl(fd, F_GETFD) & FD_CLOEXEC));
	NEED(cuMemGetHandleForAddressRange(&other, big, 64 * KIB,
					   CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
	say("two exports have two descriptors", "%d", fd != other);
	close(fd);
	close(other);
	NEED(cuMemFree_v2(big));
	ask_for_ids(a, big);
	ASK_ABOUT("export of freed memory", export_range(big, 64 * KIB));

	NEED(cuMemFree_v2(a));
	ask_around_freed_neighbours();

	NEED(cuMemAlloc_v2(&a, 256 * MIB));
	NEED(cuMemFree_v2(a));
	before = free_mib();
	NEED(cuMemAlloc_v2(&a, 256 * MIB));
	allocated = free_mib();
	say("256 MiB allocated take", "%ld MiB", before - allocated);
	NEED(cuMemGetHandleForAddressRange(&fd, a, 256 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
					   0));
	NEED(cuMemFree_v2(a));
	say("freed with a descriptor open", "%ld MiB", before - free_mib());
	other = dup(fd);
	close(fd);
	say("a duplicate still open", "%ld MiB", before - free_mib());
	NEED(cuMemAlloc_v2(&b, 256 * MIB));
	say("the same address again", "%d", a == b);
	NEED(cuMemFree_v2(b));
	close(other);
	say("all closed", "%ld MiB", before - free_mib());
}

void facts_kinds(void)
{
	CUdeviceptr ptr;
	size_t pitch;
	void *host, *own;

	begin();
	NEED(cuMemAllocPitch_v2(&ptr, &pitch, 1000, 100, 4));
	say("pitch of 1000 bytes", "%zu", pitch);
	describe("pitched", ptr);
	NEED(cuMemAllocManaged(&ptr, MIB, CU_MEM_ATTACH_GLOBAL));
	describe("managed", ptr);
	ASK_ABOUT("free of managed memory as host memory", cuMemFreeHost((void *)ptr));
	ASK_ABOUT("free of managed memory", cuMemFree_v2(ptr));
	ASK(cuMemAllocManaged(&ptr, MIB, 0));
	ASK(cuMemAllocManaged(&ptr, MIB, CU_MEM_ATTACH_SINGLE));
	ASK(cuMemAllocManaged(&ptr, 0, CU_MEM_ATTACH_GLOBAL));
	NEED(cuMemHostAlloc(&host, MIB, CU_MEMHOSTALLOC_DEVICEMAP));
	describe("page-locked", (CUdeviceptr)host);
	ASK_ABOUT("free of host memory as device memory", cuMemFree_v2((CUdeviceptr)host));
	ASK_ABOUT("free of host memory, interior", cuMemFreeHost((char *)host + 4096));
	ASK_ABOUT("free of host memory", cuMemFreeHost(host));
	ASK_ABOUT("free of host memory again", cuMemFreeHost(host));
	ASK(cuMemFreeHost(NULL));
	own = aligned_alloc(4096, MIB);
	memset(own, 0, MIB);
	NEED(cuMemHostRegister_v2(own, MIB, CU_MEMHOSTREGISTER_DEVICEMAP));
	describe("registered", (CUdeviceptr)own);
	NEED(cuMemHostUnregister(own));
	describe("never seen", (CUdeviceptr)own);
	free(own);
}

void facts_host(void)
{
	char *own;
	void *host;
	unsigned flags;
	CUdeviceptr ptr;

	begin();
	own = aligned_alloc(4096, MIB);
	memset(own, 0, MIB);
	ASK(cuMemHostRegister_v2(NULL, 4096, 0));
	ASK(cuMemHostRegister_v2(own, 0, 0));
	ASK(cuMemHostRegister_v2(own, 4096, 0x80));
	NEED(cuMemHostRegister_v2(own, 64 * KIB, 0));
	ASK_ABOUT("register again", cuMemHostRegister_v2(own, 64 * KIB, 0));
	ASK_ABOUT("register overlapping", cuMemHostRegister_v2(own + 32 * KIB, 64 * KIB, 0));
	ASK_ABOUT("unregister interior", cuMemHostUnregister(own + 4096));
	ASK_ABOUT("unregister", cuMemHostUnregister(own));
	ASK_ABOUT("unregister again", cuMemHostUnregister(own));
	ASK(cuMemHostUnregister(NULL));
	ASK(cuMemAllocHost_v2(NULL, 4096));
	ASK(cuMemAllocHost_v2(&host, 0));
	ASK(cuMemHostAlloc(&host, 4096, 0x100));
	NEED(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE));
	ASK(cuMemHostGetFlags(&flags, host));
	say("flags", "%u", flags);
	ASK(cuMemHostGetDevicePointer_v2(&ptr, host, 0));
	say("device pointer is the host's", "%d", ptr == (CUdeviceptr)host);
	ASK_ABOUT("device pointer of plain memory", cuMemHostGetDevicePointer_v2(&ptr, own, 0));
	ASK_ABOUT("flags of plain memory", cuMemHostGetFlags(&flags, own));
	free(own);
}
