// SPDX-License-Identifier: MIT
/*
 * Processes: fork, exec, descriptors that are passed on, threads, and death at any moment. Pins
 * belong to the process that made them.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "guest.h"

struct pinned {
	struct memory memory;
	struct pindown_pin pin;
	int fd;
};

static struct pinned pin_new(unsigned flags)
{
	struct pinned pinned = {.memory = gpu_alloc(PAGE, 0), .fd = pdn_open()};

	works(pdn_pin(pinned.fd, pinned.memory.va, PAGE, flags, &pinned.pin));
	return pinned;
}

static bool stands(const struct pinned *pinned)
{
	return pdn_stands(pinned->fd, &pinned->pin);
}

/* A process that is not the owner: every call but one is refused, and nothing changes. */
static void is_refused(void *arg)
{
	const struct pinned *pinned = arg;
	struct pindown_version version = {.size = sizeof(version)};
	struct pindown_answer answer = {.size = sizeof(answer)};
	struct pollfd poller = {.fd = pinned->fd, .events = POLLIN};
	struct pindown_pin pin;

	works(ioctl(pinned->fd, PINDOWN_IOC_VERSION, &version));
	fails_with(pdn_pin(pinned->fd, pinned->memory.va, PAGE, 0, &pin), EPERM);
	fails_with(pdn_unpin(pinned->fd, pinned->pin.region), EPERM);
	fails_with(pdn_export(pinned->fd, pinned->pin.region), EPERM);
	fails_with(ioctl(pinned->fd, PINDOWN_IOC_ANSWER, &answer), EPERM);
	check(mmap(NULL, CPU_PAGE, PROT_READ, MAP_SHARED, pinned->fd, PINDOWN_MAP_STATE) ==
		      MAP_FAILED &&
	      errno == EPERM);
	check_equal(poll(&poller, 1, 0), 1);
	check_equal(poller.revents, POLLERR);
}

TEST(fork_a_child_is_refused)
{
	struct pinned pinned = pin_new(0);

	child_ends(in_child(is_refused, &pinned));
	check(stands(&pinned));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
}

/* The child inherits the descriptors; the parent's pipe tells it when to try. */
struct family {
	struct pinned pinned;
	int go[2], done[2];
};

static void tries_when_told(void *arg)
{
	struct family *family = arg;
	char byte;

	check_equal(read(family->go[0], &byte, 1), 1);
	is_refused(&family->pinned);
	check_equal(write(family->done[1], "", 1), 1);
}

TEST(fork_a_child_calls_while_the_parent_frees)
{
	struct family family = {.pinned = pin_new(0)};
	pid_t child;
	char byte;

	works(pipe(family.go));
	works(pipe(family.done));
	child = in_child(tries_when_told, &family);
	check_equal(write(family.go[1], "", 1), 1);
	gpu_free(&family.pinned.memory);
	check_equal(read(family.done[0], &byte, 1), 1);
	check(!stands(&family.pinned));
	child_ends(child);
}

static void waits(void *arg)
{
	struct family *family = arg;
	char byte;

	check_equal(read(family->go[0], &byte, 1), 1);
}

/* The child holds the file open: that must neither keep the pin nor block the parent. */
TEST(fork_a_child_keeps_no_pin)
{
	struct family family = {.pinned = pin_new(0)};
	pid_t child;

	works(pipe(family.go));
	child = in_child(waits, &family);
	works(pdn_unpin(family.pinned.fd, family.pinned.pin.region));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	gpu_free(&family.pinned.memory);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
	check_equal(write(family.go[1], "", 1), 1);
	child_ends(child);
}

static void pins_for_itself(void *unused)
{
	struct pinned pinned = pin_new(0);

	check(stands(&pinned));
	(void)unused;
}

TEST(fork_a_child_pins_for_itself)
{
	struct pinned pinned = pin_new(0);

	child_ends(in_child(pins_for_itself, NULL));
	check(stands(&pinned));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
}

TEST(fork_the_parent_maps_its_state_area_after_fork)
{
	struct family family = {.pinned = pin_new(0)};
	pid_t child;
	const volatile char *state;

	works(pipe(family.go));
	child = in_child(waits, &family);
	state = pdn_state(family.pinned.fd);
	check(pdn_valid(state, &family.pinned.pin));
	gpu_free(&family.pinned.memory);
	check(!pdn_valid(state, &family.pinned.pin));
	check_equal(write(family.go[1], "", 1), 1);
	child_ends(child);
}

static int rounds(void)
{
	const char *text = getenv("GUEST_ROUNDS");
	int most = slowness() > 1 ? 3000 : 10000, given = text ? atoi(text) : most;

	return given < most ? given : most;
}

/*
 * Every round has a child, which inherits the descriptor and closes it at its end. Most of them
 * don't copy the parent's mappings: a fork that does takes five times as long.
 */
