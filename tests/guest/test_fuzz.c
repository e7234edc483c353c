// SPDX-License-Identifier: MIT
/*
 * A fuzzer of the module's calls. In each round two processes of three threads play calls by chance
 * on the same descriptors, regions, mappings and dma-bufs: right ones, and ones with a wrong size,
 * number, flag, address or structure, which another thread may be changing; they close, map, fork
 * and free memory meanwhile, and may be killed. What a thread does follows from the seed alone.
 *
 * After each round nothing may be pinned or counted any more. tests/guest/run looks for the
 * kernel's reports.
 *
 * GUEST_FUZZ="SECONDS,SEED" (default "6,1"): make fuzz T=ioctl SECONDS=600 SEED=3.
 */
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sched.h>
#include <sys/poll.h>
#include <sys/syscall.h>
#include <time.h>

#include "guest.h"
#include "tests/fuzz/dice.h"

enum { PROCESSES = 2, THREADS = 3, FILES = 8, BUFFERS = 8, MAPS = 12, MEMORIES = 6, STEPS = 400 };

/* ---- what the threads of a process share ---- */

/*
 * Slots are emptied by an exchange, so that nothing is closed or unmapped twice. A mapping is its
 * address, and in the low bits the logarithm of its pages.
 */
struct world {
	int file[FILES], buffer[BUFFERS]; /* -1: none */
	uint64_t map[MAPS];		  /* 0: none */
	uint64_t memory[MEMORIES];	  /* handles; the addresses are memory_at() */
	int peer;			  /* -1: there is none */
	char *edge;			  /* the last bytes before a page that is not there */
	char *read_only;
	char shared[1024]; /* a call's structure, which other threads write to */
};

/* Totals over all processes. */
struct figures {
	uint64_t calls, succeeded;
	int wrong_call, wrong_error;
};

static struct world world;
static struct figures *figures;

static uint64_t memory_at(unsigned number)
{
	return 0x600000000000ull + number * 64 * PAGE;
}

static int some_file(uint64_t *seed)
{
	return __atomic_load_n(&world.file[below(seed, FILES)], __ATOMIC_RELAXED);
}

static void put_file(uint64_t *seed, int *slots, unsigned count, int fd)
{
	int old = __atomic_exchange_n(&slots[below(seed, count)], fd, __ATOMIC_RELAXED);

	if (old >= 0)
		close(old);
}

/* ---- a call ---- */

static const struct call {
	unsigned long number;
	unsigned size;
} calls[] = {
	{PINDOWN_IOC_VERSION, sizeof(struct pindown_version)},
	{PINDOWN_IOC_PIN, sizeof(struct pindown_pin)},
	{PINDOWN_IOC_UNPIN, sizeof(struct pindown_unpin)},
	{PINDOWN_IOC_EXPORT, sizeof(struct pindown_export)},
	{PINDOWN_IOC_ANSWER, sizeof(struct pindown_answer)},
	{PINDOWN_IOC_PIN, sizeof(struct pindown_pin)}, /* twice as often */
};

static uint64_t some_number(uint64_t *seed)
{
	uint64_t n = next(seed);

	switch (below(seed, 8)) {
	case 0:
		return 0;
	case 1:
		return n % 40;
	case 2:
		return memory_at(n % MEMORIES) + n / 8 % 70 * PAGE;
	case 3:
		return n % 70 * PAGE;
	case 4:
		return -(n % 3) * PAGE;
	case 5:
		return 1ull << n % 64;
	case 6:
		return (1ull << n % 64) - 1;
	}
	return n;
}

/* A call as a program makes it. */
static void right_call(uint64_t *seed, const struct call *call, char *buffer)
{
	struct pindown_pin *pin = (void *)buffer;

	memset(buffer, 0, 1024);
	memcpy(buffer, &call->size, sizeof(call->size));
	switch (call->number) {
	case PINDOWN_IOC_PIN:
		pin->address = memory_at(below(seed, MEMORIES)) + below(seed, 16) * PAGE;
		pin->length = (1 + below(seed, 8)) * PAGE;
		pin->flags = one_in(seed, 3) ? below(seed, 8) : below(seed, 2);
		break;
	case PINDOWN_IOC_UNPIN:
	case PINDOWN_IOC_EXPORT:
		((struct pindown_unpin *)buffer)->region = 1 + below(seed, 24);
		break;
	case PINDOWN_IOC_ANSWER:
		((struct pindown_answer *)buffer)->wanted = below(seed, 20);
	}
}

