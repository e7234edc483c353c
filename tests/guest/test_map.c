// SPDX-License-Identifier: MIT
/* Mappings of a region in the process: the contents, and accesses after the region has ended. */
#include <signal.h>

#include "guest.h"

struct mapped {
	struct memory memory;
	struct pindown_pin pin;
	int fd;
	char *map;
};

static struct mapped map_new(uint64_t size)
{
	struct mapped mapped = {.memory = gpu_alloc(size, 0), .fd = pdn_open()};

	works(pdn_pin(mapped.fd, mapped.memory.va, size, 0, &mapped.pin));
	mapped.map = pdn_map(mapped.fd, &mapped.pin, 0, size);
	check(mapped.map != MAP_FAILED);
	return mapped;
}

static unsigned mappings(const struct mapped *mapped)
{
	struct pindown_query query;

	works(pdn_query(mapped->fd, mapped->pin.region, &query));
	return query.mappings;
}

TEST(both_see_what_either_writes)
{
	struct mapped mapped = map_new(4 * PAGE);
	void *view = gpu_view(&mapped.memory);

	fill(view, 4 * PAGE, 1);
	check_equal(differs(mapped.map, 4 * PAGE, 1), 4 * PAGE);
	fill(mapped.map, 4 * PAGE, 2);
	check_equal(differs(view, 4 * PAGE, 2), 4 * PAGE);
}

TEST(a_part_of_a_region)
{
	struct mapped mapped = map_new(4 * PAGE);
	uint64_t *part = pdn_map(mapped.fd, &mapped.pin, 2 * PAGE + CPU_PAGE, CPU_PAGE);

	check(part != MAP_FAILED);
	fill(mapped.map, 4 * PAGE, 5);
	check(!memcmp(part, mapped.map + 2 * PAGE + CPU_PAGE, CPU_PAGE));
	check_equal(mappings(&mapped), 2);
}

TEST(past_the_end)
{
	struct mapped mapped = map_new(2 * PAGE);

	check(pdn_map(mapped.fd, &mapped.pin, 0, 2 * PAGE + CPU_PAGE) == MAP_FAILED &&
	      errno == EINVAL);
	check(pdn_map(mapped.fd, &mapped.pin, 2 * PAGE, CPU_PAGE) == MAP_FAILED && errno == EINVAL);
	check(pdn_map(mapped.fd, &mapped.pin, 1ull << 40, CPU_PAGE) == MAP_FAILED);
	check(pdn_map(mapped.fd, &mapped.pin, -(uint64_t)CPU_PAGE, 2 * CPU_PAGE) == MAP_FAILED);
}

/* Pages of the GPU may be smaller than the CPU's. */
TEST(small_pages_of_the_gpu)
{
	struct mapped mapped;

	if (gpu_is_nvidias())
		test_skipped("nvidia.ko has pages of 64 KiB only");
	gpu_set(SIM_GPU_SMALL_PAGES, 1);
	mapped = map_new(2 * PAGE);
	check_equal(mapped.pin.page_size, 4096);
	gpu_fill(&mapped.memory, 6);
	check_equal(differs(mapped.map, 2 * PAGE, 6), 2 * PAGE);
	works(pdn_unpin(mapped.fd, mapped.pin.region));
}

/* A page of the CPU would show what lies between those of the GPU. */
TEST(small_pages_that_are_not_contiguous)
{
	unsigned distance = CPU_PAGE / 4096;
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	if (gpu_is_nvidias())
		test_skipped("nvidia.ko has pages of 64 KiB only");
	gpu_set(SIM_GPU_SMALL_PAGES, distance == 1 ? 2 : distance);
	if (distance == 1)
		works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	else
		fails_with(pdn_pin(fd, memory.va, PAGE, 0, &pin), EOPNOTSUPP);
}

TEST(private_is_refused)
{
	struct mapped mapped = map_new(PAGE);
	void *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, mapped.fd,
			 mapped.pin.map_offset);

	check(map == MAP_FAILED && errno == EINVAL);
	map = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, mapped.fd, mapped.pin.map_offset);
	check(map == MAP_FAILED && errno == EINVAL);
}