TEST(many_rounds_of_pin_and_fork, .seconds = 200)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	uint64_t foreign = gpu_count(SIM_GPU_PUTS_FOREIGN);
	int fd = pdn_open(), i, all = rounds();
	struct pindown_pin pin;
	pid_t child;

	check(all > 0);
	for (i = 0; i < all; i++) {
		works(pdn_pin(fd, memory.va, PAGE, i & 1 ? PINDOWN_PIN_PERSISTENT : 0, &pin));
		child = i % 10 ? vfork() : fork();
		if (child == 0)
			_exit(0);
		works(child);
		child_ends(child);
		works(pdn_unpin(fd, pin.region));
	}
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_PUTS_FOREIGN), foreign);
}

/* Passed over a unix socket to a process that existed before. */
struct passing {
	int socket[2], go[2];
	struct pindown_pin pin;
	struct memory memory;
};

static void receives(void *arg)
{
	struct passing *passing = arg;
	struct pinned pinned = {.memory = passing->memory};
	char byte;

	pinned.fd = receive_fd(passing->socket[1]);
	check_equal(read(passing->socket[1], &pinned.pin, sizeof(pinned.pin)), sizeof(pinned.pin));
	check_equal(read(passing->socket[1], &pinned.memory, sizeof(pinned.memory)),
		    sizeof(pinned.memory));
	is_refused(&pinned);
	/* Keeps it until notified, and is then the last one to close it. */
	check_equal(read(passing->go[0], &byte, 1), 1);
	works(close(pinned.fd));
}

TEST(passed_over_a_socket)
{
	uint64_t foreign = gpu_count(SIM_GPU_PUTS_FOREIGN);
	struct passing passing;
	struct pinned pinned;
	pid_t child;

	works(socketpair(AF_UNIX, SOCK_STREAM, 0, passing.socket));
	works(pipe(passing.go));
	child = in_child(receives, &passing);
	pinned = pin_new(0);
	send_fd(passing.socket[0], pinned.fd);
	check_equal(write(passing.socket[0], &pinned.pin, sizeof(pinned.pin)), sizeof(pinned.pin));
	check_equal(write(passing.socket[0], &pinned.memory, sizeof(pinned.memory)),
		    sizeof(pinned.memory));
	works(close(pinned.fd)); /* not the last one */
	check_equal(write(passing.go[1], "", 1), 1);
	child_ends(child);
	/*
	 * Another process made the last close, and the driver would ignore its unpin. The free of
	 * the memory ends the pin, and no callback comes for a region that is gone.
	 */
	gpu_free(&pinned.memory);
	check_equal(gpu_count(SIM_GPU_PUTS_FOREIGN), foreign);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_BAR_PAGES), 0);
}

/* ---- two processes that hold each other's descriptor ---- */

static void send_pinned(int socket, const struct pinned *pinned)
{
	send_fd(socket, pinned->fd);
	check_equal(write(socket, pinned, sizeof(*pinned)), sizeof(*pinned));
}

static struct pinned receive_pinned(int socket)
{
	int fd = receive_fd(socket);
	struct pinned pinned;

	check_equal(read(socket, &pinned, sizeof(pinned)), sizeof(pinned));
	pinned.fd = fd;
	return pinned;
}

static void swaps(void *arg)
{
	struct pinned own = pin_new(0), other;
	int socket = *(int *)arg;
	char byte;

	send_pinned(socket, &own);
	other = receive_pinned(socket);
	is_refused(&other);
	check(stands(&own));
	/* The other process frees; this region is not affected. */
	check_equal(write(socket, "", 1), 1);
	check_equal(read(socket, &byte, 1), 1);
	check(stands(&own));
	works(pdn_unpin(own.fd, own.pin.region));
	check(!stands(&own));
	/* Ends with the other process' descriptor open. */
}

TEST(two_processes_swap_descriptors)
{
	struct pinned own, other;
	int socket[2];
	pid_t child;
	char byte;

	works(socketpair(AF_UNIX, SOCK_STREAM, 0, socket));
	child = in_child(swaps, &socket[1]);
	own = pin_new(0);
	other = receive_pinned(socket[0]);
	is_refused(&other);
	send_pinned(socket[0], &own);
	check_equal(read(socket[0], &byte, 1), 1);
	check_equal(gpu_count(SIM_GPU_PINS), 2);
	gpu_free(&own.memory);
	check(!stands(&own));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	check_equal(write(socket[0], "", 1), 1);
	child_ends(child);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	/* The owner is gone. */
	is_refused(&other);
	own = pin_new(0);
	works(close(other.fd));
	check(stands(&own));
}

struct owner {
	int socket[2];
	bool killed;
};

