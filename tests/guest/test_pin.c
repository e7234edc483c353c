// SPDX-License-Identifier: MIT
/* Pins: the properties of a region, the time in which it is valid, and its end. */
#include <fcntl.h>
#include <signal.h>

#include "guest.h"

static bool is_shown_as(unsigned region, const char *state)
{
	struct shown shown;

	return pdn_shown(region, &shown) && !strcmp(shown.state, state);
}

TEST(version)
{
	struct pindown_version version = {.size = sizeof(version)};
	const uint64_t wanted = PINDOWN_CAP_CALLBACK | PINDOWN_CAP_PERSISTENT | PINDOWN_CAP_STATE |
				PINDOWN_CAP_DMABUF | PINDOWN_CAP_RECLAIM |
				(gpu_is_nvidias() ? 0 : PINDOWN_CAP_SIMULATED);

	works(ioctl(pdn_open(), PINDOWN_IOC_VERSION, &version));
	check_equal(version.abi, PINDOWN_ABI);
	check_equal(version.granularity, PAGE);
	check_equal(version.capabilities, wanted);
	check(version.max_regions >= 100000);
	check(version.state_length >= sizeof(struct pindown_state) + 4 * version.max_regions);
	check(version.release[0] && memchr(version.release, 0, sizeof(version.release)));
}

TEST(pin_show_unpin)
{
	struct memory memory = gpu_alloc(16 * PAGE, 0);
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_unpin unpin = {.size = sizeof(unpin)};
	struct pindown_pin pin;
	struct shown shown;

	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	check(pin.region != 0);
	check_equal(pin.page_size, PAGE);
	check_equal(pin.page_count, 16);
	check(pin.state_value != 0);
	check(pdn_valid(state, &pin));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 16);

	check(pdn_shown(pin.region, &shown));
	check(!strcmp(shown.state, "live") && !strcmp(shown.mode, "callback"));
	check_equal(shown.address, memory.va);
	check_equal(shown.bytes, memory.size);
	check_equal(shown.exports + shown.importers, 0);

	unpin.region = pin.region;
	works(ioctl(fd, PINDOWN_IOC_UNPIN, &unpin));
	check_equal(unpin.state, PINDOWN_REGION_LIVE);
	check_equal(unpin.importers, 0);
	check(!pdn_valid(state, &pin));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 0);
	fails_with(ioctl(fd, PINDOWN_IOC_UNPIN, &unpin), ENOENT);
	check(!pdn_shown(pin.region, &shown));
}

TEST(pages_that_are_no_neighbours)
{
	struct memory memory = gpu_alloc(8 * PAGE, SIM_GPU_SCATTERED);
	struct pindown_pin pin;
	int fd = pdn_open();

	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	check_equal(pin.page_count, 8);
}

TEST(small_pages_of_the_gpu)
{
	struct memory memory = gpu_alloc(2 * PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	if (gpu_is_nvidias())
		test_skipped("nvidia.ko has pages of 64 KiB only");
	gpu_set(SIM_GPU_SMALL_PAGES, 1);
	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	check_equal(pin.page_size, 4096);
	check_equal(pin.page_count, 2 * PAGE / 4096);
}

TEST(a_part_of_an_allocation)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	works(pdn_pin(fd, memory.va + 3 * PAGE, 2 * PAGE, 0, &pin));
	check_equal(pin.page_count, 2);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 2);
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
	check(is_shown_as(pin.region, "revoked"));
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

	works(pdn_pin(fd, memory.va, memory.size, PINDOWN_PIN_PERSISTENT, &pin));
	check_equal(gpu_count(SIM_GPU_PERSISTENT), 1);
	gpu_free(&memory);
	again = gpu_alloc(2 * PAGE, 0);
	check(again.va);
	check(pdn_valid(state, &pin));
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
	check(is_shown_as(pin.region, "revoked"));
}

TEST(descriptors_are_apart)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int one = pdn_open(), two = pdn_open();
	struct pindown_pin pin;

	works(pdn_pin(one, memory.va, PAGE, 0, &pin));
	fails_with(pdn_unpin(two, pin.region), ENOENT);
	check(pdn_export(two, pin.region) < 0 && errno == ENOENT);
	works(pdn_unpin(one, pin.region));
}

