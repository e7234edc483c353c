// SPDX-License-Identifier: MIT
/*
 * BAR space belongs to the whole machine and is scarce: limits, the memory that counts, and
 * processes that unpin idle regions when another process needs space.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "guest.h"

/* Pins that an earlier test has left. */
static void defaults(void)
{
	module_parameter("max_process_mb", "0");
	module_parameter("max_regions", "1048575");
	module_parameter("max_pinned_mb", "0");
	module_parameter("reclaim_wait_ms", "1000");
}

/* A process with idle regions, which unpins them when it is asked. */
struct keeper {
	int ready[2], asked[2];
	unsigned regions;
	bool gives;
};

static void keeps(void *arg)
{
	struct keeper *keeper = arg;
	struct memory memory = gpu_alloc(keeper->regions * PAGE, 0);
	int fd = pdn_open();
	const struct pindown_state *state = (const void *)pdn_state(fd);
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	struct pindown_answer answer = {.size = sizeof(answer)};
	struct pindown_pin *pin = calloc(keeper->regions, sizeof(*pin));
	uint64_t given = 0, wanted;
	unsigned i = 0;

	for (i = 0; i < keeper->regions; i++)
		works(pdn_pin(fd, memory.va + i * PAGE, PAGE, 0, &pin[i]));
	check_equal(poll(&poller, 1, 0), 0);
	check_equal(write(keeper->ready[1], "", 1), 1);
	for (i = 0;;) {
		check_equal(poll(&poller, 1, -1), 1);
		check(poller.revents & POLLIN);
		answer.wanted = __atomic_load_n(&state->wanted, __ATOMIC_ACQUIRE);
		wanted = state->wanted_bytes;
		check(wanted >= PAGE);
		if (keeper->regions < 10) /* there was room to see which GPU it is */
			check(!memcmp(state->wanted_gpu, pin[0].gpu_uuid, 16));
		for (given = 0; keeper->gives && given < wanted && i < keeper->regions; i++) {
			works(pdn_unpin(fd, pin[i].region));
			given += PAGE;
		}
		works(ioctl(fd, PINDOWN_IOC_ANSWER, &answer));
		check_equal(write(keeper->asked[1], "", 1), 1);
	}
}

static pid_t keeper_start(struct keeper *keeper)
{
	pid_t child;
	char byte;

	works(pipe(keeper->ready));
	works(pipe(keeper->asked));
	child = in_child(keeps, keeper);
	check_equal(read(keeper->ready[0], &byte, 1), 1);
	return child;
}

static void keeper_stop(pid_t child)
{
	works(kill(child, SIGKILL));
	check(waitpid(child, NULL, 0) == child);
}

TEST(two_processes_and_one_bar_too_small_for_both)
{
	struct keeper keeper = {.regions = 8, .gives = true};
	struct memory memory;
	uint64_t reclaims, saves;
	struct pindown_pin pin;
	pid_t child;
	int fd;

	defaults();
	gpu_set(SIM_GPU_BAR_LIMIT, 10);
	child = keeper_start(&keeper);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 8);
	memory = gpu_alloc(6 * PAGE, 0);
	fd = pdn_open();
	reclaims = pdn_counter("reclaims");
	saves = pdn_counter("reclaim_saves");
	/* Nothing is given without a wish; */
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, PINDOWN_PIN_NO_RECLAIM, &pin), ENOSPC);
	/* and not more than is wanted. */
	works(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin));
	check(pdn_counter("reclaims") > reclaims);
	check_equal(pdn_counter("reclaim_saves") - saves, 1);
	check(gpu_count(SIM_GPU_BAR_PAGES) <= 10);
	check(gpu_count(SIM_GPU_BAR_PAGES) >= 6);
	keeper_stop(child);
}

/* A process without idle regions answers, so the waiting pin ends before its time. */
TEST(nothing_idle)
{
	struct keeper keeper = {.regions = 8, .gives = false};
	struct timespec begin, end;
	struct memory memory;
	struct pindown_pin pin;
	pid_t child;
	int fd;

	defaults();
	module_parameter("reclaim_wait_ms", "20000");
	gpu_set(SIM_GPU_BAR_LIMIT, 10);
	child = keeper_start(&keeper);
	memory = gpu_alloc(6 * PAGE, 0);
	fd = pdn_open();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	clock_gettime(CLOCK_MONOTONIC, &end);
	check(end.tv_sec - begin.tv_sec < 15);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 8);
	keeper_stop(child);
}

