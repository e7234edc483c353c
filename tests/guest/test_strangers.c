// SPDX-License-Identifier: MIT
/*
 * Every process may open /dev/pindown. A process that knows another one's addresses and tokens, or
 * invents addresses, gets no memory of others, and can use up neither the host's memory, nor the
 * budget, nor the caches of others.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/sysinfo.h>

#include "guest.h"
#include "tests/unit/support/asleep.h"

#define NOWHERE 0x123400000000ull /* no process has GPU memory there */

static void defaults(void)
{
	module_parameter("max_process_mb", "0");
	module_parameter("max_pinned_mb", "0");
	module_parameter("reclaim_wait_ms", "1000");
}

static void become_nobody(void)
{
	check(setgid(12345) == 0 && setuid(12345) == 0);
}

/* ---- the memory of others ---- */

/* A pin as programs made it when the module accepted tokens: they follow the length. */
struct pin_with_tokens {
	uint32_t size, flags;
	uint64_t address, length;
	uint64_t p2p_token;
	uint32_t va_space_token;
	uint32_t rest[13];
};

static void tries_tokens(void *arg)
{
	struct memory *memory = arg;
	uint64_t gets = gpu_count(SIM_GPU_GETS);
	int fd = pdn_open();
	struct pindown_pin pin;
	unsigned i;

	become_nobody();
	for (i = 0; i < 64; i++) {
		struct pin_with_tokens call = {.size = sizeof(call),
					       .address = memory->va,
					       .length = PAGE,
					       .p2p_token = i,
					       .va_space_token = 0xfe00};

		check(ioctl(fd, PINDOWN_IOC_PIN, &call) < 0);
	}
	check(pdn_pin(fd, memory->va, PAGE, 0, &pin) < 0);
	check(pdn_pin(fd, memory->va, PAGE, PINDOWN_PIN_PERSISTENT, &pin) < 0);
	check_equal(gpu_count(SIM_GPU_GETS), gets);
}

TEST(tokens_of_others_open_nothing)
{
	struct sim_gpu_tokens mine, next;
	struct memory memory = gpu_alloc(PAGE, 0);
	int other;

	/*
	 * No guess is needed: one token is the next number, and the other is the same for every
	 * process.
	 */
	works(ioctl(gpu(), SIM_GPU_TOKENS, &mine));
	check(mine.p2p_token > 0);
	check_equal(mine.va_space, 0xfe00);
	other = open(SIM_GPU_DEVICE, O_RDWR | O_CLOEXEC);
	works(other);
	works(ioctl(other, SIM_GPU_TOKENS, &next));
	check_equal(next.p2p_token, mine.p2p_token + 1);
	check_equal(next.va_space, mine.va_space);
	child_ends(in_child(tries_tokens, &memory));
}

/* ---- the host's memory ---- */

static uint64_t bar_size(void)
{
	uint64_t size;

	works(ioctl(gpu(), SIM_GPU_SIZE, &size));
	return size;
}

/* On arm64 the memory of a coherent GPU may be as large as the machine's (kmod/size.c). */
static uint64_t largest_request(void)
{
#ifdef __aarch64__
	struct sysinfo machine;

	works(sysinfo(&machine));
	if (machine.totalram * machine.mem_unit > bar_size())
		return (machine.totalram * machine.mem_unit + PAGE - 1) / PAGE * PAGE;
#endif
	return bar_size();
}

TEST(larger_than_any_bar)
{
	uint64_t gets = gpu_count(SIM_GPU_GETS_FAILED);
	struct pindown_pin pin;
	unsigned flags;
	int fd = pdn_open();

	gpu_count(SIM_GPU_PINS);
	become_nobody();
	for (flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++) {
		fails_with(pdn_pin(fd, NOWHERE, 1ull << 40, flags, &pin), EFBIG);
		fails_with(pdn_pin(fd, NOWHERE, largest_request() + PAGE, flags, &pin), EFBIG);
		/* The driver was not even called. */
		check_equal(gpu_count(SIM_GPU_GETS_FAILED), gets);
		fails_with(pdn_pin(fd, NOWHERE, bar_size(), flags, &pin), EINVAL);
		gets = gpu_count(SIM_GPU_GETS_FAILED);
	}
	check(gpu_count(SIM_GPU_ROOM_MOST) <= bar_size() / PAGE * 16);
}

static void asks_for_much(void *arg)
{
	struct pindown_pin pin;
	int fd = pdn_open();

	(void)arg;
	become_nobody();
	fails_with(pdn_pin(fd, NOWHERE, 256 * MIB, 0, &pin), EINVAL);
}

/*
 * The driver allocates its page table first. However many processes ask, only one allocates at a
 * time.
 */
TEST(large_requests_of_many_at_a_time)
{
	uint64_t max = bar_size() / PAGE * 16;
	pid_t child[8];
	unsigned i;

	gate_arm(SIM_GPU_GATE_ROOM);
	for (i = 0; i < 8; i++) {
		child[i] = in_child(asks_for_much, NULL);
		if (i == 0)
			gate_await(SIM_GPU_GATE_ROOM);
		else
			wait_until_asleep(child[i], "SD");
	}
	check_equal(gpu_count(SIM_GPU_ROOM_BYTES), max);
	gate_open(SIM_GPU_GATE_ROOM);
	for (i = 0; i < 8; i++)
		child_ends(child[i]);
	check_equal(gpu_count(SIM_GPU_ROOM_MOST), max);
}

