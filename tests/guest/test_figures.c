// SPDX-License-Identifier: MIT
/*
 * The cost of calls, on a machine that counts instructions: in the boot "figures" each instruction
 * takes one nanosecond of the guest's clock, whatever the host does. In any other boot the clock is
 * no measure, and these tests are skipped.
 */
#include "figures.h"

struct cost {
	uint64_t pin, unpin, export, close;
};

static void lowest(uint64_t *min, uint64_t took)
{
	if (!*min || took < *min)
		*min = took;
}

static struct cost cost_of(int fd, const struct memory *memory, unsigned flags)
{
	struct cost cost = {};
	struct pindown_pin pin;
	uint64_t begin;
	int turn, buffer;

	for (turn = 0; turn < TURNS; turn++) {
		begin = now();
		works(pdn_pin(fd, memory->va, memory->size, flags, &pin));
		lowest(&cost.pin, now() - begin);
		begin = now();
		buffer = pdn_export(fd, pin.region);
		lowest(&cost.export, now() - begin);
		works(buffer);
		begin = now();
		works(close(buffer));
		lowest(&cost.close, now() - begin);
		begin = now();
		works(pdn_unpin(fd, pin.region));
		lowest(&cost.unpin, now() - begin);
	}
	return cost;
}

TEST(per_region, .seconds = 200)
{
	static const struct {
		const char *name;
		uint64_t size;
	} sizes[] = {{"64 KiB", 64 * KIB}, {"1 MiB", MIB}, {"64 MiB", 64 * MIB}};
	int fd = pdn_open();
	struct memory memory;
	struct cost cost;
	unsigned i, flags;
	uint64_t empty;

	clock_must_count();
	empty = min_time((void)ioctl(fd, _IO(PINDOWN_IOC_TYPE, 99)));
	printf("instructions; an empty ioctl: %lu. One system call each\n", empty);
	printf("%-22s %8s %8s %8s %8s\n", "region", "pin", "unpin", "export", "close");
	for (flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++) {
		for (i = 0; i < 3; i++) {
			memory = gpu_alloc(sizes[i].size, 0);
			cost = cost_of(fd, &memory, flags);
			printf("%-8s %-13s %8lu %8lu %8lu %8lu\n", sizes[i].name,
			       flags ? "persistent" : "with callback", cost.pin, cost.unpin,
			       cost.export, cost.close);
			gpu_free(&memory);
		}
	}
	fflush(stdout);
}

TEST(validity)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	int fd = pdn_open(), i;
	const volatile char *state = pdn_state(fd);
	struct pindown_version version = {.size = sizeof(version)};
	struct pindown_pin pin;
	uint64_t word, call, valid = 0;

	clock_must_count();
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	word = min_time(for (i = 0; i < 1000; i++) valid += pdn_valid(state, &pin)) / 1000;
	call = min_time(for (i = 0; i < 100; i++) works(ioctl(fd, PINDOWN_IOC_VERSION, &version))) /
	       100;
	check_equal(valid, 1000 * TURNS);
	printf("instructions: validity by the state word %lu; a system call %lu\n", word, call);
	fflush(stdout);
	check(word * 20 < call);
}

/* With many live regions, another one costs as much as the first one. */
TEST(constant_time, .seconds = 200)
{
	static const unsigned counts[] = {0, 1000, 10000, 100000};
	struct memory memory = gpu_alloc(PAGE, 0);
	uint64_t pin_cost, unpin_cost, first_pin = 0, first_unpin = 0, begin;
	int fd = pdn_open(), turn;
	struct pindown_pin pin;
	unsigned i, live = 0;

	clock_must_count();
	module_parameter("max_process_mb", "0");
	module_parameter("max_pinned_mb", "0");
	for (i = 0; i < 4; i++) {
		for (; live < counts[i]; live++)
			works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
		pin_cost = unpin_cost = 0;
		for (turn = 0; turn < 101; turn++) {
			begin = now();
			works(pdn_pin(fd, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin));
			lowest(&pin_cost, now() - begin);
			begin = now();
			works(pdn_unpin(fd, pin.region));
			lowest(&unpin_cost, now() - begin);
		}
		printf("instructions with %6u live regions: pin %lu, unpin %lu\n", live, pin_cost,
		       unpin_cost);
		fflush(stdout);
		if (!i) {
			first_pin = pin_cost;
			first_unpin = unpin_cost;
		}
		/* Deeper trees cost a few steps more, not a multiple. */
		check(pin_cost < 2 * first_pin);
		check(unpin_cost < 2 * first_unpin);
	}
}