TEST(nobody_else_to_ask)
{
	struct memory memory = gpu_alloc(6 * PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin;

	defaults();
	gpu_set(SIM_GPU_BAR_LIMIT, 4);
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	works(pdn_pin(fd, memory.va, 4 * PAGE, 0, &pin));
}

static void frozen(void *arg)
{
	struct keeper *keeper = arg;
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	int fd = pdn_open();
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin));
	check_equal(write(keeper->ready[1], "", 1), 1);
	for (;;)
		pause();
}

/* A process that does not answer delays the pin only for a limited time. */
TEST(a_process_that_does_not_answer)
{
	struct keeper keeper = {};
	struct memory memory;
	struct pindown_pin pin;
	char byte;
	pid_t child;
	int fd;

	defaults();
	module_parameter("reclaim_wait_ms", "100");
	gpu_set(SIM_GPU_BAR_LIMIT, 10);
	works(pipe(keeper.ready));
	child = in_child(frozen, &keeper);
	check_equal(read(keeper.ready[0], &byte, 1), 1);
	memory = gpu_alloc(6 * PAGE, 0);
	fd = pdn_open();
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	keeper_stop(child);
	works(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin));
}

TEST(limits_by_default)
{
	struct memory memory = gpu_alloc(64 * MIB, 0);
	unsigned pins = 0;
	int fd = pdn_open();
	struct pindown_pin pin;

	defaults();
	module_parameter("max_process_mb", "-1");
	module_parameter("max_pinned_mb", "-1");
	/* The same memory, and each pin counts. */
	while (pins < 100 && !pdn_pin(fd, memory.va, memory.size, PINDOWN_PIN_PERSISTENT, &pin))
		pins++;
	check(pins > 0 && pins < 100);
	check_equal(errno, EDQUOT);
	works(close(fd));
	fd = pdn_open();
	works(pdn_pin(fd, memory.va, memory.size, PINDOWN_PIN_PERSISTENT, &pin));
	defaults();
}

static void on_alarm(int number)
{
	(void)number;
}

TEST(a_signal_ends_the_wait)
{
	struct sigaction act = {.sa_handler = on_alarm};
	struct keeper keeper = {};
	struct memory memory;
	struct pindown_pin pin;
	char byte;
	pid_t child;
	int fd;

	defaults();
	module_parameter("reclaim_wait_ms", "20000");
	gpu_set(SIM_GPU_BAR_LIMIT, 10);
	works(pipe(keeper.ready));
	child = in_child(frozen, &keeper);
	check_equal(read(keeper.ready[0], &byte, 1), 1);
	memory = gpu_alloc(6 * PAGE, 0);
	fd = pdn_open();
	sigaction(SIGALRM, &act, NULL);
	ualarm(300000, 0);
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin), EINTR);
	keeper_stop(child);
}

/* ---- several wishes ---- */

struct wishes {
	int ready[2], go[2], told[2];
};
struct told {
	uint32_t wanted;
	uint64_t bytes;
};

/* Looks only when it may, and then answers one wish after another without giving anything. */
static void looks_late(void *arg)
{
	struct wishes *wishes = arg;
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	int fd = pdn_open();
	const struct pindown_state *state = (const void *)pdn_state(fd);
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	struct pindown_answer answer = {.size = sizeof(answer)};
	struct pindown_pin pin;
	struct told told;
	char byte;

	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin));
	check_equal(write(wishes->ready[1], "", 1), 1);
	check_equal(read(wishes->go[0], &byte, 1), 1);
	for (;;) {
		check_equal(poll(&poller, 1, -1), 1);
		told.wanted = __atomic_load_n(&state->wanted, __ATOMIC_ACQUIRE);
		told.bytes = state->wanted_bytes;
		check_equal(write(wishes->told[1], &told, sizeof(told)), sizeof(told));
		answer.wanted = told.wanted;
		works(ioctl(fd, PINDOWN_IOC_ANSWER, &answer));
	}
}

static void wishes_in_vain(void *arg)
{
	uint64_t size = *(uint64_t *)arg;
	struct memory memory = gpu_alloc(size, 0);
	struct pindown_pin pin;

	fails_with(pdn_pin(pdn_open(), memory.va, size, 0, &pin), ENOSPC);
}

