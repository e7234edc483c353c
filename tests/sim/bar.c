/* SPDX-License-Identifier: MIT */
/*
 * Device memory in the test guest: allocated, mapped and freed by calls of /dev/sim_gpu. See bar.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bar.h"
#include "core.h"
#include "memory.h"
#include "nvidia_p2p/sim_gpu.h"
#include "store_parts.h"

static int gpu = -1;
static uint64_t all_bytes;

bool sim_bar_is_there(void)
{
	return unlikely(gpu >= 0);
}

void sim_bar_start(void)
{
	__u64 size;
	int saved = errno;

	gpu = open(SIM_GPU_DEVICE, O_RDWR | O_CLOEXEC);
	if (gpu >= 0 && ioctl(gpu, SIM_GPU_SIZE, &size) == 0) {
		all_bytes = size;
		if (sim_options.memory > all_bytes)
			sim_options.memory = all_bytes;
	} else if (gpu >= 0) {
		close(gpu);
		gpu = -1;
	}
	errno = saved;
}

/* ---- memory --------------------------------------------------------------------------------- */

static bool map_fixed(const struct sim_extent *extent, int fd, uint64_t offset)
{
	return mmap(extent->store->view + extent->offset, extent->size, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset) != MAP_FAILED;
}

bool sim_bar_take(struct sim_extent *extent)
{
	struct sim_gpu_alloc call = {.size = extent->size};

	if (ioctl(gpu, SIM_GPU_ALLOC, &call) != 0)
		return false;
	extent->bar_memory = call.handle;
	if (map_fixed(extent, gpu, call.map_offset))
		return true;
	sim_bar_give(extent);
	return false;
}

void sim_bar_give(struct sim_extent *extent)
{
	if (ioctl(gpu, SIM_GPU_FREE, &extent->bar_memory) != 0 ||
	    !map_fixed(extent, extent->store->fd, extent->offset))
		sim_complain("simulated libcuda: memory of " SIM_GPU_DEVICE " can't be freed: %s",
			     strerror(errno));
	extent->bar_memory = 0;
}

uint64_t sim_bar_free_bytes(void)
{
	struct sim_gpu_counters counters;

	if (ioctl(gpu, SIM_GPU_COUNT, &counters) != 0)
		return 0;
	return all_bytes - counters.value[SIM_GPU_MEMORY_PAGES] * SIM_GPU_PAGE;
}

int sim_bar_export(struct sim_extent *const *extents, unsigned count, uint64_t offset,
		   uint64_t size)
{
	struct sim_gpu_export call = {.count = count,
				      .flags = sim_options.export_cloexec ? SIM_GPU_CLOEXEC : 0};

	if (count > SIM_GPU_PIECES) {
		errno = EINVAL;
		return -1;
	}
	for (unsigned i = 0; i < count; i++, offset = 0) {
		uint64_t piece = extents[i]->size - offset;

		call.piece[i] = (struct sim_gpu_piece){.handle = extents[i]->bar_memory,
						       .offset = offset,
						       .size = piece < size ? piece : size};
		size -= call.piece[i].size;
	}
	return ioctl(gpu, SIM_GPU_EXPORT, &call) == 0 ? call.fd : -1;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static bool has_memory(const struct sim_block *block)
{
	return block->extent && block->extent->bar_memory;
}

bool sim_bar_map(const struct sim_block *block)
{
	struct sim_gpu_map call = {.va = block->base, .size = block->size};

	if (!has_memory(block))
		return true;
	call.handle = block->extent->bar_memory;
	call.offset = block->extent_offset;
	return ioctl(gpu, SIM_GPU_MAP, &call) == 0;
}

/* Ends pins with a callback before the address can be used for other memory. */
void sim_bar_unmap(const struct sim_block *block)
{
	struct sim_gpu_range call = {.va = block->base, .size = block->size};

	if (has_memory(block) && ioctl(gpu, SIM_GPU_UNMAP, &call) != 0)
		sim_complain("simulated libcuda: addresses of " SIM_GPU_DEVICE
			     " can't be freed: %s",
			     strerror(errno));
}
