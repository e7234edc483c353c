// SPDX-License-Identifier: MIT
/*
 * Each allocation, and each copy from or to user space, that a call makes fails in turn. This needs
 * the debug kernel's fault injection.
 */
#include <fcntl.h>
#include <signal.h>

#include "guest.h"

static void write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 && errno == ENOENT)
		test_skipped("this kernel has no fault injection");
	works(fd);
	works(write(fd, text, strlen(text)));
	close(fd);
}

/* Faults are limited to this thread, and include allocations that may sleep. */
static void prepare(void)
{
	write_to("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	write_to("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	write_to("/sys/kernel/debug/fail_page_alloc/ignore-gfp-highmem", "N");
	write_to("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	write_to("/sys/kernel/debug/failslab/verbose", "0");
	write_to("/sys/kernel/debug/fail_page_alloc/verbose", "0");
	write_to("/sys/kernel/debug/fail_usercopy/verbose", "0");
}

static int nth_file(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	works(fd);
	return fd;
}

/* 0: no fault. A fault left over from before may make this write fail first. */
static void fail_the(unsigned nth)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%u", nth), done;

	do {
		done = pwrite(nth_file(), text, length, 0);
	} while (done < 0 && errno == EFAULT);
	check_equal(done, length);
}

/* Did a fault happen? Then there may be more places. */
static bool failed_something(void)
{
	char text[16] = "";
	ssize_t length = pread(nth_file(), text, sizeof(text) - 1, 0);

	fail_the(0);
	/* The first fault was in this read. */
	if (length < 0 && errno == EFAULT)
		return false;
	works(length);
	return atoi(text) == 0;
}

struct thing {
	struct memory memory;
	struct pindown_pin pin;
	struct edu_import import;
	int fd, peer, buffer;
	unsigned flags;
};

static bool as_before(const struct sim_gpu_counters *before)
{
	return gpu_count(SIM_GPU_PINS) == before->value[SIM_GPU_PINS] &&
	       gpu_count(SIM_GPU_TABLES) == before->value[SIM_GPU_TABLES] &&
	       gpu_count(SIM_GPU_DMA_MAPPINGS) == before->value[SIM_GPU_DMA_MAPPINGS];
}

/*
 * Calls `act` again and again, with a fault in its first, second, ... place, until no place is
 * left. After each try `undo` must restore the state before.
 */
static void each_in_turn(struct thing *thing, const char *name, int (*act)(struct thing *),
			 void (*undo)(struct thing *))
{
	struct sim_gpu_counters before;
	unsigned nth, failures = 0;
	bool again = true;
	int result;

	works(ioctl(gpu(), SIM_GPU_COUNT, &before));
	for (nth = 1; again; nth++) {
		if (nth > 500)
			fail("%s: still failing after %u tries", name, nth);
		fail_the(nth);
		result = act(thing);
		again = failed_something();
		if (result == 0)
			undo(thing);
		else
			failures++;
		if (result && !again)
			fail("%s fails though nothing in it did: %s", name, strerror(errno));
		/* Deferred work gets a minute. */
		if (!becomes_true(PATIENCE_NS, as_before(&before)))
			fail("%s leaves something behind when its failure number %u is met", name,
			     nth);
	}
	if (!failures)
		fail("%s has nothing that can fail: the injection does not work", name);
}

static struct thing *thing_new(void)
{
	static struct thing thing;

	prepare();
	thing.memory = gpu_alloc(4 * PAGE, SIM_GPU_SCATTERED);
	thing.fd = pdn_open();
	return &thing;
}

static int act_open(struct thing *thing)
{
	thing->buffer = open(PINDOWN_DEVICE, O_RDWR | O_CLOEXEC);
	return thing->buffer < 0 ? -1 : 0;
}

static void undo_close(struct thing *thing)
{
	works(close(thing->buffer));
}

TEST(open_the_device)
{
	each_in_turn(thing_new(), "open", act_open, undo_close);
}

static int act_pin(struct thing *thing)
{
	return pdn_pin(thing->fd, thing->memory.va, thing->memory.size, thing->flags, &thing->pin);
}

static void undo_pin(struct thing *thing)
{
	works(pdn_unpin(thing->fd, thing->pin.region));
}

TEST(pin)
{
	each_in_turn(thing_new(), "pin", act_pin, undo_pin);
}

TEST(pin_persistent)
{
	struct thing *thing = thing_new();

	thing->flags = PINDOWN_PIN_PERSISTENT;
	each_in_turn(thing, "persistent pin", act_pin, undo_pin);
}

static int act_export(struct thing *thing)
{
	thing->buffer = pdn_export(thing->fd, thing->pin.region);
	return thing->buffer < 0 ? -1 : 0;
}

TEST(export_a_region)
{
	struct thing *thing = thing_new();

	works(act_pin(thing));
	each_in_turn(thing, "export", act_export, undo_close);
}

static int act_import(struct thing *thing)
{
	return peer_import(thing->peer, thing->buffer, thing->flags, &thing->import);
}

static void undo_import(struct thing *thing)
{
	works(ioctl(thing->peer, EDU_RELEASE, &thing->import.id));
}

TEST(import_static)
{
	struct thing *thing = thing_new();

	works(act_pin(thing));
	works(act_export(thing));
	thing->peer = peer_open();
	each_in_turn(thing, "import", act_import, undo_import);
}

TEST(import_dynamic)
{
	struct thing *thing = thing_new();

	works(act_pin(thing));
	works(act_export(thing));
	thing->peer = peer_open();
	thing->flags = EDU_DYNAMIC;
	each_in_turn(thing, "dynamic import", act_import, undo_import);
}

/* Releasing must not need memory: no place in it may fail, except the copy of its argument. */
TEST(unpin_always_works)
{
	struct thing *thing = thing_new();
	struct shown shown;
	unsigned nth;
	int answer, error;

	for (nth = 1; nth <= 30; nth++) {
		works(act_pin(thing));
		works(act_export(thing));
		fail_the(nth);
		answer = pdn_unpin(thing->fd, thing->pin.region);
		error = errno;
		failed_something();
		if (answer < 0) {
			check_equal(error, EFAULT);
			/* Either not done, or done and not reported. */
			if (pdn_shown(thing->pin.region, &shown))
				works(pdn_unpin(thing->fd, thing->pin.region));
		}
		works(close(thing->buffer));
		check_equal(gpu_count(SIM_GPU_PINS), 0);
	}
}

/* The same for the callback, which could not report an error. */
TEST(a_free_always_revokes)
{
	struct thing *thing = thing_new();
	const volatile char *state = pdn_state(thing->fd);
	struct memory memory;
	struct pindown_pin pin;
	unsigned nth;
	int answer;

	for (nth = 1; nth <= 30; nth++) {
		memory = gpu_alloc(PAGE, 0);
		works(pdn_pin(thing->fd, memory.va, PAGE, 0, &pin));
		fail_the(nth);
		answer = ioctl(gpu(), SIM_GPU_FREE, &memory.handle);
		failed_something();
		if (answer < 0)
			works(ioctl(gpu(), SIM_GPU_FREE, &memory.handle));
		check(!pdn_valid(state, &pin));
		works(pdn_unpin(thing->fd, pin.region));
	}
}
