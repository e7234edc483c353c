// SPDX-License-Identifier: MIT
/* Pins: the properties of a region, the time in which it is valid, and its end. */
#include <fcntl.h>

#include "guest.h"

static unsigned region_state(int fd, unsigned region)
{
	struct pindown_query query;

	works(pdn_query(fd, region, &query));
	return query.state;
}

TEST(version)
{
	struct pindown_version version = {.size = sizeof(version)};
	const uint64_t wanted =
		PINDOWN_CAP_CALLBACK | PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_MMAP |
		PINDOWN_CAP_STATE | PINDOWN_CAP_DMABUF | PINDOWN_CAP_RECLAIM |
		(gpu_is_nvidias() ? 0 : PINDOWN_CAP_FORCE_BAR1 | PINDOWN_CAP_SIMULATED);

	works(ioctl(pdn_open(), PINDOWN_IOC_VERSION, &version));
	check_equal(version.abi, PINDOWN_ABI);
	check_equal(version.granularity, PAGE);
	check_equal(version.capabilities, wanted);
	check(version.max_regions >= 100000);
	check(version.state_length >= sizeof(struct pindown_state) + 4 * version.max_regions);
	check(version.release[0] && memchr(version.release, 0, sizeof(version.release)));
}

TEST(pin_query_unpin)
{
	struct memory memory = gpu_alloc(16 * PAGE, 0);
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_query query;
	struct pindown_unpin unpin = {.size = sizeof(unpin)};
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	check(pin.region != 0);
	check_equal(pin.page_size, PAGE);
	check_equal(pin.page_count, 16);
	check(pin.state_value != 0);
	check(pdn_valid(state, &pin));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 16);

	works(pdn_query(fd, pin.region, &query));
	check_equal(query.state, PINDOWN_REGION_LIVE);
	check_equal(query.address, memory.va);
	check_equal(query.length, memory.size);
	check_equal(query.page_count, 16);
	check_equal(query.map_offset, pin.map_offset);
	check_equal(query.mappings + query.exports + query.importers, 0);
	check(!memcmp(query.gpu_uuid, pin.gpu_uuid, sizeof(pin.gpu_uuid)));

	unpin.region = pin.region;
	works(ioctl(fd, PINDOWN_IOC_UNPIN, &unpin));
	check_equal(unpin.state, PINDOWN_REGION_LIVE);
	check_equal(unpin.importers, 0);
	check(!pdn_valid(state, &pin));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 0);
	fails_with(ioctl(fd, PINDOWN_IOC_UNPIN, &unpin), ENOENT);
	fails_with(pdn_query(fd, pin.region, &query), ENOENT);
}

TEST(pages_that_are_no_neighbours)
{
	struct memory memory = gpu_alloc(8 * PAGE, SIM_GPU_SCATTERED);
	struct pindown_pin pin;
	int fd = pdn_open();
	void *map;

	gpu_fill(&memory, 7);
	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	check_equal(pin.page_count, 8);
	map = pdn_map(fd, &pin, 0, memory.size);
	check(map != MAP_FAILED);
	check_equal(differs(map, memory.size, 7), memory.size);
}

TEST(a_part_of_an_allocation)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	struct pindown_pin pin;
	uint64_t *view = gpu_view(&memory);
	int fd = pdn_open();
	uint64_t *map;

	view[3 * PAGE / 8] = 0x1234;
	works(pdn_pin(fd, memory.va + 3 * PAGE, 2 * PAGE, 0, &pin));
	check_equal(pin.page_count, 2);
	map = pdn_map(fd, &pin, 0, 2 * PAGE);
	check(map != MAP_FAILED);
	check_equal(map[0], 0x1234);
	works(pdn_unpin(fd, pin.region));
}

