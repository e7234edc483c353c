// SPDX-License-Identifier: MIT
/*
 * Pinning with the driver of Jetson and Drive, where the unpin itself is answered by the callback.
 */
#include "guest.h"

#define SMALL 4096u

TEST(capabilities)
{
	struct pindown_version version = {.size = sizeof(version)};

	works(ioctl(pd_open(), PINDOWN_IOC_VERSION, &version));
	check_equal(version.granularity, SMALL);
	check(version.capabilities & PINDOWN_CAP_CALLBACK);
	check(!(version.capabilities & (PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_DMABUF)));
}

TEST(pages_of_4_kib)
{
	struct memory memory = gpu_alloc(2 * PAGE, SIM_GPU_SCATTERED);
	char *view = gpu_view(&memory);
	struct pindown_pin pin;
	int fd = pd_open();
	char *map;

	fill(view, 2 * PAGE, 1);
	works(pd_pin(fd, memory.va + 3 * SMALL, PAGE, 0, &pin));
	check_equal(pin.page_size, SMALL);
	check_equal(pin.page_count, 16);
	map = pd_map(fd, &pin, 0, PAGE);
	check(map != MAP_FAILED);
	check(!memcmp(map, view + 3 * SMALL, PAGE));
	fails_with(pd_pin(fd, memory.va + 512, SMALL, 0, &pin), EINVAL);
}

TEST(unpin_calls_back)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	uint64_t callbacks = gpu_count(SIM_GPU_CALLBACKS);
	int fd = pd_open();
	const volatile char *state = pd_state(fd);
	struct pindown_stats_all before, after;
	struct pindown_pin pin;

	pd_stats(fd, &before);
	works(pd_pin(fd, memory.va, PAGE, 0, &pin));
	works(pd_unpin(fd, pin.region));
	check(!pd_valid(state, &pin));
	check_equal(gpu_count(SIM_GPU_CALLBACKS) - callbacks, 1);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	pd_stats(fd, &after);
	check_equal(after.revocations, before.revocations); /* it was no free */
	check_equal(after.unpins - before.unpins, 1);
	check_equal(after.process_bytes, 0);
}

TEST(a_free_revokes)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pd_open();
	const volatile char *state = pd_state(fd);
	struct pindown_query query;
	struct pindown_pin pin;

	works(pd_pin(fd, memory.va, PAGE, 0, &pin));
	gpu_free(&memory);
	check(!pd_valid(state, &pin));
	works(pd_query(fd, pin.region, &query));
	check_equal(query.state, PINDOWN_REGION_REVOKED);
	works(pd_unpin(fd, pin.region));
}

TEST(what_is_not_there)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pd_open();
	struct pindown_pin pin;

	fails_with(pd_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin), EOPNOTSUPP);
	works(pd_pin(fd, memory.va, PAGE, 0, &pin));
	fails_with(pd_export(fd, pin.region), EOPNOTSUPP);
}

TEST(many_at_exit)
{
	struct memory memory = gpu_alloc(4 * PAGE, 0);
	struct pindown_pin pin;
	int fd = pd_open(), i;

	for (i = 0; i < 64; i++)
		works(pd_pin(fd, memory.va + i * SMALL, SMALL, 0, &pin));
}
