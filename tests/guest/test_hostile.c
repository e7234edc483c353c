// SPDX-License-Identifier: MIT
/*
 * Every call with input that a program should not make: all errors are clean, and nothing is left
 * behind.
 */
#include <fcntl.h>
#include <semaphore.h>
#include <sys/poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "guest.h"

/* All calls, by name, with the size of their structures. */
static const struct call {
	const char *name;
	unsigned long number;
	unsigned size;
} calls[] = {
	{"VERSION", PINDOWN_IOC_VERSION, sizeof(struct pindown_version)},
	{"PIN", PINDOWN_IOC_PIN, sizeof(struct pindown_pin)},
	{"UNPIN", PINDOWN_IOC_UNPIN, sizeof(struct pindown_unpin)},
	{"EXPORT", PINDOWN_IOC_EXPORT, sizeof(struct pindown_export)},
	{"ANSWER", PINDOWN_IOC_ANSWER, sizeof(struct pindown_answer)},
};
#define CALLS (sizeof(calls) / sizeof(*calls))

#define each_call(call) for (call = calls; call < calls + CALLS; call++)

/* A valid call of that kind, in a buffer with space behind it. */
static void valid(const struct call *call, char *buffer, const struct memory *memory,
		  const struct pindown_pin *pinned)
{
	struct pindown_pin *pin = (void *)buffer;

	memset(buffer, 0, 1024);
	memcpy(buffer, &call->size, sizeof(call->size));
	if (call->number == PINDOWN_IOC_PIN) {
		pin->address = memory->va;
		pin->length = PAGE;
	} else if (call->number == PINDOWN_IOC_UNPIN || call->number == PINDOWN_IOC_EXPORT) {
		((struct pindown_unpin *)buffer)->region = pinned->region;
	}
}

static int call_with(int fd, const struct call *call, void *buffer)
{
	return syscall(SYS_ioctl, fd, call->number, buffer);
}

struct setting {
	struct memory memory;
	struct pindown_pin pin;
	int fd;
	char buffer[1024];
};

static struct setting *setting_new(void)
{
	static struct setting setting;

	setting.memory = gpu_alloc(4 * PAGE, 0);
	setting.fd = pdn_open();
	works(pdn_pin(setting.fd, setting.memory.va, PAGE, 0, &setting.pin));
	return &setting;
}

TEST(sizes)
{
	struct setting *s = setting_new();
	const struct call *call;
	uint32_t size;

	each_call(call)
	{
		for (size = 0; size < call->size; size++) {
			valid(call, s->buffer, &s->memory, &s->pin);
			memcpy(s->buffer, &size, sizeof(size));
			if (call_with(s->fd, call, s->buffer) >= 0 || errno != EINVAL)
				fail("%s of size %u: %s", call->name, size, strerror(errno));
		}
		/* Larger: accepted as long as the unknown part is zero. */
		valid(call, s->buffer, &s->memory, &s->pin);
		size = 1024;
		memcpy(s->buffer, &size, sizeof(size));
		s->buffer[1023] = 1;
		if (call_with(s->fd, call, s->buffer) >= 0 || errno != E2BIG)
			fail("%s with something behind its end: %s", call->name, strerror(errno));
		size = UINT32_MAX;
		valid(call, s->buffer, &s->memory, &s->pin);
		memcpy(s->buffer, &size, sizeof(size));
		if (call_with(s->fd, call, s->buffer) >= 0)
			fail("%s of 4 GiB works", call->name);
	}
}

TEST(a_later_program)
{
	struct setting *s = setting_new();
	const struct call *call;
	uint32_t size = 1024;

	each_call(call)
	{
		if (call->number == PINDOWN_IOC_UNPIN || call->number == PINDOWN_IOC_ANSWER)
			continue;
		valid(call, s->buffer, &s->memory, &s->pin);
		memcpy(s->buffer, &size, sizeof(size));
		if (call_with(s->fd, call, s->buffer) < 0)
			fail("%s with zeroes behind its end: %s", call->name, strerror(errno));
	}
}