/* Both are shown, each with its own bytes, and no answer to one counts for the other. */
TEST(two_pins_wish_at_a_time)
{
	uint64_t sizes[] = {6 * PAGE, 4 * PAGE}, reclaims;
	struct wishes wishes;
	struct timespec begin, end;
	struct told told[2];
	pid_t keeper, child[2];
	char byte;

	defaults();
	module_parameter("reclaim_wait_ms", "20000");
	gpu_set(SIM_GPU_BAR_LIMIT, 10);
	works(pipe(wishes.ready));
	works(pipe(wishes.go));
	works(pipe(wishes.told));
	keeper = in_child(looks_late, &wishes);
	check_equal(read(wishes.ready[0], &byte, 1), 1);
	reclaims = pdn_counter("reclaims");
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned i = 0; i < 2; i++) {
		child[i] = in_child(wishes_in_vain, &sizes[i]);
		wait_until(pdn_counter("reclaims") == reclaims + i + 1);
	}
	check_equal(write(wishes.go[1], "", 1), 1);
	for (unsigned i = 0; i < 2; i++) {
		check_equal(read(wishes.told[0], &told[i], sizeof(*told)), sizeof(*told));
		check_equal(told[i].bytes, sizes[i]);
	}
	check_equal(told[1].wanted, told[0].wanted + 1);
	child_ends(child[0]);
	child_ends(child[1]);
	clock_gettime(CLOCK_MONOTONIC, &end);
	check(end.tv_sec - begin.tv_sec < 15);
	keeper_stop(keeper);
	defaults();
}

TEST(limit_of_a_process)
{
	struct memory memory = gpu_alloc(32 * PAGE, 0);
	struct pindown_pin pin, more;
	int one = pdn_open(), two = pdn_open();

	defaults();
	module_parameter("max_process_mb", "1");
	works(pdn_pin(one, memory.va, 10 * PAGE, 0, &pin));
	/* All descriptors of the process count together. */
	fails_with(pdn_pin(two, memory.va, 7 * PAGE, 0, &pin), EDQUOT);
	works(pdn_pin(two, memory.va, 6 * PAGE, 0, &pin));
	fails_with(pdn_pin(one, memory.va, PAGE, 0, &more), EDQUOT);
	works(pdn_unpin(two, pin.region));
	works(pdn_pin(one, memory.va, 6 * PAGE, 0, &pin));
}

TEST(limit_of_all)
{
	struct keeper keeper = {.regions = 12, .gives = true};
	uint64_t reclaims;
	struct memory memory;
	struct pindown_pin pin;
	pid_t child;
	int fd;

	defaults();
	module_parameter("max_pinned_mb", "1");
	child = keeper_start(&keeper);
	memory = gpu_alloc(32 * PAGE, 0);
	fd = pdn_open();
	/* At a limit nobody is asked to give space back. */
	reclaims = pdn_counter("reclaims");
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, PINDOWN_PIN_NO_RECLAIM, &pin), ENOSPC);
	fails_with(pdn_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	check_equal(pdn_counter("reclaims"), reclaims);
	works(pdn_pin(fd, memory.va, 4 * PAGE, 0, &pin));
	fails_with(pdn_pin(fd, memory.va, 17 * PAGE, 0, &pin), ENOSPC);
	keeper_stop(child);
	defaults();
}

/* ---- what importers hold is charged, too ---- */

/* The charge is the BAR space of this process' pins; no other process has pins. */
static void charged(unsigned pages)
{
	check_equal(pdn_counter("charged_bytes"), pages * PAGE);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), pages);
}

/* A work item of the kernel releases these pins. */
static void comes_back(void)
{
	wait_until(gpu_count(SIM_GPU_BAR_PAGES) == 0);
	/* The driver has the space back a moment before the budget. */
	wait_until(pdn_counter("charged_bytes") == 0);
}

