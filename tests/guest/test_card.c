// SPDX-License-Identifier: MIT
/*
 * A PCI device reads GPU memory through the dma-buf of a registration, under libpindown.so and the
 * module: after a free, the cache registers what is at the same address now.
 */
#include "guest.h"
#include "hook/cuda/abi.h"
#include "cache/pindown.h"

enum { SIZE = 64 << 20, MESSAGE = 32 };

static int card;

static CUdeviceptr allocate_with(const char *message)
{
	CUdeviceptr buffer;

	check_equal(cuMemAlloc_v2(&buffer, SIZE), CUDA_SUCCESS);
	check_equal(cuMemcpyHtoD_v2(buffer, message, MESSAGE), CUDA_SUCCESS);
	return buffer;
}

static void card_reads(int dmabuf, uint64_t offset, char *message)
{
	struct edu_import import;

	works(peer_import(card, dmabuf, 0, &import));
	works(peer_move(card, EDU_READ, import.id, offset, message, MESSAGE));
	works(ioctl(card, EDU_RELEASE, &import.id));
}

static void send(CUdeviceptr buffer, const char *message)
{
	char arrived[MESSAGE];
	pindown_region *region;
	uint64_t offset;
	int fd;

	check_equal(pindown_get(buffer, SIZE, 0, &region), PINDOWN_OK);
	check_equal(pindown_region_dmabuf(region, buffer, &fd, &offset), PINDOWN_OK);
	card_reads(fd, offset, arrived);
	pindown_put(region);
	check(!strcmp(arrived, message));
}

TEST(a_card_reads_the_memory_of_today, .seconds = 30)
{
	static const char messages[2][MESSAGE] = {"hello", "goodbye"};
	uint64_t callbacks = gpu_count(SIM_GPU_CALLBACKS), gets;
	CUdeviceptr buffer, first = 0;
	CUcontext context;

	card = peer_open();
	check_equal(cuInit(0), CUDA_SUCCESS);
	check_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	check_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
	for (unsigned i = 0; i < 2; i++) {
		gets = gpu_count(SIM_GPU_GETS);
		buffer = allocate_with(messages[i]);
		if (i > 0)
			check_equal(buffer, first);
		first = buffer;
		send(buffer, messages[i]);
		send(buffer, messages[i]);
		/* The kernel has pinned it; it is unpinned before the driver frees it. */
		check(gpu_count(SIM_GPU_GETS) > gets);
		check_equal(cuMemFree_v2(buffer), CUDA_SUCCESS);
		check_equal(gpu_count(SIM_GPU_PINS), 0);
		check_equal(gpu_count(SIM_GPU_CALLBACKS), callbacks);
		check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
	}
}