static void dies_as_owner(void *arg)
{
	struct owner *owner = arg;
	struct pinned pinned = pin_new(0);

	send_fd(owner->socket[1], pinned.fd);
	check_equal(write(owner->socket[1], &pinned.pin, sizeof(pinned.pin)), sizeof(pinned.pin));
	if (owner->killed)
		kill(getpid(), SIGKILL);
}

static void the_owner_dies(bool killed)
{
	struct owner owner = {.killed = killed};
	struct pinned pinned = {};
	int status;
	pid_t child;

	works(socketpair(AF_UNIX, SOCK_STREAM, 0, owner.socket));
	child = in_child(dies_as_owner, &owner);
	pinned.fd = receive_fd(owner.socket[0]);
	check_equal(read(owner.socket[0], &pinned.pin, sizeof(pinned.pin)), sizeof(pinned.pin));
	check(waitpid(child, &status, 0) == child);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	is_refused(&pinned);
	works(close(pinned.fd));
}

TEST(the_owner_dies_and_a_stranger_holds_the_descriptor)
{
	the_owner_dies(false);
}

TEST(the_owner_is_killed_and_a_stranger_holds_the_descriptor)
{
	the_owner_dies(true);
}

static void is_killed_while_pinning(void *flags)
{
	struct memory memory = gpu_alloc(PAGE, 0);
	struct pindown_pin pin;
	int fd = pdn_open();

	pdn_pin(fd, memory.va, PAGE, *(unsigned *)flags, &pin);
	pause();
}

/* Killed in the middle of the driver's call: its effects must be undone. */
TEST(killed_while_pinning)
{
	unsigned flags = 0;
	int gate, status;
	pid_t child;

	for (gate = SIM_GPU_GATE_PINNED; gate <= SIM_GPU_GATE_REGISTERED; gate++) {
		gate_arm(gate);
		child = in_child(is_killed_while_pinning, &flags);
		gate_await(gate);
		works(kill(child, SIGKILL));
		gate_open(gate);
		check(waitpid(child, &status, 0) == child);
		check_equal(gpu_count(SIM_GPU_PINS), 0);
		check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
	}
}

static void execs(void *arg)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", ((struct pinned *)arg)->fd);
	/* Is the descriptor open in the new program? */
	execl("/bin/busybox", "sh", "-c", "! [ -e /proc/self/fd/$1 ]", "sh", number, NULL);
	fail("exec: %s", strerror(errno));
}

TEST(exec_does_not_pass_it_on)
{
	struct pinned pinned = pin_new(0);

	child_ends(in_child(execs, &pinned));
}

static void execs_with_pins(void *unused)
{
	pin_new(0);
	pin_new(PINDOWN_PIN_PERSISTENT);
	execl("/bin/busybox", "true", NULL);
	(void)unused;
}

TEST(exec_unpins)
{
	child_ends(in_child(execs_with_pins, NULL));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

static void *unpins(void *arg)
{
	struct pinned *pinned = arg;

	works(pdn_unpin(pinned->fd, pinned->pin.region));
	return NULL;
}

TEST(a_thread_unpins_what_another_pinned)
{
	struct pinned pinned = pin_new(0);

	thread_ends(in_thread(unpins, &pinned));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check(!stands(&pinned));
}

static void *pins(void *arg)
{
	struct pinned *pinned = arg;

	*pinned = pin_new(0);
	return NULL;
}

TEST(a_thread_pins_for_another)
{
	struct pinned pinned;

	thread_ends(in_thread(pins, &pinned));
	check(stands(&pinned));
	gpu_free(&pinned.memory);
	check(!stands(&pinned));
}

/* Any process may close the last descriptor of a dma-buf. */
static void closes_it(void *arg)
{
	works(close(*(int *)arg));
}

TEST(a_stranger_closes_the_dmabuf_last)
{
	uint64_t foreign = gpu_count(SIM_GPU_PUTS_FOREIGN);
	struct pinned pinned = pin_new(0);
	int buffer = pdn_export(pinned.fd, pinned.pin.region), go[2];
	struct family family = {};
	pid_t child;

	works(buffer);
	works(pipe(go));
	family.go[0] = go[0];
	child = in_child(waits, &family);
	works(close(buffer));
	works(pdn_unpin(pinned.fd, pinned.pin.region));
	check_equal(write(go[1], "", 1), 1);
	child_ends(child);
	child_ends(in_child(closes_it, &pinned.fd));
	check_equal(gpu_count(SIM_GPU_PUTS_FOREIGN), foreign);
}

TEST(rmmod_with_pins_is_refused)
{
	struct pinned pinned = pin_new(0);
	int status = system("rmmod pindown 2>/dev/null");

	check(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	check(stands(&pinned));
	works(pdn_unpin(pinned.fd, pinned.pin.region));
}