TEST(unknown_flags)
{
	struct setting *s = setting_new();
	const struct call *call;
	uint32_t flag;
	int bit;

	each_call(call)
	{
		for (bit = 0; bit < 32; bit++) {
			if (call->number == PINDOWN_IOC_PIN &&
			    (PINDOWN_PIN_PERSISTENT | PINDOWN_PIN_NO_RECLAIM) & 1u << bit)
				continue;
			valid(call, s->buffer, &s->memory, &s->pin);
			flag = 1u << bit;
			memcpy(s->buffer + 4, &flag, sizeof(flag));
			if (call_with(s->fd, call, s->buffer) >= 0 || errno != EINVAL)
				fail("%s with flag %#x: %s", call->name, flag, strerror(errno));
		}
	}
}

TEST(reserved_members)
{
	struct setting *s = setting_new();
	struct pindown_pin *pin = (void *)s->buffer;
	struct pindown_unpin *unpin = (void *)s->buffer;
	struct pindown_answer *answer = (void *)s->buffer;

	valid(&calls[1], s->buffer, &s->memory, &s->pin);
	pin->reserved = 1;
	fails_with(call_with(s->fd, &calls[1], pin), EINVAL);
	valid(&calls[2], s->buffer, &s->memory, &s->pin);
	unpin->reserved = 1;
	fails_with(call_with(s->fd, &calls[2], unpin), EINVAL);
	valid(&calls[4], s->buffer, &s->memory, &s->pin);
	answer->reserved = 1;
	fails_with(call_with(s->fd, &calls[4], answer), EINVAL);
}

TEST(lengths_that_wrap)
{
	struct setting *s = setting_new();
	static const uint64_t pairs[][2] = {
		{0xffffffffffff0000, 0x10000}, {0xffffffffffff0000, 0x20000},
		{0x10000, 0xffffffffffff0000}, {0x8000000000000000, 0x8000000000000000},
		{0x7fffffffffff0000, 0x10000}, {0x10000, 0x7fffffffffff0000},
		{0x10000, 0x1000000000000},    {0x10000, 0x100000000},
		{0xffff800000000000, 0x10000},
	};
	struct pindown_pin pin;
	unsigned i, flags;

	for (i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		for (flags = 0; flags <= PINDOWN_PIN_PERSISTENT; flags++) {
			if (pdn_pin(s->fd, pairs[i][0], pairs[i][1], flags, &pin) >= 0)
				fail("[%#lx, +%#lx) is pinned", pairs[i][0], pairs[i][1]);
			check(errno == EINVAL || errno == EFBIG);
		}
	}
	/* A length with a real address: it must not be truncated to 32 bits. */
	check(pdn_pin(s->fd, s->memory.va, 0x100010000, 0, &pin) < 0);
}

TEST(region_numbers)
{
	static const uint32_t wrong[] = {0, 2, 3, 1000, 99999, 0x7fffffff, 0x80000000, 0xffffffff};
	struct setting *s = setting_new();
	unsigned i;

	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		if (wrong[i] == s->pin.region)
			continue;
		fails_with(pdn_unpin(s->fd, wrong[i]), ENOENT);
		fails_with(pdn_export(s->fd, wrong[i]), ENOENT);
	}
}

TEST(pointers_that_cannot_be_read)
{
	struct setting *s = setting_new();
	char *pages = mmap(NULL, 2 * CPU_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	void *wrong[] = {NULL,
			 (void *)1,
			 (void *)-1ul,
			 (void *)0xffff888000000000ul,
			 (void *)0x0000800000000000ul,
			 pages + CPU_PAGE,
			 pages + CPU_PAGE - 8};
	const struct call *call;
	uint32_t size = 64;
	unsigned i;

	works(munmap(pages + CPU_PAGE, CPU_PAGE));
	memcpy(pages + CPU_PAGE - 8, &size, sizeof(size));
	each_call(call)
	{
		for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
			if (call_with(s->fd, call, wrong[i]) >= 0 ||
			    (errno != EFAULT && errno != EINVAL))
				fail("%s at %p: %s", call->name, wrong[i], strerror(errno));
		}
	}
}