/* As with the real driver: a range across two allocations can't be pinned. */
TEST(a_range_over_two_allocations)
{
	struct memory first = gpu_alloc_at(0x7123400000, 4 * PAGE);
	struct memory second = gpu_alloc_at(first.va + first.size, 4 * PAGE);
	struct pindown_pin pin;
	int fd = pdn_open();

	for (unsigned flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++) {
		fails_with(pdn_pin(fd, first.va, 8 * PAGE, flags, &pin), EINVAL);
		fails_with(pdn_pin(fd, second.va - PAGE, 2 * PAGE, flags, &pin), EINVAL);
	}
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	works(pdn_pin(fd, first.va, first.size, 0, &pin));
	works(pdn_pin(fd, second.va, second.size, 0, &pin));
	gpu_free(&first);
	gpu_free(&second);
}

TEST(unaligned_and_small)
{
	struct memory memory = gpu_alloc(2 * PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	fails_with(pdn_pin(fd, memory.va + 512, PAGE, 0, &pin), EINVAL);
	fails_with(pdn_pin(fd, memory.va, 512, 0, &pin), EINVAL);
	fails_with(pdn_pin(fd, memory.va, PAGE + 1, 0, &pin), EINVAL);
	fails_with(pdn_pin(fd, memory.va, 0, 0, &pin), EINVAL);
	fails_with(pdn_pin(fd, 0, PAGE, 0, &pin), EINVAL);
	fails_with(pdn_pin(fd, memory.va, 3 * PAGE, 0, &pin), EINVAL);
	fails_with(pdn_pin(fd, memory.va + 16 * PAGE, PAGE, 0, &pin), EINVAL);
}

TEST(two_regions_in_one_gpu_page)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin one, two;
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);

	works(pdn_pin(fd, memory.va, PAGE, 0, &one));
	works(pdn_pin(fd, memory.va, PAGE, 0, &two));
	check(one.region != two.region);
	check(one.state_offset != two.state_offset);
	check(one.map_offset != two.map_offset);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 1);
	works(pdn_unpin(fd, one.region));
	check(!pdn_valid(state, &one));
	check(pdn_valid(state, &two));
	works(pdn_unpin(fd, two.region));
}

TEST(a_free_revokes)
{
	struct memory memory = gpu_alloc(2 * PAGE, 0);
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	const struct pindown_state *head = (const struct pindown_state *)state;
	struct pindown_unpin unpin = {.size = sizeof(unpin)};
	struct pindown_pin pin;
	uint32_t before = head->revocations;

	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	gpu_free(&memory);
	check(!pdn_valid(state, &pin));
	check_equal(*(const uint32_t *)(state + pin.state_offset), 0);
	check_equal(head->revocations - before, 1);
	check_equal(region_state(fd, pin.region), PINDOWN_REGION_REVOKED);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check(pdn_export(fd, pin.region) < 0 && errno == ESTALE);
	unpin.region = pin.region;
	works(ioctl(fd, PINDOWN_IOC_UNPIN, &unpin));
	check_equal(unpin.state, PINDOWN_REGION_REVOKED);
}

TEST(only_what_is_freed_is_revoked)
{
	struct memory one = gpu_alloc_at(0x600000000, PAGE);
	struct memory two = gpu_alloc_at(0x600000000 + PAGE, PAGE);
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_pin pin[2];

	works(pdn_pin(fd, one.va, PAGE, 0, &pin[0]));
	works(pdn_pin(fd, two.va, PAGE, 0, &pin[1]));
	gpu_free(&one);
	check(!pdn_valid(state, &pin[0]));
	check(pdn_valid(state, &pin[1]));
	gpu_free(&two);
	check(!pdn_valid(state, &pin[1]));
}

TEST(new_memory_at_the_old_address)
{
	struct memory memory = gpu_alloc_at(0x600000000, PAGE), again;
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_pin old, pin;

	works(pdn_pin(fd, memory.va, PAGE, 0, &old));
	gpu_free(&memory);
	again = gpu_alloc_at(0x600000000, PAGE);
	check(!pdn_valid(state, &old));
	works(pdn_pin(fd, again.va, PAGE, 0, &pin));
	check(pdn_valid(state, &pin));
	check(!pdn_valid(state, &old));
	works(pdn_unpin(fd, old.region));
	check(pdn_valid(state, &pin));
}