static void change_a_member(uint64_t *seed, const struct call *call, char *buffer)
{
	static const uint32_t sizes[] = {0,    4,    8,	   64,	       1023,
					 1024, 4096, 4097, 0x80000000, UINT32_MAX};
	uint64_t number = some_number(seed);
	unsigned at = below(seed, call->size / 4) * 4;
	uint32_t size;

	if (one_in(seed, 4)) {
		size = one_in(seed, 2) ? call->size + below(seed, 17) - 8 : sizes[number % 10];
		memcpy(buffer, &size, sizeof(size));
	} else if (one_in(seed, 6)) {
		buffer[call->size + below(seed, 1024 - call->size)] = 1;
	} else {
		memcpy(buffer + at, &number, at + 8 <= call->size && one_in(seed, 2) ? 8 : 4);
	}
}

/* Where the structure lies: mostly where the whole call can be read and written. */
static void *place(uint64_t *seed, const struct call *call, char *buffer)
{
	switch (below(seed, 24)) {
	case 0:
		return NULL;
	case 1:
		return (void *)some_number(seed);
	case 2: /* a part of it */
		memcpy(world.edge - call->size / 2, buffer, call->size / 2);
		return world.edge - call->size / 2;
	case 3:
		memcpy(world.edge - call->size, buffer, call->size);
		return world.edge - call->size;
	case 4:
		return world.read_only;
	case 5:
	case 6:
		memcpy(world.shared, buffer, 1024);
		return world.shared;
	case 7: /* a mapping of the state area */
		return (void *)(world.map[below(seed, MAPS)] & ~4095ull);
	}
	return buffer;
}