/* The result can't be written: the call is undone, or an error is reported. */
TEST(pointers_that_cannot_be_written)
{
	struct setting *s = setting_new();
	char *page =
		mmap(NULL, CPU_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t pins = gpu_count(SIM_GPU_PINS), charges = pdn_counter("charges");
	unsigned i;

	for (i = 1; i <= 3; i += 2) { /* PIN, EXPORT */
		works(mprotect(page, CPU_PAGE, PROT_READ | PROT_WRITE));
		memset(page, 0, CPU_PAGE);
		valid(&calls[i], s->buffer, &s->memory, &s->pin);
		memcpy(page, s->buffer, calls[i].size);
		works(mprotect(page, CPU_PAGE, PROT_READ));
		fails_with(call_with(s->fd, &calls[i], page), EFAULT);
	}
	check_equal(gpu_count(SIM_GPU_PINS), pins);
	check_equal(pdn_counter("charges"), charges);
	check_equal(access("/proc/self/fd/100", F_OK), -1);
}

TEST(unknown_calls)
{
	struct setting *s = setting_new();
	unsigned i;

	memset(s->buffer, 0, sizeof(s->buffer));
	for (i = 0; i < 256; i++) {
		/* 3 and 5 were calls of earlier versions. */
		if (i <= 6 && i != 3 && i != 5)
			continue;
		fails_with(
			ioctl(s->fd, _IOWR(PINDOWN_IOC_TYPE, i, struct pindown_unpin), s->buffer),
			ENOTTY);
	}
	fails_with(ioctl(s->fd, _IO('x', 1), s->buffer), ENOTTY);
	fails_with(ioctl(s->fd, 0, s->buffer), ENOTTY);
	check(read(s->fd, s->buffer, 10) < 0);
	check(write(s->fd, s->buffer, 10) < 0);
	check(lseek(s->fd, 10, SEEK_SET) < 0 || read(s->fd, s->buffer, 1) < 0);
}

TEST(answers_that_were_not_asked_for)
{
	struct setting *s = setting_new();
	const struct pindown_state *state = (const struct pindown_state *)pdn_state(s->fd);
	struct pindown_answer answer = {.size = sizeof(answer), .wanted = state->wanted + 1};

	fails_with(ioctl(s->fd, PINDOWN_IOC_ANSWER, &answer), EINVAL);
	answer.wanted = 0xffffffff;
	fails_with(ioctl(s->fd, PINDOWN_IOC_ANSWER, &answer), EINVAL);
}

TEST(no_descriptor_left)
{
	struct setting *s = setting_new();
	uint64_t pins = gpu_count(SIM_GPU_PINS);
	int i;

	while ((i = dup(0)) >= 0)
		;
	check_equal(errno, EMFILE);
	fails_with(pdn_export(s->fd, s->pin.region), EMFILE);
	check_equal(gpu_count(SIM_GPU_PINS), pins);
}

/* A pin needs no descriptor, an export does; a call that failed for lack of one can be repeated. */
TEST(the_limit_of_descriptors_is_reached)
{
	struct setting *s = setting_new();
	struct rlimit limit, none;
	struct pindown_pin pin;

	works(getrlimit(RLIMIT_NOFILE, &limit));
	none = limit;
	none.rlim_cur = 0;
	gpu_count(SIM_GPU_PINS); /* opens the device */
	works(setrlimit(RLIMIT_NOFILE, &none));
	fails_with(open(PINDOWN_DEVICE, O_RDWR | O_CLOEXEC), EMFILE);
	works(pdn_pin(s->fd, s->memory.va, PAGE, 0, &pin));
	fails_with(pdn_export(s->fd, pin.region), EMFILE);
	works(pdn_unpin(s->fd, pin.region));
	check_equal(gpu_count(SIM_GPU_PINS), 1);
	works(setrlimit(RLIMIT_NOFILE, &limit));
	works(pdn_export(s->fd, s->pin.region));
}

TEST(mmap_anywhere)
{
	struct setting *s = setting_new();
	uint64_t offset;
	void *map;
	int bit;

	for (bit = 12; bit < 63; bit++) {
		offset = 1ull << bit;
		map = mmap(NULL, CPU_PAGE, PROT_READ, MAP_SHARED, s->fd, offset);
		if (map != MAP_FAILED) {
			/* The state area. */
			touch(map, false);
			works(munmap(map, CPU_PAGE));
		}
		map = mmap(NULL, 1ull << 40, PROT_READ, MAP_SHARED, s->fd, offset);
		check(map == MAP_FAILED);
	}
}

/* ---- thousands of random calls from several threads ---- */

#define THREADS 4
#define PARTS	25 /* parts of each thread's work: after each, memory is freed */

struct random_caller {
	struct setting *setting;
	uint64_t seed;
	unsigned calls;
	int *fds; /* two descriptors, to confuse region numbers */
	sem_t *parts;
};

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* A number that is likely to be special: small, near a limit, an address, or any. */
static uint64_t some_number(uint64_t *seed, const struct setting *s)
{
	uint64_t kind = next(seed) % 8, n = next(seed);

	switch (kind) {
	case 0:
		return 0;
	case 1:
		return n % 70;
	case 2:
		return s->memory.va + (n % 5) * PAGE;
	case 3:
		return (n % 4) * PAGE;
	case 4:
		return -(n % 3) * PAGE;
	case 5:
		return 1ull << (n % 64);
	case 6:
		return s->pin.region + n % 8;
	}
	return n;
}

static void random_call(struct random_caller *caller)
{
	const struct call *call = &calls[next(&caller->seed) % CALLS];
	int fd = caller->fds[next(&caller->seed) % 2];
	char buffer[1024];
	unsigned changes = next(&caller->seed) % 3, at;
	uint64_t number;

	valid(call, buffer, &caller->setting->memory, &caller->setting->pin);
	((struct pindown_unpin *)buffer)->region = next(&caller->seed) % 40;
	if (call->number == PINDOWN_IOC_PIN)
		valid(call, buffer, &caller->setting->memory, &caller->setting->pin);
	while (changes--) {
		number = some_number(&caller->seed, caller->setting);
		at = next(&caller->seed) % (call->size / 4) * 4;
		if (at + 8 <= call->size && next(&caller->seed) % 2)
			memcpy(buffer + at, &number, 8);
		else
			memcpy(buffer + at, &number, 4);
	}
	if (call_with(fd, call, buffer) == 0 && call->number == PINDOWN_IOC_EXPORT)
		close(((struct pindown_export *)buffer)->fd);
}

static void random_map(struct random_caller *caller)
{
	int fd = caller->fds[next(&caller->seed) % 2];
	uint64_t offset = CPU_PAGE * (next(&caller->seed) % 40);
	size_t length = CPU_PAGE << next(&caller->seed) % 6;
	void *map = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, offset);

	if (map == MAP_FAILED)
		return;
	touch(map, next(&caller->seed) % 2);
	munmap(map, length);
}

