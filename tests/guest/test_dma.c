// SPDX-License-Identifier: MIT
/*
 * A third-party device moves GPU data: it imports pindown's dma-bufs, knowing only dma-buf. Its
 * engine is slow (2 KiB in a fifth of a second), so little is moved, but at every place that
 * matters.
 */
#include <fcntl.h>
#include <glob.h>
#include <sys/klog.h>
#include <sys/stat.h>

#include "guest.h"

#define PIECE 2048u

struct exported {
	struct memory memory;
	struct pindown_pin pin;
	int fd, buffer;
};

static struct exported export_new(uint64_t size, unsigned alloc_flags, unsigned pin_flags)
{
	struct exported exported = {.memory = gpu_alloc(size, alloc_flags), .fd = pdn_open()};

	works(pdn_pin(exported.fd, exported.memory.va, size, pin_flags, &exported.pin));
	exported.buffer = pdn_export(exported.fd, exported.pin.region);
	works(exported.buffer);
	return exported;
}

/* The device reads the GPU's memory. */
static void device_reads(int peer, unsigned id, const char *view, uint64_t offset)
{
	char data[PIECE];

	works(peer_move(peer, EDU_READ, id, offset, data, PIECE));
	check(!memcmp(data, view + offset, PIECE));
}

static void device_writes(int peer, unsigned id, const char *view, uint64_t offset, uint64_t seed)
{
	uint64_t data[PIECE / 8];

	fill(data, PIECE, seed);
	works(peer_move(peer, EDU_WRITE, id, offset, data, PIECE));
	check(!memcmp(data, view + offset, PIECE));
}

static void reads_and_writes(unsigned alloc_flags, unsigned pin_flags, unsigned import_flags)
{
	struct exported exported = export_new(4 * PAGE, alloc_flags, pin_flags);
	char *view = gpu_view(&exported.memory);
	struct edu_import import;
	int peer = peer_open();

	fill(view, 4 * PAGE, 11);
	works(peer_import(peer, exported.buffer, import_flags, &import));
	check_equal(import.size, 4 * PAGE);
	device_reads(peer, import.id, view, 0);
	device_reads(peer, import.id, view, 4 * PAGE - PIECE);
	/* Across the border of two GPU pages. */
	device_reads(peer, import.id, view, 2 * PAGE - PIECE / 2);
	device_writes(peer, import.id, view, PAGE - PIECE / 2, 12);
	device_writes(peer, import.id, view, 3 * PAGE, 13);
	works(ioctl(peer, EDU_RELEASE, &import.id));
}

TEST(static_importer)
{
	reads_and_writes(0, 0, 0);
}

TEST(dynamic_importer)
{
	reads_and_writes(0, 0, EDU_DYNAMIC);
}

TEST(pages_that_are_no_neighbours)
{
	reads_and_writes(SIM_GPU_SCATTERED, 0, EDU_DYNAMIC);
}

TEST(persistent_pin)
{
	reads_and_writes(SIM_GPU_SCATTERED, PINDOWN_PIN_PERSISTENT, 0);
}

static void free_ends_it(unsigned import_flags)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_import import;
	struct edu_state state = {};
	struct memory again;
	int peer = peer_open();
	char data[64];

	works(peer_import(peer, exported.buffer, import_flags, &import));
	works(peer_move(peer, EDU_READ, import.id, 0, data, sizeof(data)));
	gpu_free(&exported.memory);
	again = gpu_alloc_at(exported.memory.va, PAGE);
	gpu_fill(&again, 5);

	state.id = import.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.moves, 1);
	check_equal(state.mapped, 0);
	fails_with(peer_move(peer, EDU_READ, import.id, 0, data, sizeof(data)), ESTALE);
	/* And it cannot map it again. */
	if (!(import_flags & EDU_LAZY))
		check(ioctl(peer, EDU_REMAP, &import.id) < 0);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	check(peer_import(peer, exported.buffer, import_flags, &import) < 0);
	works(close(exported.buffer));
}

TEST(a_free_stops_a_dynamic_importer)
{
	free_ends_it(EDU_DYNAMIC);
}

TEST(a_free_stops_one_that_unmaps_later)
{
	free_ends_it(EDU_DYNAMIC | EDU_LAZY);
}

/*
 * An importer that can't be notified keeps the memory, as the ioctl header says: the device never
 * reaches memory that has passed to another owner.
 */