TEST(unpin_takes_it_away)
{
	struct mapped mapped = map_new(2 * PAGE);

	check_equal(touch(mapped.map, true), 0);
	works(pdn_unpin(mapped.fd, mapped.pin.region));
	check_equal(touch(mapped.map, false), SIGBUS);
	check_equal(touch(mapped.map + PAGE, true), SIGBUS);
	check(pdn_map(mapped.fd, &mapped.pin, 0, PAGE) == MAP_FAILED);
}

TEST(free_takes_it_away)
{
	struct mapped mapped = map_new(2 * PAGE);
	struct memory again;

	check_equal(touch(mapped.map, true), 0);
	gpu_free(&mapped.memory);
	again = gpu_alloc_at(mapped.memory.va, 2 * PAGE);
	check_equal(touch(mapped.map, false), SIGBUS);
	check_equal(touch(mapped.map + 2 * PAGE - CPU_PAGE, true), SIGBUS);
	check(pdn_map(mapped.fd, &mapped.pin, 0, PAGE) == MAP_FAILED);
	gpu_free(&again);
}

TEST(close_takes_it_away_or_waits_for_it)
{
	struct mapped mapped = map_new(PAGE);
	int seen;

	gpu_fill(&mapped.memory, 9);
	/* A mapping holds the file, so the region may live on; but never with other memory. */
	works(close(mapped.fd));
	seen = touch(mapped.map, false);
	check(seen == SIGBUS || differs(mapped.map, PAGE, 9) == PAGE);
	gpu_free(&mapped.memory);
	check_equal(touch(mapped.map, false), SIGBUS);
	works(munmap(mapped.map, PAGE));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

TEST(two_mappings_of_one_region)
{
	struct mapped mapped = map_new(2 * PAGE);
	char *second = pdn_map(mapped.fd, &mapped.pin, 0, 2 * PAGE);

	check(second != MAP_FAILED);
	check_equal(mappings(&mapped), 2);
	mapped.map[77] = 'x';
	check_equal(second[77], 'x');
	gpu_free(&mapped.memory);
	check_equal(touch(mapped.map, false), SIGBUS);
	check_equal(touch(second, false), SIGBUS);
}

TEST(partial_unmap)
{
	struct mapped mapped = map_new(4 * PAGE);
	int i;

	for (i = 0; i < 4; i++)
		check_equal(touch(mapped.map + i * PAGE, true), 0);
	works(munmap(mapped.map + PAGE, 2 * PAGE));
	check_equal(mappings(&mapped), 2);
	check_equal(touch(mapped.map + PAGE, false), SIGSEGV);
	check_equal(touch(mapped.map + 3 * PAGE, true), 0);
	gpu_free(&mapped.memory);
	check_equal(touch(mapped.map, false), SIGBUS);
	check_equal(touch(mapped.map + 3 * PAGE, false), SIGBUS);
	works(munmap(mapped.map, PAGE));
	works(munmap(mapped.map + 3 * PAGE, PAGE));
	check_equal(mappings(&mapped), 0);
}

TEST(split_by_protection)
{
	struct mapped mapped = map_new(4 * PAGE);

	fill(mapped.map, 4 * PAGE, 3);
	works(mprotect(mapped.map + PAGE, PAGE, PROT_READ));
	check_equal(differs(mapped.map, 4 * PAGE, 3), 4 * PAGE);
	check_equal(touch(mapped.map + PAGE, true), SIGSEGV);
	gpu_free(&mapped.memory);
	check_equal(touch(mapped.map + PAGE, false), SIGBUS);
	check_equal(touch(mapped.map + 2 * PAGE, false), SIGBUS);
}

TEST(moved)
{
	struct mapped mapped = map_new(2 * PAGE);
	char *target = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *moved;

	fill(mapped.map, 2 * PAGE, 4);
	moved = mremap(mapped.map, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	check(moved == target);
	check_equal(differs(moved, 2 * PAGE, 4), 2 * PAGE);
	check_equal(mappings(&mapped), 1);
	gpu_free(&mapped.memory);
	check_equal(touch(moved, false), SIGBUS);
	check_equal(touch(moved + PAGE, true), SIGBUS);
}

TEST(it_does_not_grow)
{
	struct mapped mapped = map_new(2 * PAGE);

	works(munmap(mapped.map + PAGE, PAGE));
	check(mremap(mapped.map, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	check_equal(errno, EFAULT);
	/*
	 * Size 0: a second mapping of the same memory. Whatever the result, it must end with the
	 * region.
	 */
	mapped.map = mremap(mapped.map, 0, PAGE, MREMAP_MAYMOVE);
	if (mapped.map != MAP_FAILED) {
		gpu_free(&mapped.memory);
		check_equal(touch(mapped.map, false), SIGBUS);
	}
}

static void looks(void *at)
{
	check_equal(touch(at, false), SIGSEGV);
}

TEST(not_inherited_over_fork)
{
	struct mapped mapped = map_new(PAGE);

	check_equal(touch(mapped.map, true), 0);
	child_ends(in_child(looks, mapped.map));
	check_equal(touch(mapped.map, true), 0);
	check_equal(mappings(&mapped), 1);
}

static void refuses(int fd, const struct pindown_pin *pin, uint64_t kind, int error)
{
	void *map = pdn_map(fd, pin, kind, PAGE);

	check(map == MAP_FAILED);
	check_equal(errno, error);
}

static void *maps(int fd, const struct memory *memory, const struct pindown_pin *pin, uint64_t kind)
{
	void *map;

	gpu_fill(memory, kind >> 60);
	map = pdn_map(fd, pin, kind, PAGE);
	check(map != MAP_FAILED);
	check_equal(differs(map, PAGE, kind >> 60), PAGE);
	return map;
}

TEST(kinds_of_caching)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();
	void *map, *other;

	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	map = maps(fd, &memory, &pin, PINDOWN_MAP_WRITE_COMBINED);
	other = maps(fd, &memory, &pin, PINDOWN_MAP_DEFAULT);
	refuses(fd, &pin, PINDOWN_MAP_UNCACHED, EBUSY);
	works(munmap(map, PAGE));
	works(munmap(other, PAGE));
	map = maps(fd, &memory, &pin, PINDOWN_MAP_UNCACHED);
	refuses(fd, &pin, PINDOWN_MAP_DEFAULT, EBUSY);
	refuses(fd, &pin, PINDOWN_MAP_WRITE_COMBINED, EBUSY);
	works(munmap(map, PAGE));
	refuses(fd, &pin, 4ull << 60, EINVAL);
}

/* The contents of a page table, in each of its versions: `major`. */
static struct pindown_pin pin_as_of(int fd, const struct memory *memory, unsigned major, bool lies)
{
	struct pindown_pin pin;

	gpu_set(SIM_GPU_TABLE_MAJOR, major);
	gpu_set(SIM_GPU_LIES_OF_CACHING, lies);
	works(pdn_pin(fd, memory->va, memory->size, 0, &pin));
	return pin;
}

TEST(a_bar_is_never_cached)
{
	struct memory memory = gpu_alloc(2 * PAGE, SIM_GPU_SCATTERED);
	struct pindown_pin pin;
	int fd = pdn_open();
	unsigned major;

	for (major = 1; major <= 2; major++) {
		pin = pin_as_of(fd, &memory, major, false);
		refuses(fd, &pin, PINDOWN_MAP_CACHED, EOPNOTSUPP);
		works(munmap(maps(fd, &memory, &pin, PINDOWN_MAP_UNCACHED), PAGE));
		works(munmap(maps(fd, &memory, &pin, PINDOWN_MAP_DEFAULT), PAGE));
	}
}

/* As on Grace: the memory is cached elsewhere, so only cached mappings are allowed. */
TEST(coherent_memory_is_always_cached)
{
	struct memory memory = gpu_alloc(2 * PAGE, SIM_GPU_COHERENT);
	struct pindown_pin pin;
	int fd = pdn_open();
	unsigned major;
	void *map;

	for (major = 1; major <= 2; major++) {
		pin = pin_as_of(fd, &memory, major, false);
		refuses(fd, &pin, PINDOWN_MAP_WRITE_COMBINED, EOPNOTSUPP);
		refuses(fd, &pin, PINDOWN_MAP_UNCACHED, EOPNOTSUPP);
		map = maps(fd, &memory, &pin, PINDOWN_MAP_DEFAULT);
		works(munmap(maps(fd, &memory, &pin, PINDOWN_MAP_CACHED), PAGE));
		works(pdn_unpin(fd, pin.region));
		check_equal(touch(map, false), SIGBUS);
		works(munmap(map, PAGE));
	}
}

/* If the driver's caching contradicts the place of the pages, either type may be wrong. */
TEST(a_driver_that_contradicts_itself)
{
	static const uint64_t kinds[] = {PINDOWN_MAP_DEFAULT, PINDOWN_MAP_WRITE_COMBINED,
					 PINDOWN_MAP_UNCACHED, PINDOWN_MAP_CACHED};
	struct memory of_device = gpu_alloc(PAGE, 0), coherent = gpu_alloc(PAGE, SIM_GPU_COHERENT);
	struct pindown_pin pins[2];
	int fd = pdn_open();
	char message[80];
	unsigned i;

	pins[0] = pin_as_of(fd, &of_device, 2, true);
	pins[1] = pin_as_of(fd, &coherent, 2, true);
	for (i = 0; i < 4; i++) {
		refuses(fd, &pins[0], kinds[i], EOPNOTSUPP);
		refuses(fd, &pins[1], kinds[i], EOPNOTSUPP);
	}
	snprintf(message, sizeof(message), "pindown: a region of process %d is not mapped",
		 getpid());
	check(kernel_says(message));
}

TEST(read_only)
{
	struct mapped mapped = map_new(PAGE);
	char *map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, mapped.fd, mapped.pin.map_offset);

	check(map != MAP_FAILED);
	check_equal(touch(map, false), 0);
	check_equal(touch(map, true), SIGSEGV);
}

/* Neither at once nor later. */
TEST(code_is_refused)
{
	struct mapped mapped = map_new(PAGE);
	void *map = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, mapped.fd,
			 mapped.pin.map_offset);

	check(map == MAP_FAILED && errno == EACCES);
	check(mprotect(mapped.map, PAGE, PROT_READ | PROT_EXEC) < 0 && errno == EACCES);
	check_equal(touch(mapped.map, true), 0);
}

TEST(a_hundred_mappings)
{
	struct mapped mapped = map_new(2 * PAGE);
	char *map[100];
	int i;

	for (i = 0; i < 100; i++) {
		map[i] = pdn_map(mapped.fd, &mapped.pin, (i & 1) * PAGE, PAGE);
		check(map[i] != MAP_FAILED);
		check_equal(touch(map[i], true), 0);
	}
	check_equal(mappings(&mapped), 101);
	gpu_free(&mapped.memory);
	for (i = 0; i < 100; i++)
		check_equal(touch(map[i], false), SIGBUS);
}

/* More than one page of page tables, and more than a fault inserts at a time. */
TEST(nearly_all_of_the_memory, .seconds = 100)
{
	const uint64_t size = 192 * MIB;
	struct mapped mapped = map_new(size);
	char *view = gpu_view(&mapped.memory);
	uint64_t at;

	for (at = 0; at < size; at += PAGE) {
		fill(view + at, 64, at / PAGE);
		check_equal(differs(mapped.map + at, 64, at / PAGE), 64);
	}
	check_equal(touch(mapped.map + size - 1, true), 0);
	gpu_free(&mapped.memory);
	for (at = 0; at < size; at += PAGE)
		check_equal(touch(mapped.map + at, false), SIGBUS);
}

TEST(the_kernel_copies_from_it_and_to_it)
{
	struct mapped mapped = map_new(PAGE);
	char text[16] = "";
	int ends[2];

	works(pipe(ends));
	strcpy(mapped.map, "through a pipe");
	check_equal(write(ends[1], mapped.map, 15), 15);
	check_equal(read(ends[0], text, 15), 15);
	check(!strcmp(text, "through a pipe"));
	gpu_free(&mapped.memory);
	check(write(ends[1], mapped.map, 15) < 0 && errno == EFAULT);
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