/* The number is given out again: its word must differ from the old region's. */
TEST(a_reused_number_does_not_revive_the_old_region)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open(), i;
	const volatile char *state = pdn_state(fd);
	struct pindown_pin old, pin;

	works(pdn_pin(fd, memory.va, PAGE, 0, &old));
	works(pdn_unpin(fd, old.region));
	for (i = 0; i < 1000; i++) {
		works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
		if (pin.state_offset == old.state_offset)
			check(pin.state_value != old.state_value);
		check(pdn_valid(state, &pin));
		check(!pdn_valid(state, &old));
		works(pdn_unpin(fd, pin.region));
	}
}

TEST(persistent_outlives_the_free)
{
	struct memory memory = gpu_alloc(2 * PAGE, 0), again;
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_pin pin;
	void *map;

	gpu_fill(&memory, 3);
	works(pdn_pin(fd, memory.va, memory.size, PINDOWN_PIN_PERSISTENT, &pin));
	check_equal(gpu_count(SIM_GPU_PERSISTENT), 1);
	map = pdn_map(fd, &pin, 0, memory.size);
	check(map != MAP_FAILED);
	gpu_free(&memory);
	again = gpu_alloc(2 * PAGE, 0);
	gpu_fill(&again, 4);
	check(pdn_valid(state, &pin));
	check_equal(differs(map, memory.size, 3), memory.size);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 4);
	works(pdn_unpin(fd, pin.region));
	check_equal(gpu_count(SIM_GPU_PERSISTENT), 0);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 2);
}

TEST(close_unpins)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
	check_equal(gpu_count(SIM_GPU_PINS), 2);
	works(close(fd));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/* The end of the process closes descriptors in some order. */
TEST(exit_with_pins_of_both_kinds)
{
	struct memory memory = gpu_alloc(64 * PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open(), i;

	for (i = 0; i < 64; i++)
		works(pdn_pin(fd, memory.va + i * PAGE, PAGE, i & 1 ? PINDOWN_PIN_PERSISTENT : 0,
			      &pin));
}

TEST(exit_with_the_driver_closed_first)
{
	int pindown = pdn_open();
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin pin;

	works(pdn_pin(pindown, memory.va, PAGE, 0, &pin));
	works(close(gpu())); /* as at the end of a process, when the GPU's descriptor comes first */
	check_equal(region_state(pindown, pin.region), PINDOWN_REGION_REVOKED);
}

TEST(descriptors_are_apart)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int one = pdn_open(), two = pdn_open();
	struct pindown_query query;
	struct pindown_pin pin;

	works(pdn_pin(one, memory.va, PAGE, 0, &pin));
	fails_with(pdn_query(two, pin.region, &query), ENOENT);
	fails_with(pdn_unpin(two, pin.region), ENOENT);
	check(pdn_export(two, pin.region) < 0 && errno == ENOENT);
	works(pdn_query(one, pin.region, &query));
}

TEST(statistics_add_up)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	int fd = pdn_open();
	const uint64_t pins = pdn_counter("pins"), pin_failures = pdn_counter("pin_failures");
	const uint64_t unpins = pdn_counter("unpins"), revocations = pdn_counter("revocations");
	struct pindown_stats_all before, now;
	struct pindown_pin pin[3];

	pdn_stats(fd, &before);
	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin[0]));
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin[1]));
	works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin[2]));
	fails_with(pdn_pin(fd, memory.va, 9 * PAGE, 0, &pin[2] + 0), EINVAL);
	pdn_stats(fd, &now);
	check_equal(now.process_regions, 3);
	check_equal(now.process_bytes, 10 * PAGE);
	check_equal(now.all_bytes - before.all_bytes, 10 * PAGE);
	check_equal(now.gpus, 1);
	check_equal(now.gpu_regions - before.gpu_regions, 3);
	check_equal(pdn_counter("pins") - pins, 3);
	check_equal(pdn_counter("pin_failures") - pin_failures, 1);
	works(pdn_unpin(fd, pin[1].region));
	gpu_free(&memory);
	pdn_stats(fd, &now);
	check_equal(pdn_counter("unpins") - unpins, 1);
	check_equal(pdn_counter("revocations") - revocations, 1);
	check_equal(pdn_counter("stray_callbacks"), 0);
	check_equal(now.process_bytes, PAGE); /* the persistent one */
	works(close(fd));
	fd = pdn_open();
	pdn_stats(fd, &now);
	check_equal(now.process_bytes, 0);
	check_equal(now.all_bytes, before.all_bytes);
}