TEST(a_free_under_a_static_importer)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_import import;
	struct memory again;
	int peer = peer_open();
	uint64_t data[PIECE / 8];

	gpu_fill(&exported.memory, 21);
	works(peer_import(peer, exported.buffer, 0, &import));
	gpu_free(&exported.memory);
	again = gpu_alloc_at(exported.memory.va, PAGE);
	gpu_fill(&again, 22);
	works(peer_move(peer, EDU_READ, import.id, 0, data, PIECE));
	check_equal(differs(data, PIECE, 21), PIECE);
	fill(data, PIECE, 23);
	works(peer_move(peer, EDU_WRITE, import.id, 0, data, PIECE));
	check_equal(differs(gpu_view(&again), PAGE, 22), PAGE);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 2);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	works(close(exported.buffer));
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 1);
}

static bool has_iommu(void)
{
	glob_t found;
	bool any = glob("/sys/class/iommu/*", 0, NULL, &found) == 0;

	globfree(&found);
	return any;
}

/*
 * The device's own address for GPU memory, used after the free by a device that ignores revocation.
 */
TEST(a_device_that_does_not_listen)
{
	struct exported exported = export_new(PAGE, 0, 0);
	char *view = gpu_view(&exported.memory);
	struct edu_import import;
	struct edu_state state = {};
	struct edu_raw raw;
	struct memory again;
	uint64_t data[8], secret[8];
	int peer = peer_open();

	fill(view, PAGE, 31);
	works(peer_import(peer, exported.buffer, EDU_DYNAMIC, &import));
	state.id = import.id;
	works(ioctl(peer, EDU_STATE, &state));
	raw = (struct edu_raw){
		.address = state.address, .data = (uintptr_t)data, .length = sizeof(data)};
	works(ioctl(peer, EDU_RAW, &raw));
	check(!memcmp(data, view, sizeof(data)));

	gpu_free(&exported.memory);
	again = gpu_alloc_at(exported.memory.va, PAGE);
	gpu_fill(&again, 32);
	memcpy(secret, gpu_view(&again), sizeof(secret));
	if (!has_iommu())
		test_skipped("no IOMMU in this boot: nothing can stop such a device");
	memset(data, 0, sizeof(data));
	works(ioctl(peer, EDU_RAW, &raw));
	check(memcmp(data, secret, sizeof(data)));
	raw.write = 1;
	works(ioctl(peer, EDU_RAW, &raw));
	check(!memcmp(gpu_view(&again), secret, sizeof(secret)));
}

/* As nvidia.ko 550 does on Linux 6.11 and later: the administrator is told. */
TEST(a_driver_that_maps_nothing)
{
	static char log[1 << 20];
	struct exported exported;
	struct edu_import import;
	int peer, length;

	if (gpu_is_nvidias())
		test_skipped("nvidia.ko does as it does");
	exported = export_new(PAGE, 0, 0);
	gpu_set(SIM_GPU_MAPS_NOTHING, 1);
	peer = peer_open();
	works(peer_import(peer, exported.buffer, EDU_DYNAMIC, &import));
	length = klogctl(3, log, sizeof(log) - 1);
	works(length);
	check_equal(!!strstr(log, "pindown: the driver has not mapped GPU memory for "),
		    has_iommu());
}

/*
 * Work that was begun before may continue after an importer has unmapped: it has a fence in the
 * reservation object. The pin lasts until the fence is signalled, and nobody else waits for it.
 */
TEST(unpin_leaves_it_to_a_fence)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct pindown_unpin unpin = {.size = sizeof(unpin), .region = exported.pin.region};
	struct edu_state state = {};
	struct edu_import import;
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC | EDU_BUSY, &import));
	works(ioctl(exported.fd, PINDOWN_IOC_UNPIN, &unpin));
	state.id = import.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.moves, 1);
	check_equal(state.mapped, 0);
	check_equal(unpin.importers, 1);
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	check_equal(gpu_count(SIM_GPU_DMA_MAPPINGS), 1);
	works(ioctl(peer, EDU_SIGNAL, &import.id));
	gpu_wait_for(SIM_GPU_PINS, 0);
	works(ioctl(peer, EDU_RELEASE, &import.id));
}