/* The errors of pindown_ioctl.h, and EBADF of a descriptor that has been closed meanwhile. */
static bool is_known(int error)
{
	static const int known[] = {EINVAL, E2BIG,	EFAULT, EPERM, ENOENT, ESTALE,
				    ENOMEM, EOPNOTSUPP, EFBIG,	EINTR, ENOSPC, EDQUOT,
				    EMFILE, ENOTTY,	ENODEV, EBADF};

	for (unsigned i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (error == known[i])
			return true;
	return false;
}

static void play_call(uint64_t *seed)
{
	const struct call *call = &calls[below(seed, sizeof(calls) / sizeof(*calls))];
	unsigned long number = call->number;
	char buffer[1024];
	int fd = some_file(seed), result;
	void *at;

	right_call(seed, call, buffer);
	for (unsigned changes = one_in(seed, 2) ? 0 : 1 + below(seed, 2); changes; changes--)
		change_a_member(seed, call, buffer);
	if (one_in(seed, 16)) /* another direction or size, number or type */
		number ^= 1ul << below(seed, 32);
	at = place(seed, call, buffer);
	result = syscall(SYS_ioctl, fd, number, at);
	__atomic_fetch_add(&figures->calls, 1, __ATOMIC_RELAXED);
	if (result == 0) {
		__atomic_fetch_add(&figures->succeeded, 1, __ATOMIC_RELAXED);
		if (number == PINDOWN_IOC_EXPORT && at == buffer)
			put_file(seed, world.buffer, BUFFERS,
				 ((struct pindown_export *)buffer)->fd);
	} else if (!is_known(errno)) {
		figures->wrong_error = errno;
		figures->wrong_call = _IOC_NR(number);
	}
}

/* ---- what else is done with a descriptor ---- */

static void play_open(uint64_t *seed)
{
	int old = some_file(seed);
	int fd = one_in(seed, 3) && old >= 0 ? dup(old) : open(PINDOWN_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		put_file(seed, world.file, FILES, fd);
}

static void play_close(uint64_t *seed)
{
	put_file(seed, one_in(seed, 2) ? world.file : world.buffer, FILES, -1);
}

static void unmap(uint64_t map)
{
	if (map)
		munmap((void *)(map & ~4095ull), CPU_PAGE << (map & 4095));
}

static void play_map(uint64_t *seed)
{
	static const int protections[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE,
					  PROT_READ | PROT_WRITE | PROT_EXEC};
	unsigned shift = below(seed, 10);
	uint64_t offset = 0;
	int fd = one_in(seed, 4) ? world.buffer[below(seed, BUFFERS)] : some_file(seed);
	void *at;

	if (one_in(seed, 3))
		offset += below(seed, 1100) * CPU_PAGE;
	if (one_in(seed, 12))
		offset = some_number(seed) & ~(CPU_PAGE - 1);
	at = mmap(NULL, CPU_PAGE << shift, protections[below(seed, 4)],
		  one_in(seed, 8) ? MAP_PRIVATE : MAP_SHARED, fd, (off_t)offset);
	if (at != MAP_FAILED)
		unmap(__atomic_exchange_n(&world.map[below(seed, MAPS)], (uint64_t)at | shift,
					  __ATOMIC_RELAXED));
}

/* A mapping is changed, or a part of it goes, while others may be using it. */
static void play_with_map(uint64_t *seed)
{
	uint64_t *slot = &world.map[below(seed, MAPS)];
	uint64_t map = __atomic_exchange_n(slot, 0, __ATOMIC_RELAXED);
	char *at = (char *)(map & ~4095ull);
	size_t length = CPU_PAGE << (map & 4095);
	uint64_t none = 0;

	if (!map)
		return;
	switch (below(seed, 6)) {
	case 0:
		touch(at + below(seed, length), one_in(seed, 2));
		break;
	case 1:
		mprotect(at, length, one_in(seed, 2) ? PROT_READ | PROT_WRITE : PROT_READ);
		break;
	case 2:
		madvise(at, length, (int)below(seed, 26));
		break;
	case 3:
		if (mremap(at, length, 2 * length, 0) == at)
			map++;
		break;
	case 4: /* the upper half of it; another's mapping may be there next */
		if (map & 4095 && munmap(at + length / 2, length / 2) == 0)
			map--;
		touch(at, false);
		break;
	default:
		unmap(map);
		return;
	}
	if (!__atomic_compare_exchange_n(slot, &none, map, false, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		unmap(map);
}

static void play_with_file(uint64_t *seed)
{
	struct pollfd poll_of = {.fd = some_file(seed), .events = (short)next(seed)};
	char byte[8] = "";

	switch (below(seed, 5)) {
	case 0:
		poll(&poll_of, 1, (int)below(seed, 2));
		break;
	case 1:
		if (read(poll_of.fd, byte, sizeof(byte)) > 0)
			figures->wrong_error = -1;
		break;
	case 2:
		lseek(poll_of.fd, (off_t)next(seed), (int)below(seed, 5));
		break;
	case 3:
		fcntl(poll_of.fd, F_SETFL, (int)below(seed, 2) * O_NONBLOCK);
		break;
	default:
		fsync(poll_of.fd);
	}
}

static void play_with_buffer(uint64_t *seed)
{
	int buffer = world.buffer[below(seed, BUFFERS)];
	struct dma_buf_sync sync = {.flags = below(seed, 8)};
	struct pollfd poll_of = {.fd = buffer, .events = POLLIN | POLLOUT};
	struct edu_import import = {.fd = buffer, .flags = (uint32_t)below(seed, 8)};
	uint32_t id = (uint32_t)below(seed, 12);
	char bytes[64];

	switch (below(seed, 6)) {
	case 0:
		ioctl(buffer, DMA_BUF_IOCTL_SYNC, &sync);
		break;
	case 1:
		poll(&poll_of, 1, 0);
		break;
	case 2:
		lseek(buffer, 0, (int)below(seed, 3));
		break;
	case 3:
		ioctl(world.peer, EDU_RELEASE, &id);
		break;
	case 4:
		peer_move(world.peer, EDU_READ, id, below(seed, 4) * PAGE, bytes, sizeof(bytes));
		break;
	default:
		ioctl(world.peer, EDU_IMPORT, &import);
	}
}

/* ---- memory, processes and the module's parameters ---- */

static void play_memory(uint64_t *seed)
{
	unsigned number = below(seed, MEMORIES);
	struct sim_gpu_alloc call = {.va = memory_at(number),
				     .size = (1 + below(seed, 32)) * PAGE,
				     .flags =
					     SIM_GPU_MAPPED | (below(seed, 2) * SIM_GPU_SCATTERED)};
	uint64_t old = __atomic_exchange_n(&world.memory[number], 0, __ATOMIC_RELAXED);

	if (old)
		ioctl(gpu(), SIM_GPU_FREE, &old);
	else if (ioctl(gpu(), SIM_GPU_ALLOC, &call) == 0)
		__atomic_store_n(&world.memory[number], call.handle, __ATOMIC_RELAXED);
}

static void play_step(uint64_t *seed);

/* A child has the descriptors, and must not use them. */
static void play_fork(uint64_t *seed)
{
	uint64_t own = next(seed);
	pid_t child = fork();

	if (child == 0) {
		for (unsigned i = 0; i < 12; i++)
			play_call(&own);
		if (one_in(&own, 2))
			play_open(&own);
		for (unsigned i = 0; i < 12; i++)
			play_step(&own);
		_exit(0);
	}
	if (child > 0 && one_in(seed, 2))
		waitpid(child, NULL, 0);
}

static void play_settings(uint64_t *seed)
{
	static const char *const limits[] = {"0", "1", "2", "-1"};
	static const unsigned knobs[] = {SIM_GPU_DELAY_GET, SIM_GPU_DELAY_PUT,
					 SIM_GPU_DELAY_CALLBACK};
	struct sim_gpu_set delay = {.knob = knobs[below(seed, 3)],
				    .value = (uint32_t)(below(seed, 2) * 200)};
	struct sim_gpu_set bar = {.knob = SIM_GPU_BAR_LIMIT,
				  .value = (uint32_t)(below(seed, 2) * 48)};
	char text[4096];
	int fd;

	switch (below(seed, 5)) {
	case 0:
		module_parameter("max_process_mb", limits[below(seed, 4)]);
		break;
	case 1:
		module_parameter("max_pinned_mb", limits[below(seed, 4)]);
		break;
	case 2:
		ioctl(gpu(), SIM_GPU_SET, &delay);
		break;
	case 3:
		ioctl(gpu(), SIM_GPU_SET, &bar);
		break;
	default:
		fd = open(one_in(seed, 2) ? "/sys/kernel/debug/pindown/regions"
					  : "/sys/kernel/debug/pindown/counters",
			  O_RDONLY | O_CLOEXEC);
		while (read(fd, text, sizeof(text)) > 0)
			;
		close(fd);
	}
}

static void play_step(uint64_t *seed)
{
	uint64_t kind = below(seed, 200);

	if (kind < 90)
		play_call(seed);
	else if (kind < 105)
		play_open(seed);
	else if (kind < 115)
		play_close(seed);
	else if (kind < 135)
		play_map(seed);
	else if (kind < 155)
		play_with_map(seed);
	else if (kind < 165)
		play_with_file(seed);
	else if (kind < 180)
		play_with_buffer(seed);
	else if (kind < 190)
		play_memory(seed);
	else if (kind < 195)
		world.shared[below(seed, 64)] = (char)next(seed);
	else if (kind < 198)
		play_settings(seed);
	else if (kind == 198)
		play_fork(seed);
	else
		sched_yield();
}

/* ---- rounds ---- */

static void *play(void *arg)
{
	uint64_t seed = *(uint64_t *)arg;

	for (unsigned i = 0; i < STEPS; i++)
		play_step(&seed);
	return NULL;
}

static void begin_world(void)
{
	char *pages = mmap(NULL, 3 * CPU_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	check(pages != MAP_FAILED);
	works(munmap(pages + CPU_PAGE, CPU_PAGE));
	world.edge = pages + CPU_PAGE;
	world.read_only = pages + 2 * CPU_PAGE;
	*(struct pindown_pin *)world.read_only =
		(struct pindown_pin){.size = sizeof(struct pindown_pin),
				     .flags = PINDOWN_PIN_PERSISTENT,
				     .address = memory_at(0),
				     .length = PAGE};
	works(mprotect(world.read_only, CPU_PAGE, PROT_READ));
	for (unsigned i = 0; i < FILES; i++)
		world.file[i] = i < 6 ? pdn_open() : -1;
	for (unsigned i = 0; i < BUFFERS; i++)
		world.buffer[i] = -1;
	for (unsigned i = 0; i < MEMORIES; i++)
		world.memory[i] = gpu_alloc_at(memory_at(i), 16 * PAGE).handle;
	world.peer = open(EDU_PEER_DEVICE, O_RDWR | O_CLOEXEC);
}

static pid_t begin_process(uint64_t seed)
{
	pthread_t threads[THREADS];
	uint64_t seeds[THREADS];
	pid_t child = fork();

	works(child);
	if (child)
		return child;
	begin_world();
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = next(&seed);
		threads[i] = in_thread(play, &seeds[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		thread_ends(threads[i]);
	_exit(0);
}

static bool nothing_is_left(void)
{
	static const enum sim_gpu_counter gone[] = {SIM_GPU_PINS, SIM_GPU_PERSISTENT,
						    SIM_GPU_TABLES, SIM_GPU_DMA_MAPPINGS};

	for (unsigned i = 0; i < sizeof(gone) / sizeof(*gone); i++)
		if (gpu_count(gone[i]))
			return false;
	return !pdn_counter("charged_bytes") && !pdn_counter("charges") &&
	       !pdn_counter("kept_bytes");
}

/* With the kernel's own line about a process that ends by a fault. */
static void log_everything(void)
{
	int fd = open("/proc/sys/kernel/printk", O_WRONLY | O_CLOEXEC);

	works(fd);
	works(write(fd, "7", 1));
	close(fd);
}

/* Forked children of theirs may live a little longer; what they hold ends with them. */
static void check_nothing_is_left(uint64_t seed)
{
	if (!becomes_true(PATIENCE_NS * slowness(), nothing_is_left()))
		fail("round of seed %llu: still there: %llu pins, %llu persistent, "
		     "%llu tables, %llu mappings; counted: %llu bytes, %llu charges",
		     (unsigned long long)seed, (unsigned long long)gpu_count(SIM_GPU_PINS),
		     (unsigned long long)gpu_count(SIM_GPU_PERSISTENT),
		     (unsigned long long)gpu_count(SIM_GPU_TABLES),
		     (unsigned long long)gpu_count(SIM_GPU_DMA_MAPPINGS),
		     (unsigned long long)pdn_counter("charged_bytes"),
		     (unsigned long long)pdn_counter("charges"));
}

static void play_round(uint64_t seed)
{
	uint64_t state = seed;
	pid_t children[PROCESSES];
	int status;

	works(ioctl(gpu(), SIM_GPU_RESET));
	module_parameter("max_process_mb", "0");
	module_parameter("max_pinned_mb", "0");
	for (unsigned i = 0; i < PROCESSES; i++)
		children[i] = begin_process(next(&state));
	if (one_in(&state, 3)) {
		usleep(below(&state, 50000)); /* it may be anywhere in its steps */
		kill(children[0], SIGKILL);
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		check_equal(waitpid(children[i], &status, 0), children[i]);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			if (status)
				fail("round of seed %llu: a process ended with %#x",
				     (unsigned long long)seed, status);
	}
	if (figures->wrong_error)
		fail("round of seed %llu: call %d: %s", (unsigned long long)seed,
		     figures->wrong_call, strerror(figures->wrong_error));
	check_nothing_is_left(seed);
}

TEST(calls_by_chance, .seconds = 1000000)
{
	const char *wanted = getenv("GUEST_FUZZ");
	unsigned long seconds = 6, seed = 1, rounds = 0;
	time_t end;

	if (gpu_is_nvidias())
		test_skipped("nvidia.ko has no settings for it");
	if (wanted) {
		sscanf(wanted, "%lu,%lu", &seconds, &seed);
		log_everything();
	}
	figures = mmap(NULL, sizeof(*figures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	check(figures != MAP_FAILED);
	for (end = time(NULL) + (time_t)seconds; time(NULL) < end; rounds++)
		play_round(seed * 1000003 + rounds);
	module_parameter("max_process_mb", "0");
	module_parameter("max_pinned_mb", "0");
	printf("%lu rounds of seed %lu: %llu calls, %llu of them succeeded\n", rounds, seed,
	       (unsigned long long)figures->calls, (unsigned long long)figures->succeeded);
	fflush(stdout);
	check(figures->succeeded > figures->calls / 50);
}