static void asks_and_is_killed(void *length)
{
	struct pindown_pin pin;

	pdn_pin(pdn_open(), NOWHERE, *(uint64_t *)length, 0, &pin);
}

/* A process that waits for its turn can be killed, and small requests do not wait. */
TEST(waiting_behind_a_large_request)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	uint64_t large = 256 * MIB;
	struct pindown_pin pin;
	pid_t first, second;
	int status, fd = pdn_open();

	gate_arm(SIM_GPU_GATE_ROOM);
	first = in_child(asks_for_much, NULL);
	gate_await(SIM_GPU_GATE_ROOM);
	second = in_child(asks_and_is_killed, &large);
	wait_until_asleep(second, "SD");
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	works(kill(second, SIGKILL));
	check(waitpid(second, &status, 0) == second && WIFSIGNALED(status));
	gate_open(SIM_GPU_GATE_ROOM);
	child_ends(first);
}

/* ---- the budget, and what others have cached ---- */

static void asks_for_a_mib(void *arg)
{
	struct pindown_pin pin;
	int fd = pdn_open();

	(void)arg;
	become_nobody();
	fails_with(pdn_pin(fd, NOWHERE, MIB, 0, &pin), EINVAL);
}

static void *pins_a_mib(void *va)
{
	struct pindown_pin pin;

	return (void *)(intptr_t)(pdn_pin(pdn_open(), *(uint64_t *)va, MIB, 0, &pin) ? errno : 0);
}

/*
 * While the driver checks a stranger's address, and finds nothing, the others can use the budget.
 */
TEST(a_stranger_takes_no_budget)
{
	struct memory memory = gpu_alloc(MIB, 0);
	pthread_t thread;
	pid_t stranger;
	void *error;

	defaults();
	module_parameter("max_pinned_mb", "1");
	gate_arm(SIM_GPU_GATE_ROOM);
	stranger = in_child(asks_for_a_mib, NULL);
	gate_await(SIM_GPU_GATE_ROOM);
	thread = in_thread(pins_a_mib, &memory.va);
	newest_thread_waits();
	gate_open(SIM_GPU_GATE_ROOM);
	child_ends(stranger);
	check_equal(pthread_join(thread, &error), 0);
	check_equal((intptr_t)error, 0);
	defaults();
}

struct stranger {
	uint64_t length;
	int error;
};

static void asks_for_nothing_of_its_own(void *arg)
{
	const struct stranger *stranger = arg;
	int fd = pdn_open();
	struct pindown_pin pin;
	unsigned flags;

	become_nobody();
	for (flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++)
		fails_with(pdn_pin(fd, NOWHERE, stranger->length, flags, &pin), stranger->error);
}

/* This process has regions, and would be asked to unpin them. */
static void nobody_is_asked_by(struct stranger stranger)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	const uint64_t reclaims = pdn_counter("reclaims");
	struct pindown_pin pin;
	int fd = pdn_open();
	struct pollfd poller = {.fd = fd, .events = POLLIN};

	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	child_ends(in_child(asks_for_nothing_of_its_own, &stranger));
	check_equal(pdn_counter("reclaims"), reclaims);
	check_equal(poll(&poller, 1, 0), 0);
	works(pdn_unpin(fd, pin.region));
	gpu_free(&memory);
}

TEST(beyond_the_limit_nobody_is_asked)
{
	defaults();
	module_parameter("max_pinned_mb", "1");
	nobody_is_asked_by((struct stranger){MIB, ENOSPC});
	nobody_is_asked_by((struct stranger){64 * MIB, ENOSPC});
	nobody_is_asked_by((struct stranger){256 * MIB, ENOSPC});
	defaults();
}

/* There is not enough host memory: the driver's error is that of a full BAR. */
TEST(want_of_host_memory_is_no_wish)
{
	defaults();
	gpu_set(SIM_GPU_FAIL_ERROR, ENOMEM);
	gpu_set(SIM_GPU_FAIL_GET, 2); /* the first fault hits this process' own pin */
	nobody_is_asked_by((struct stranger){6 * PAGE, EINVAL});
}

/*
 * A process that is being killed gets no memory from the kernel, and the driver reports the same.
 */
TEST(a_killed_stranger_is_no_wish)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	const uint64_t reclaims = pdn_counter("reclaims");
	uint64_t length = 6 * PAGE;
	struct pindown_pin pin;
	int fd = pdn_open(), status;
	pid_t stranger;

	defaults();
	works(pdn_pin(fd, memory.va, PAGE, 0, &pin));
	gate_arm(SIM_GPU_GATE_ASKED);
	stranger = in_child(asks_and_is_killed, &length);
	gate_await(SIM_GPU_GATE_ASKED);
	works(kill(stranger, SIGKILL));
	gate_open(SIM_GPU_GATE_ASKED);
	check(waitpid(stranger, &status, 0) == stranger && WIFSIGNALED(status));
	check_equal(pdn_counter("reclaims"), reclaims);
}