/* Drivers before 580 use separate BAR space for each kind of pin, later ones share it. */
static void an_export_of_a_region_with_callback(unsigned major)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	int fd = pdn_open(), peer = peer_open(), buffer[2];
	unsigned twice = major == 1 ? 16 : 8;
	struct edu_import import;
	struct pindown_pin pin;

	gpu_set(SIM_GPU_TABLE_MAJOR, major);
	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin));
	charged(8);
	buffer[0] = pdn_export(fd, pin.region);
	works(buffer[0]);
	charged(twice);
	works(peer_import(peer, buffer[0], 0, &import));
	charged(twice);
	/* Only the importer is left, and this process has given it the memory. */
	works(pdn_unpin(fd, pin.region));
	charged(8);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	works(close(buffer[0]));
	comes_back();

	/* The same when the memory is freed. */
	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin));
	buffer[0] = pdn_export(fd, pin.region);
	works(buffer[0]);
	works(peer_import(peer, buffer[0], 0, &import));
	gpu_free(&memory);
	charged(8);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	works(close(buffer[0]));
	comes_back();
	works(close(fd));
	works(close(peer));
}

TEST(an_export_before_580)
{
	defaults();
	an_export_of_a_region_with_callback(1);
}

TEST(an_export_since_580)
{
	defaults();
	an_export_of_a_region_with_callback(2);
}

/* The charge that its dma-buf would share has ended with the region. */
TEST(an_export_of_a_revoked_region)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	defaults();
	gpu_set(SIM_GPU_TABLE_MAJOR, 2);
	works(pdn_pin(fd, memory.va, 8 * PAGE, 0, &pin));
	gpu_free(&memory);
	fails_with(pdn_export(fd, pin.region), ESTALE);
	charged(0);
}

static void *frees(void *memory)
{
	gpu_free(memory);
	return NULL;
}

static void *pins_it(void *memory)
{
	const struct memory *what = memory;
	struct pindown_pin pin;

	return (void *)(intptr_t)(pdn_pin(pdn_open(), what->va, what->size, 0, &pin) ? errno : 0);
}

/* The callback runs before the charge is made: nothing stays charged. */
TEST(a_pin_that_is_revoked_before_it_is_charged)
{
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	pthread_t pinning, freeing;

	defaults();
	gate_arm(SIM_GPU_GATE_REGISTERED);
	pinning = in_thread(pins_it, &memory);
	gate_await(SIM_GPU_GATE_REGISTERED);
	freeing = in_thread(frees, &memory);
	thread_ends(freeing);
	gate_open(SIM_GPU_GATE_REGISTERED);
	thread_ends(pinning);
	charged(0);
}

/* Each pin alone would fit. */
TEST(two_pins_under_way_and_room_for_one)
{
	struct memory one = gpu_alloc(MIB, 0), two = gpu_alloc(MIB, 0);
	pthread_t first, second;
	void *errors[2];

	defaults();
	module_parameter("max_pinned_mb", "1");
	gate_arm(SIM_GPU_GATE_PINNED);
	first = in_thread(pins_it, &one);
	gate_await(SIM_GPU_GATE_PINNED);
	second = in_thread(pins_it, &two);
	newest_thread_waits();
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 16);
	gate_open(SIM_GPU_GATE_PINNED);
	check_equal(pthread_join(first, &errors[0]), 0);
	check_equal(pthread_join(second, &errors[1]), 0);
	check_equal((intptr_t)errors[0], 0);
	check_equal((intptr_t)errors[1], ENOSPC);
	charged(16);
	defaults();
}

TEST(an_export_beyond_the_limit)
{
	struct memory memory = gpu_alloc(MIB, 0);
	int fd = pdn_open(), buffer;
	struct pindown_pin pin;

	defaults();
	module_parameter("max_process_mb", "1");
	gpu_set(SIM_GPU_TABLE_MAJOR, 1);
	works(pdn_pin(fd, memory.va, MIB, 0, &pin));
	fails_with(pdn_export(fd, pin.region), EDQUOT);
	works(pdn_unpin(fd, pin.region));
	works(pdn_pin(fd, memory.va, MIB, PINDOWN_PIN_PERSISTENT, &pin));
	buffer = pdn_export(fd, pin.region); /* made from the same pin */
	works(buffer);
	charged(16);
	works(pdn_unpin(fd, pin.region));
	gpu_set(SIM_GPU_TABLE_MAJOR, 2);
	works(pdn_pin(fd, memory.va, MIB, 0, &pin));
	works(pdn_export(fd, pin.region));
	charged(16);
	defaults();
}