TEST(both_page_table_versions)
{
	struct memory memory = gpu_alloc(2 * PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin;
	unsigned major, flags;

	for (major = 1; major <= 2; major++) {
		for (flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++) {
			gpu_set(SIM_GPU_TABLE_MAJOR, major);
			works(pdn_pin(fd, memory.va, 2 * PAGE, flags, &pin));
			check_equal(pin.page_count, 2);
			works(pdn_unpin(fd, pin.region));
		}
	}
	/* An unknown version: refused, and nothing stays pinned. */
	gpu_set(SIM_GPU_TABLE_MAJOR, 3);
	check(pdn_pin(fd, memory.va, 2 * PAGE, 0, &pin) < 0);
	check_equal(errno, EOPNOTSUPP);
	check(pdn_pin(fd, memory.va, 2 * PAGE, PINDOWN_PIN_PERSISTENT, &pin) < 0);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_TABLES), 0);
}

TEST(what_the_driver_answers)
{
	static const struct {
		int driver, process;
	} errors[] = {{ENOMEM, ENOSPC}, {EINVAL, EINVAL}, {524, EOPNOTSUPP}, {EIO, EIO}};
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin;
	unsigned i, flags;

	for (i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		for (flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++) {
			gpu_set(SIM_GPU_FAIL_ERROR, errors[i].driver);
			gpu_set(SIM_GPU_FAIL_GET, 1);
			fails_with(
				pdn_pin(fd, memory.va, PAGE, flags | PINDOWN_PIN_NO_RECLAIM, &pin),
				errors[i].process);
		}
	}
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
}

TEST(bar_space_runs_out)
{
	struct memory memory = gpu_alloc(4 * PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin, more;

	gpu_set(SIM_GPU_BAR_LIMIT, 3);
	works(pdn_pin(fd, memory.va, 2 * PAGE, PINDOWN_PIN_NO_RECLAIM, &pin));
	fails_with(pdn_pin(fd, memory.va + 2 * PAGE, 2 * PAGE, PINDOWN_PIN_NO_RECLAIM, &more),
		   ENOSPC);
	/* Pins of the same pages share space. */
	works(pdn_pin(fd, memory.va, 3 * PAGE, PINDOWN_PIN_NO_RECLAIM, &more));
	works(pdn_unpin(fd, pin.region));
	works(pdn_unpin(fd, more.region));
	works(pdn_pin(fd, memory.va + PAGE, 3 * PAGE, PINDOWN_PIN_NO_RECLAIM, &more));
}

/* Fewer on a kernel that checks itself: it takes a millisecond for each. */
TEST(a_hundred_thousand_regions, .seconds = 100)
{
	const unsigned count = slowness() > 1 ? 20000 : 100000;
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open();
	uint32_t *regions = malloc(count * sizeof(*regions));
	struct pindown_stats_all stats;
	struct pindown_pin pin;
	unsigned i;

	for (i = 0; i < count; i++) {
		works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
		regions[i] = pin.region;
	}
	pdn_stats(fd, &stats);
	check_equal(stats.process_regions, count);
	for (i = 0; i < count; i += 2)
		works(pdn_unpin(fd, regions[i]));
	check_equal(gpu_count(SIM_GPU_PINS), count / 2);
}