static void *calls_at_random(void *arg)
{
	struct random_caller *caller = arg;
	unsigned part, i;

	for (part = 0; part < PARTS; part++) {
		for (i = 0; i < caller->calls / PARTS; i++) {
			if (i % 8 == 7)
				random_map(caller);
			else
				random_call(caller);
		}
		sem_post(caller->parts);
	}
	return NULL;
}

TEST(random_calls_from_several_threads, .seconds = 300)
{
	const char *rounds = getenv("GUEST_ROUNDS");
	struct setting *s = setting_new();
	int fds[2] = {s->fd, pdn_open()}, i;
	struct random_caller callers[THREADS];
	pthread_t threads[THREADS];
	struct memory other;
	sem_t parts;

	sem_init(&parts, 0, 0);
	for (i = 0; i < THREADS; i++) {
		callers[i] = (struct random_caller){.setting = s,
						    .seed = 0x9e3779b97f4a7c15 * (i + 1),
						    .calls = rounds ? atoi(rounds) / 2 : 5000,
						    .fds = fds,
						    .parts = &parts};
		threads[i] = in_thread(calls_at_random, &callers[i]);
	}
	/* Memory is allocated and freed meanwhile. */
	for (i = 0; i < PARTS * THREADS; i++) {
		other = gpu_alloc_at(s->memory.va + 4 * PAGE, PAGE);
		sem_wait(&parts);
		gpu_free(&other);
	}
	for (i = 0; i < THREADS; i++)
		thread_ends(threads[i]);
	/* Only their pins are left, and these end with the descriptors. */
	works(close(fds[0]));
	works(close(fds[1]));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}