TEST(statistics_add_up)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	int fd = pdn_open();
	const uint64_t pins = pdn_counter("pins"), pin_failures = pdn_counter("pin_failures");
	const uint64_t unpins = pdn_counter("unpins"), revocations = pdn_counter("revocations");
	const uint64_t charges = pdn_counter("charges"), bytes = pdn_counter("charged_bytes");
	struct pindown_pin pin[3];

	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin[0]));
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin[1]));
	works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin[2]));
	fails_with(pdn_pin(fd, memory.va, 9 * PAGE, 0, &pin[2] + 0), EINVAL);
	check_equal(pdn_counter("charges") - charges, 3);
	check_equal(pdn_counter("charged_bytes") - bytes, 10 * PAGE);
	check_equal(pdn_counter("pins") - pins, 3);
	check_equal(pdn_counter("pin_failures") - pin_failures, 1);
	works(pdn_unpin(fd, pin[1].region));
	gpu_free(&memory);
	check_equal(pdn_counter("unpins") - unpins, 1);
	check_equal(pdn_counter("revocations") - revocations, 1);
	check_equal(pdn_counter("stray_callbacks"), 0);
	check_equal(pdn_counter("charged_bytes") - bytes, PAGE); /* the persistent one */
	works(close(fd));
	check_equal(pdn_counter("charged_bytes"), bytes);
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
	const uint64_t charges = pdn_counter("charges");
	struct pindown_pin pin;
	unsigned i;

	/* More than the default limits allow, as all are of the same page. */
	check_equal(number_in("/sys/module/pindown/parameters/max_process_mb"), -1);
	check_equal(number_in("/sys/module/pindown/parameters/max_pinned_mb"), -1);
	module_parameter("max_process_mb", "0");
	module_parameter("max_pinned_mb", "0");
	for (i = 0; i < count; i++) {
		works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
		regions[i] = pin.region;
	}
	check_equal(pdn_counter("charges") - charges, count);
	for (i = 0; i < count; i += 2)
		works(pdn_unpin(fd, regions[i]));
	check_equal(gpu_count(SIM_GPU_PINS), count / 2);
	module_parameter("max_process_mb", "-1");
	module_parameter("max_pinned_mb", "-1");
}

TEST(state_area_is_read_only)
{
	struct pindown_version version = {.size = sizeof(version)};
	int fd = pdn_open();
	size_t page = CPU_PAGE;
	char *state;

	works(ioctl(fd, PINDOWN_IOC_VERSION, &version));
	check(mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PINDOWN_MAP_STATE) ==
	      MAP_FAILED);
	state = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, PINDOWN_MAP_STATE);
	check(state != MAP_FAILED);
	check_equal(((struct pindown_state *)state)->abi, PINDOWN_ABI);
	check(mprotect(state, page, PROT_READ | PROT_WRITE) < 0);
	check_equal(touch(state, true), SIGSEGV);
	check(mmap(NULL, version.state_length + page, PROT_READ, MAP_SHARED, fd,
		   PINDOWN_MAP_STATE) == MAP_FAILED);
	works(munmap(state, page));
}

/* It must stay "not valid" as long as anybody can read it. */
TEST(state_area_after_close)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open();
	const volatile char *state = pdn_state(fd);
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	works(close(fd));
	gpu_free(&memory);
	check(!pdn_valid(state, &pin));
}

/* GPU memory can't be mapped: earlier versions could do that. */
TEST(only_the_state_area_can_be_mapped)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_version version = {.size = sizeof(version)};
	struct pindown_pin pin;
	int fd = pdn_open(), bit;

	works(ioctl(fd, PINDOWN_IOC_VERSION, &version));
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	check_equal(pin.was_map_offset, 0);
	for (bit = 12; bit < 63; bit++) {
		uint64_t offset = 1ull << bit;

		if (offset < CPU_PAGE || offset < version.state_length)
			continue;
		check(mmap(NULL, CPU_PAGE, PROT_READ, MAP_SHARED, fd, offset) == MAP_FAILED);
		check(mmap(NULL, CPU_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset) ==
		      MAP_FAILED);
	}
}