/* A persistent pin that an importer keeps after its region's end is counted until it ends. */
TEST(what_importers_keep_is_counted)
{
	struct exported exported = export_new(2 * PAGE, 0, PINDOWN_PIN_PERSISTENT);
	struct edu_import import;
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, 0, &import));
	check_equal(pdn_counter("kept_bytes"), 0);
	works(pdn_unpin(exported.fd, exported.pin.region));
	check_equal(pdn_counter("kept_bytes"), 2 * PAGE);
	check_equal(gpu_count(SIM_GPU_PERSISTENT), 1);
	works(close(exported.buffer));
	works(ioctl(peer, EDU_RELEASE, &import.id));
	gpu_wait_for(SIM_GPU_PERSISTENT, 0);
	check_equal(pdn_counter("kept_bytes"), 0);
}

TEST(a_free_leaves_it_to_a_fence)
{
	struct exported exported = export_new(PAGE, 0, 0), later = export_new(2 * PAGE, 0, 0);
	struct edu_import import, of_later;
	struct memory again;
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC | EDU_BUSY, &import));
	gpu_free(&exported.memory);
	again = gpu_alloc_at(exported.memory.va, PAGE);
	/* Work items begin in the order of the frees: by the end of a later one it has begun. */
	works(peer_import(peer, later.buffer, EDU_DYNAMIC | EDU_BUSY, &of_later));
	gpu_free(&later.memory);
	works(ioctl(peer, EDU_SIGNAL, &of_later.id));
	gpu_wait_for(SIM_GPU_MEMORY_PAGES, 2);
	works(ioctl(peer, EDU_RELEASE, &of_later.id));
	works(ioctl(peer, EDU_SIGNAL, &import.id));
	gpu_wait_for(SIM_GPU_MEMORY_PAGES, 1);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	gpu_free(&again);
}

/* The importer is gone, and so are all descriptors; its device is still at work. */
TEST(a_fence_outlives_its_importer)
{
	struct exported exported = export_new(PAGE, 0, 0), other = export_new(PAGE, 0, 0);
	struct edu_import import, of_other;
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC | EDU_BUSY, &import));
	works(peer_import(peer, other.buffer, EDU_DYNAMIC, &of_other));
	works(close(exported.buffer));
	works(close(exported.fd));
	works(ioctl(peer, EDU_RELEASE, &import.id));
	check_equal(gpu_count(SIM_GPU_DMA_MAPPINGS), 1);
	/* The end of another region does not wait for it. */
	works(ioctl(peer, EDU_RELEASE, &of_other.id));
	works(close(other.buffer));
	works(close(other.fd));
	check_equal(gpu_count(SIM_GPU_DMA_MAPPINGS), 0);
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	/* The module can't be unloaded before that either. */
	check(number_in("/sys/module/pindown/refcnt") > 0);
	works(ioctl(peer, EDU_SIGNAL, &import.id));
	gpu_wait_for(SIM_GPU_PINS, 0);
	wait_until(number_in("/sys/module/pindown/refcnt") == 0);
}

/*
 * More dma-bufs with a device at work than the workqueue has threads (256, 1024 on newer kernels):
 * each of these waits, and another one is reaped all the same.
 */
TEST(many_that_wait_do_not_hold_up_another, .seconds = 100)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct exported other = export_new(2 * PAGE, 0, 0);
	int fd = pdn_open(), peer = peer_open(), of_other = peer_open();
	struct edu_import import;
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
	for (unsigned i = 0; i < 1100; i++) {
		int buffer = pdn_export(fd, pin.region);

		works(buffer);
		works(peer_import(peer, buffer, EDU_DYNAMIC | EDU_BUSY, &import));
		works(close(buffer));
	}
	works(pdn_unpin(fd, pin.region));
	works(peer_import(of_other, other.buffer, EDU_DYNAMIC | EDU_BUSY, &import));
	gpu_free(&other.memory);
	works(ioctl(of_other, EDU_SIGNAL, &import.id));
	gpu_wait_for(SIM_GPU_MEMORY_PAGES, 1);
	check_equal(gpu_count(SIM_GPU_DMA_MAPPINGS), 1100);
	works(close(peer)); /* its work is done then */
	gpu_wait_for(SIM_GPU_DMA_MAPPINGS, 0);
}