/* A region that has ended counts as long as a device still reaches its memory. */
static void regions_that_end_while_importers_hold_them(unsigned flags, unsigned major)
{
	struct memory memory = gpu_alloc(8 * MIB, 0);
	int fd = pdn_open(), peer = peer_open(), buffer;
	struct edu_import import;
	struct pindown_pin pin;
	unsigned i;

	module_parameter("max_process_mb", "2");
	gpu_set(SIM_GPU_TABLE_MAJOR, major);
	for (i = 0; i < 8; i++) {
		if (pdn_pin(fd, memory.va + i * MIB, MIB, flags, &pin)) {
			check_equal(errno, EDQUOT);
			break;
		}
		buffer = pdn_export(fd, pin.region);
		if (buffer < 0) {
			check_equal(errno, EDQUOT);
			break;
		}
		works(peer_import(peer, buffer, 0, &import));
		works(pdn_unpin(fd, pin.region));
		works(close(buffer));
		charged((i + 1) * 16);
	}
	check(i > 0 && i <= 2);
	check(gpu_count(SIM_GPU_BAR_PAGES) <= 32);
	works(close(peer)); /* the last reference */
	works(close(fd));
	fd = pdn_open();
	comes_back();
	gpu_free(&memory);
}

TEST(importers_hold_what_was_unpinned)
{
	defaults();
	regions_that_end_while_importers_hold_them(PINDOWN_PIN_PERSISTENT, 1);
	regions_that_end_while_importers_hold_them(PINDOWN_PIN_PERSISTENT, 2);
	regions_that_end_while_importers_hold_them(0, 1);
	regions_that_end_while_importers_hold_them(0, 2);
	defaults();
}

static void exports_and_dies(void *arg)
{
	int socket = *(int *)arg, fd = pdn_open(), buffer;
	struct memory memory = gpu_alloc(MIB, 0);
	struct pindown_pin pin;

	works(pdn_pin(fd, memory.va, MIB, PINDOWN_PIN_PERSISTENT, &pin));
	buffer = pdn_export(fd, pin.region);
	works(buffer);
	send_fd(socket, buffer);
	receive_fd(socket);
}

/* The process is dead, and a device of another one still reaches its memory: no space for more. */
TEST(an_importer_outlives_the_process)
{
	int sockets[2], fd = pdn_open(), peer = peer_open(), buffer;
	struct memory memory;
	struct edu_import import;
	struct pindown_pin pin;
	pid_t child;

	defaults();
	module_parameter("max_pinned_mb", "1");
	works(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	child = in_child(exports_and_dies, &sockets[1]);
	buffer = receive_fd(sockets[0]);
	works(peer_import(peer, buffer, 0, &import));
	send_fd(sockets[0], 0);
	child_ends(child);
	check_equal(pdn_counter("charged_bytes"), MIB);
	memory = gpu_alloc(PAGE, 0);
	fails_with(pdn_pin(fd, memory.va, PAGE, 0, &pin), ENOSPC);
	works(ioctl(peer, EDU_RELEASE, &import.id));
	works(close(buffer));
	comes_back();
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	defaults();
}

TEST(limit_of_regions)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_version version = {.size = sizeof(version)};
	int one = pdn_open(), two = pdn_open();
	struct pindown_pin pin[21];
	unsigned i;

	defaults();
	module_parameter("max_regions", "20");
	works(ioctl(one, PINDOWN_IOC_VERSION, &version));
	check_equal(version.max_regions, 20);
	for (i = 0; i < 20; i++)
		works(pdn_pin(one, memory.va, PAGE, i & 1 ? PINDOWN_PIN_PERSISTENT : 0, &pin[i]));
	fails_with(pdn_pin(one, memory.va, PAGE, 0, &pin[20]), EMFILE);
	fails_with(pdn_pin(one, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin[20]), EMFILE);
	check_equal(gpu_count(SIM_GPU_PINS), 20);
	/* Each descriptor has a limit of its own; */
	works(pdn_pin(two, memory.va, PAGE, 0, &pin[20]));
	/* and the freed number is used next. */
	works(pdn_unpin(one, pin[7].region));
	works(pdn_pin(one, memory.va, PAGE, 0, &pin[20]));
	check_equal(pin[20].region, pin[7].region);
	fails_with(pdn_pin(one, memory.va, PAGE, 0, &pin[20]), EMFILE);
	defaults();
	works(pdn_pin(one, memory.va, PAGE, 0, &pin[20]));
}
