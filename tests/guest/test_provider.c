// SPDX-License-Identifier: MIT
/* The simulated GPU by itself: memory, addresses, views. The other programs test its pins. */
#include <signal.h>

#include "guest.h"

TEST(memory_holds_what_was_written)
{
	struct memory memory = gpu_alloc(3 * PAGE, 0);
	void *view;

	gpu_fill(&memory, 1);
	view = gpu_view(&memory);
	check_equal(differs(view, memory.size, 1), memory.size);
	works(munmap(view, memory.size));
	gpu_free(&memory);
}

TEST(freed_memory_is_poisoned)
{
	struct memory memory = gpu_alloc(PAGE, 0), again;
	const uint64_t *view;

	gpu_fill(&memory, 1);
	gpu_free(&memory);
	again = gpu_alloc(PAGE, 0);
	view = gpu_view(&again);
	check_equal(view[0], SIM_GPU_POISON);
	check_equal(view[PAGE / 8 - 1], SIM_GPU_POISON);
}

TEST(a_view_of_freed_memory_is_a_bus_error)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	char *view = gpu_view(&memory);

	check_equal(touch(view, true), 0);
	gpu_free(&memory);
	check_equal(touch(view, false), SIGBUS);
}

TEST(the_same_address_comes_back)
{
	struct memory memory = gpu_alloc(PAGE, 0), again;

	gpu_free(&memory);
	again = gpu_alloc(PAGE, 0);
	check_equal(again.va, memory.va);
	check(again.handle != memory.handle);
	gpu_free(&again);
}

TEST(addresses_of_the_programs_choice)
{
	struct memory memory = gpu_alloc_at(0x7123450000, 2 * PAGE);
	struct sim_gpu_alloc over = {.va = 0x7123460000, .size = PAGE, .flags = SIM_GPU_MAPPED};

	check_equal(memory.va, 0x7123450000);
	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, &over), EEXIST);
	gpu_free(&memory);
	works(ioctl(gpu(), SIM_GPU_ALLOC, &over));
}

TEST(one_memory_at_two_addresses)
{
	struct sim_gpu_alloc memory = {.size = 2 * PAGE};
	struct sim_gpu_map map;
	struct sim_gpu_range range;
	int i;

	works(ioctl(gpu(), SIM_GPU_ALLOC, &memory));
	for (i = 0; i < 2; i++) {
		map = (struct sim_gpu_map){.handle = memory.handle,
					   .offset = PAGE,
					   .size = PAGE,
					   .va = 0x500000000 + i * PAGE};
		works(ioctl(gpu(), SIM_GPU_MAP, &map));
	}
	range = (struct sim_gpu_range){map.va, 2 * PAGE};
	fails_with(ioctl(gpu(), SIM_GPU_UNMAP, &range), ENOENT);
	range.size = PAGE;
	works(ioctl(gpu(), SIM_GPU_UNMAP, &range));
	fails_with(ioctl(gpu(), SIM_GPU_UNMAP, &range), ENOENT);
	works(ioctl(gpu(), SIM_GPU_FREE, &memory.handle));
	fails_with(ioctl(gpu(), SIM_GPU_FREE, &memory.handle), ENOENT);
}

TEST(memory_runs_out)
{
	struct sim_gpu_alloc max = {.size = 256 * MIB}, more = {.size = PAGE};

	works(ioctl(gpu(), SIM_GPU_ALLOC, &max));
	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, &more), ENOSPC);
	works(ioctl(gpu(), SIM_GPU_FREE, &max.handle));
	works(ioctl(gpu(), SIM_GPU_ALLOC, &more));
}

TEST(bad_arguments)
{
	struct sim_gpu_alloc odd = {.size = PAGE + 1}, none = {.size = 0};
	struct sim_gpu_alloc flags = {.size = PAGE, .flags = 1u << 31};
	struct sim_gpu_alloc wraps = {.size = PAGE, .va = -(uint64_t)PAGE, .flags = SIM_GPU_MAPPED};

	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, &odd), EINVAL);
	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, &none), EINVAL);
	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, &flags), EINVAL);
	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, &wraps), EINVAL);
	fails_with(ioctl(gpu(), SIM_GPU_ALLOC, NULL), EFAULT);
	fails_with(ioctl(gpu(), _IO('G', 99)), ENOTTY);
}

static void uses_it(void *fd)
{
	struct sim_gpu_alloc call = {.size = PAGE};

	fails_with(ioctl(*(int *)fd, SIM_GPU_ALLOC, &call), EPERM);
}

TEST(an_inherited_descriptor_is_refused)
{
	int fd = gpu();

	child_ends(in_child(uses_it, &fd));
}

static void *frees_late(void *memory)
{
	/* No pin is made, so no gate stops this: it must only not hang. */
	gpu_free(memory);
	return NULL;
}

TEST(a_free_in_another_thread)
{
	struct memory memory = gpu_alloc(PAGE, 0);

	thread_ends(in_thread(frees_late, &memory));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}