/* The dma-buf is gone before its region ends: the device alone still keeps the memory then. */
TEST(what_a_fence_keeps_is_counted)
{
	struct exported exported = export_new(PAGE, 0, PINDOWN_PIN_PERSISTENT);
	struct edu_import import;
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC | EDU_BUSY, &import));
	works(close(exported.buffer));
	works(ioctl(peer, EDU_RELEASE, &import.id));
	check_equal(pdn_counter("kept_bytes"), 0);
	works(pdn_unpin(exported.fd, exported.pin.region));
	check_equal(pdn_counter("kept_bytes"), PAGE);
	check_equal(gpu_count(SIM_GPU_PERSISTENT), 1);
	works(ioctl(peer, EDU_SIGNAL, &import.id));
	gpu_wait_for(SIM_GPU_PERSISTENT, 0);
	wait_until(pdn_counter("kept_bytes") == 0); /* counted behind the driver's call */
}

/* The kernel's own RDMA code warns when it is notified about memory that it has pinned. */
static void pinned_importer(bool by_free)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_state state = {};
	struct edu_import import;
	uint64_t data[PIECE / 8];
	int peer = peer_open();

	gpu_fill(&exported.memory, 61);
	works(peer_import(peer, exported.buffer, EDU_DYNAMIC | EDU_PINNED, &import));
	if (by_free)
		gpu_free(&exported.memory);
	else
		works(pdn_unpin(exported.fd, exported.pin.region));
	state.id = import.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.moves, 0);
	check_equal(state.mapped, 1);
	works(peer_move(peer, EDU_READ, import.id, 0, data, PIECE));
	check_equal(differs(data, PIECE, 61), PIECE);
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	gpu_wait_for(SIM_GPU_PINS, 0);
}

TEST(a_free_does_not_tell_a_pinned_importer)
{
	pinned_importer(true);
}

TEST(unpin_does_not_tell_a_pinned_importer)
{
	pinned_importer(false);
}

TEST(others_are_told_beside_a_pinned_importer)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_import pinned, told;
	struct edu_state state = {};
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC | EDU_PINNED, &pinned));
	works(peer_import(peer, exported.buffer, EDU_DYNAMIC, &told));
	gpu_free(&exported.memory);
	state.id = told.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.moves, 1);
	state.id = pinned.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.moves, 0);
	works(ioctl(peer, EDU_RELEASE, &told.id));
	works(ioctl(peer, EDU_RELEASE, &pinned.id));
}

TEST(unpin_with_an_importer)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct pindown_unpin unpin = {.size = sizeof(unpin), .region = exported.pin.region};
	struct edu_import import;
	int peer = peer_open();
	char data[64];

	works(peer_import(peer, exported.buffer, 0, &import));
	works(ioctl(exported.fd, PINDOWN_IOC_UNPIN, &unpin));
	check_equal(unpin.importers, 1);
	gpu_free(&exported.memory);
	works(peer_move(peer, EDU_READ, import.id, 0, data, sizeof(data)));
	works(ioctl(peer, EDU_RELEASE, &import.id));
	works(close(exported.buffer));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
}

TEST(unpin_tells_a_dynamic_importer)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_state state = {};
	struct edu_import import;
	int peer = peer_open();

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC, &import));
	works(pdn_unpin(exported.fd, exported.pin.region));
	state.id = import.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.moves, 1);
	works(close(exported.buffer));
	works(ioctl(peer, EDU_RELEASE, &import.id));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

TEST(the_importer_outlives_all_descriptors)
{
	struct exported exported = export_new(PAGE, 0, PINDOWN_PIN_PERSISTENT);
	struct edu_import import;
	uint64_t data[PIECE / 8];
	int peer = peer_open();

	gpu_fill(&exported.memory, 41);
	works(peer_import(peer, exported.buffer, 0, &import));
	works(close(exported.buffer));
	works(close(exported.fd));
	gpu_free(&exported.memory);
	works(peer_move(peer, EDU_READ, import.id, 0, data, PIECE));
	check_equal(differs(data, PIECE, 41), PIECE);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

TEST(counts_in_the_list)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_import import[2];
	struct shown shown;
	int peer = peer_open(), second = pdn_export(exported.fd, exported.pin.region);

	works(second);
	works(peer_import(peer, exported.buffer, EDU_DYNAMIC, &import[0]));
	works(peer_import(peer, second, 0, &import[1]));
	check(pdn_shown(exported.pin.region, &shown));
	check_equal(shown.exports, 2);
	check_equal(shown.importers, 2);
	works(ioctl(peer, EDU_RELEASE, &import[1].id));
	works(close(second));
	check(pdn_shown(exported.pin.region, &shown));
	check_equal(shown.exports, 1);
	check_equal(shown.importers, 1);
}

