// SPDX-License-Identifier: MIT
/*
 * BAR space is the machine's, and scarce: limits, and processes that give back what lies idle when
 * another one needs it.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

#include "guest.h"

/* Whatever an earlier test has left. */
static void defaults(void)
{
	module_parameter("max_process_mb", "0");
	module_parameter("max_regions", "1048575");
	module_parameter("max_pinned_mb", "0");
	module_parameter("reclaim_wait_ms", "1000");
}

/* A process with idle regions, which gives them back when it is asked. */
struct keeper {
	int ready[2], asked[2];
	unsigned regions;
	bool gives;
};

static void keeps(void *arg)
{
	struct keeper *keeper = arg;
	struct memory memory = gpu_alloc(keeper->regions * PAGE, 0);
	int fd = pd_open();
	const struct pindown_state *state = (const void *)pd_state(fd);
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	struct pindown_answer answer = {.size = sizeof(answer)};
	struct pindown_pin *pin = calloc(keeper->regions, sizeof(*pin));
	uint64_t given = 0, wanted;
	unsigned i = 0;

	for (i = 0; i < keeper->regions; i++)
		works(pd_pin(fd, memory.va + i * PAGE, PAGE, 0, &pin[i]));
	check_equal(poll(&poller, 1, 0), 0);
	check_equal(write(keeper->ready[1], "", 1), 1);
	for (i = 0;;) {
		check_equal(poll(&poller, 1, -1), 1);
		check(poller.revents & POLLIN);
		answer.wanted = __atomic_load_n(&state->wanted, __ATOMIC_ACQUIRE);
		wanted = state->wanted_bytes;
		check(wanted >= PAGE);
		for (given = 0; keeper->gives && given < wanted && i < keeper->regions; i++) {
			works(pd_unpin(fd, pin[i].region));
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
	struct pindown_stats_all before, after;
	struct pindown_pin pin;
	pid_t child;
	int fd;

	defaults();
	gpu_set(SIM_GPU_BAR_LIMIT, 10);
	child = keeper_start(&keeper);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 8);
	memory = gpu_alloc(6 * PAGE, 0);
	fd = pd_open();
	pd_stats(fd, &before);
	/* Not without asking; */
	fails_with(pd_pin(fd, memory.va, 6 * PAGE, PINDOWN_PIN_NO_RECLAIM, &pin), ENOSPC);
	/* and not more than is wanted is given. */
	works(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin));
	pd_stats(fd, &after);
	check(after.reclaims > before.reclaims);
	check_equal(after.reclaim_saves - before.reclaim_saves, 1);
	check(gpu_count(SIM_GPU_BAR_PAGES) <= 10);
	check(gpu_count(SIM_GPU_BAR_PAGES) >= 6);
	keeper_stop(child);
}

/* Who has nothing idle says so, and who waits is let go before its time. */
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
	fd = pd_open();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	fails_with(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	clock_gettime(CLOCK_MONOTONIC, &end);
	check(end.tv_sec - begin.tv_sec < 15);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 8);
	keeper_stop(child);
}

TEST(nobody_else_to_ask)
{
	struct memory memory = gpu_alloc(6 * PAGE, 0);
	int fd = pd_open();
	struct pindown_pin pin;

	defaults();
	gpu_set(SIM_GPU_BAR_LIMIT, 4);
	fails_with(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	works(pd_pin(fd, memory.va, 4 * PAGE, 0, &pin));
}

static void frozen(void *arg)
{
	struct keeper *keeper = arg;
	struct memory memory = gpu_alloc(8 * PAGE, 0);
	int fd = pd_open();
	struct pindown_pin pin;

	works(pd_pin(fd, memory.va, 8 * PAGE, 0, &pin));
	check_equal(write(keeper->ready[1], "", 1), 1);
	for (;;)
		pause();
}

/* Who does not answer is not waited for for ever. */
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
	fd = pd_open();
	fails_with(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin), ENOSPC);
	keeper_stop(child);
	works(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin));
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
	fd = pd_open();
	sigaction(SIGALRM, &act, NULL);
	ualarm(300000, 0);
	fails_with(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin), EINTR);
	keeper_stop(child);
}

TEST(limit_of_a_process)
{
	struct memory memory = gpu_alloc(32 * PAGE, 0);
	struct pindown_stats_all stats;
	struct pindown_pin pin, more;
	int one = pd_open(), two = pd_open();

	defaults();
	module_parameter("max_process_mb", "1");
	works(pd_pin(one, memory.va, 10 * PAGE, 0, &pin));
	/* All descriptors of the process count. */
	fails_with(pd_pin(two, memory.va, 7 * PAGE, 0, &pin), EDQUOT);
	works(pd_pin(two, memory.va, 6 * PAGE, 0, &pin));
	fails_with(pd_pin(one, memory.va, PAGE, 0, &more), EDQUOT);
	pd_stats(one, &stats);
	check_equal(stats.process_limit, MIB);
	works(pd_unpin(two, pin.region));
	works(pd_pin(one, memory.va, 6 * PAGE, 0, &pin));
}

TEST(limit_of_all)
{
	struct keeper keeper = {.regions = 12, .gives = true};
	struct memory memory;
	struct pindown_pin pin;
	pid_t child;
	int fd;

	defaults();
	module_parameter("max_pinned_mb", "1");
	child = keeper_start(&keeper);
	memory = gpu_alloc(32 * PAGE, 0);
	fd = pd_open();
	fails_with(pd_pin(fd, memory.va, 6 * PAGE, PINDOWN_PIN_NO_RECLAIM, &pin), ENOSPC);
	works(pd_pin(fd, memory.va, 6 * PAGE, 0, &pin));
	check(gpu_count(SIM_GPU_BAR_PAGES) <= 16);
	fails_with(pd_pin(fd, memory.va, 17 * PAGE, 0, &pin), ENOSPC);
	keeper_stop(child);
}

TEST(limit_of_regions)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_version version = {.size = sizeof(version)};
	int one = pd_open(), two = pd_open();
	struct pindown_pin pin[21];
	unsigned i;

	defaults();
	module_parameter("max_regions", "20");
	works(ioctl(one, PINDOWN_IOC_VERSION, &version));
	check_equal(version.max_regions, 20);
	for (i = 0; i < 20; i++)
		works(pd_pin(one, memory.va, PAGE, i & 1 ? PINDOWN_PIN_PERSISTENT : 0, &pin[i]));
	fails_with(pd_pin(one, memory.va, PAGE, 0, &pin[20]), EMFILE);
	fails_with(pd_pin(one, memory.va, PAGE, PINDOWN_PIN_PERSISTENT, &pin[20]), EMFILE);
	check_equal(gpu_count(SIM_GPU_PINS), 20);
	/* Each descriptor has its own; */
	works(pd_pin(two, memory.va, PAGE, 0, &pin[20]));
	/* and the number that was given back is the one that is free. */
	works(pd_unpin(one, pin[7].region));
	works(pd_pin(one, memory.va, PAGE, 0, &pin[20]));
	check_equal(pin[20].region, pin[7].region);
	fails_with(pd_pin(one, memory.va, PAGE, 0, &pin[20]), EMFILE);
	defaults();
	works(pd_pin(one, memory.va, PAGE, 0, &pin[20]));
}