/* As on Grace, where the driver has no bus addresses for other devices. */
TEST(a_device_gets_no_coherent_memory)
{
	struct memory memory = gpu_alloc(2 * PAGE, SIM_GPU_COHERENT);
	int fd = pdn_open(), peer = peer_open(), buffer;
	struct edu_import import;
	struct pindown_pin pin;

	if (gpu_is_nvidias())
		test_skipped("nvidia.ko was not seen with coherent memory below it");
	works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
	buffer = pdn_export(fd, pin.region);
	works(buffer);
	fails_with(peer_import(peer, buffer, 0, &import), EOPNOTSUPP);
	works(close(buffer));
	works(pdn_unpin(fd, pin.region));
}

TEST(the_descriptor_is_close_on_exec)
{
	struct exported exported = export_new(PAGE, 0, 0);

	check(fcntl(exported.buffer, F_GETFD) & FD_CLOEXEC);
}

TEST(the_driver_cannot_map_it)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_import import;
	int peer = peer_open();

	gpu_set(SIM_GPU_FAIL_MAP, 1);
	check(peer_import(peer, exported.buffer, 0, &import) < 0);
	gpu_set(SIM_GPU_FAIL_MAP, 1);
	check(peer_import(peer, exported.buffer, EDU_DYNAMIC, &import) < 0);
	works(peer_import(peer, exported.buffer, 0, &import));
}

/*
 * nvidia.ko uses a length of the BAR that is a byte too short, and maps its last page for no
 * device.
 */
TEST(the_last_page_of_the_bar)
{
	struct memory memory;
	struct edu_import import;
	int fd = pdn_open(), peer = peer_open(), buffer;
	struct pindown_pin pin;
	uint64_t size;

	works(ioctl(gpu(), SIM_GPU_SIZE, &size));
	memory = gpu_alloc(size, 0);
	works(pdn_pin(fd, memory.va + size - PAGE, PAGE, 0, &pin));
	buffer = pdn_export(fd, pin.region);
	works(buffer);
	fails_with(peer_import(peer, buffer, 0, &import), EIO);
	works(close(buffer));
	works(pdn_unpin(fd, pin.region));
	works(pdn_pin(fd, memory.va + size - 2 * PAGE, PAGE, 0, &pin));
	buffer = pdn_export(fd, pin.region);
	works(buffer);
	works(peer_import(peer, buffer, 0, &import));
	works(ioctl(peer, EDU_RELEASE, &import.id));
}

static void imports(void *arg)
{
	struct exported *exported = arg;
	struct edu_import import;
	char data[64];
	int peer = peer_open();

	works(peer_import(peer, exported->buffer, EDU_DYNAMIC, &import));
	works(peer_move(peer, EDU_READ, import.id, 0, data, sizeof(data)));
	fill(data, sizeof(data), 51);
	works(peer_move(peer, EDU_WRITE, import.id, 0, data, sizeof(data)));
	works(ioctl(peer, EDU_RELEASE, &import.id));
}

/* The purpose of GPUDirect RDMA: the process that owns the device need not be the GPU's. */
TEST(another_process_drives_the_device)
{
	struct exported exported = export_new(PAGE, 0, 0);

	child_ends(in_child(imports, &exported));
	check_equal(differs(gpu_view(&exported.memory), 64, 51), 64);
}

static void *moves_slowly(void *arg)
{
	const struct edu_import *import = arg;
	static char data[8 * PIECE];
	int peer = import->fd; /* borrowed: the peer's descriptor */

	if (peer_move(peer, EDU_READ, import->id, 0, data, sizeof(data)))
		check_equal(errno, ESTALE);
	return NULL;
}

/* The free waits for the device's current transfer, and then the device stops. */
TEST(a_free_while_the_device_moves)
{
	struct exported exported = export_new(PAGE, 0, 0);
	struct edu_import import;
	struct edu_state state = {};
	int peer = peer_open();
	pthread_t thread;

	works(peer_import(peer, exported.buffer, EDU_DYNAMIC, &import));
	import.fd = peer;
	thread = in_thread(moves_slowly, &import);
	newest_thread_waits(); /* for the device */
	gpu_free(&exported.memory);
	thread_ends(thread);
	state.id = import.id;
	works(ioctl(peer, EDU_STATE, &state));
	check_equal(state.mapped, 0);
}
