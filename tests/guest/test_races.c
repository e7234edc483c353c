// SPDX-License-Identifier: MIT
/*
 * Races of a free against all other calls: first on purpose, with the driver stopped at a gate,
 * then by chance, in many rounds with the driver's delays on (GUEST_ROUNDS: how many in all).
 *
 * Whichever call wins, the result is the same: nothing stays pinned, and no word says valid for
 * memory that is gone.
 */
#include <fcntl.h>
#include <signal.h>

#include "guest.h"

struct race {
	struct memory memory;
	struct pindown_pin pin;
	const volatile char *state;
	int fd, result, error;
	unsigned flags;
	pthread_barrier_t start;
};

static void *frees(void *arg)
{
	gpu_free(&((struct race *)arg)->memory);
	return NULL;
}

static void *pins(void *arg)
{
	struct race *race = arg;

	race->result = pdn_pin(race->fd, race->memory.va, PAGE, race->flags, &race->pin);
	race->error = errno;
	return NULL;
}

static void *unpins(void *arg)
{
	struct race *race = arg;

	race->result = pdn_unpin(race->fd, race->pin.region);
	race->error = errno;
	return NULL;
}

static struct race race_new(void)
{
	struct race race = {.memory = gpu_alloc(PAGE, 0), .fd = pdn_open()};

	race.state = pdn_state(race.fd);
	return race;
}

/* The free comes after the pages were pinned and before the callback is registered. */
TEST(free_overtakes_pin)
{
	struct race race = race_new();
	pthread_t pinning;

	gate_arm(SIM_GPU_GATE_PINNED);
	pinning = in_thread(pins, &race);
	gate_await(SIM_GPU_GATE_PINNED);
	gpu_free(&race.memory);
	gate_open(SIM_GPU_GATE_PINNED);
	thread_ends(pinning);
	check(race.result < 0);
	check(race.error == ESTALE || race.error == EINVAL);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_TABLES), 0);
}

/* The callback runs before get_pages has returned to pindown. */
TEST(callback_before_the_pin_returns)
{
	struct race race = race_new();
	pthread_t pinning;

	gate_arm(SIM_GPU_GATE_REGISTERED);
	pinning = in_thread(pins, &race);
	gate_await(SIM_GPU_GATE_REGISTERED);
	gpu_free(&race.memory);
	gate_open(SIM_GPU_GATE_REGISTERED);
	thread_ends(pinning);
	if (race.result == 0) {
		check(!pdn_valid(race.state, &race.pin));
		works(pdn_unpin(race.fd, race.pin.region));
	} else {
		check_equal(race.error, ESTALE);
	}
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_TABLES), 0);
}

/* The callback waits with the API lock held; the unpin is under way. */
TEST(callback_against_unpin)
{
	struct race race = race_new();
	pthread_t freeing, unpinning;

	works(pdn_pin(race.fd, race.memory.va, PAGE, 0, &race.pin));
	gate_arm(SIM_GPU_GATE_CALLBACK);
	freeing = in_thread(frees, &race);
	gate_await(SIM_GPU_GATE_CALLBACK);
	unpinning = in_thread(unpins, &race);
	newest_thread_waits(); /* for the API lock */
	gate_open(SIM_GPU_GATE_CALLBACK);
	thread_ends(freeing);
	thread_ends(unpinning);
	check_equal(race.result, 0);
	check(!pdn_valid(race.state, &race.pin));
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/* put_pages is stopped before it takes the lock; the free, and its callback, go first. */
TEST(free_overtakes_unpin)
{
	uint64_t late = gpu_count(SIM_GPU_PUTS_LATE);
	struct race race = race_new();
	pthread_t unpinning;

	works(pdn_pin(race.fd, race.memory.va, PAGE, 0, &race.pin));
	gate_arm(SIM_GPU_GATE_PUT);
	unpinning = in_thread(unpins, &race);
	gate_await(SIM_GPU_GATE_PUT);
	gpu_free(&race.memory);
	gate_open(SIM_GPU_GATE_PUT);
	thread_ends(unpinning);
	check_equal(race.result, 0);
	check_equal(gpu_count(SIM_GPU_PUTS_LATE) - late, 1);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/*
 * The same, but before the unpin continues the program allocates and pins memory at the same
 * address; the driver's page table has the address of the old one. The late unpin must not end this
 * pin.
 */
TEST(late_unpin_against_a_new_pin)
{
	struct race race = race_new(), newer;
	pthread_t unpinning, pinning;
	int i;

	gpu_set(SIM_GPU_REUSE_TABLES, 1);
	for (i = 0; i < 10; i++) {
		race.memory = gpu_alloc_at(0x600000000, PAGE);
		works(pdn_pin(race.fd, race.memory.va, PAGE, 0, &race.pin));
		gate_arm(SIM_GPU_GATE_PUT);
		unpinning = in_thread(unpins, &race);
		gate_await(SIM_GPU_GATE_PUT);
		gpu_free(&race.memory);
		newer = race;
		newer.memory = gpu_alloc_at(0x600000000, PAGE);
		pinning = in_thread(pins, &newer);
		newest_thread_waits(); /* it may have to wait for the unpin */
		gate_open(SIM_GPU_GATE_PUT);
		thread_ends(unpinning);
		thread_ends(pinning);
		check_equal(newer.result, 0);
		check(pdn_valid(race.state, &newer.pin));
		check_equal(gpu_count(SIM_GPU_PINS), 1);
		gpu_free(&newer.memory);
		check(!pdn_valid(race.state, &newer.pin));
		works(pdn_unpin(newer.fd, newer.pin.region));
	}
}

static void *closes(void *arg)
{
	works(close(((struct race *)arg)->fd));
	return NULL;
}

TEST(callback_against_close)
{
	struct race race = race_new();
	struct pindown_version version = {.size = sizeof(version)};
	pthread_t freeing, closing;

	works(pdn_pin(race.fd, race.memory.va, PAGE, 0, &race.pin));
	/* The state area's mapping would hold the file. */
	works(ioctl(race.fd, PINDOWN_IOC_VERSION, &version));
	works(munmap((void *)race.state, version.state_length));
	gate_arm(SIM_GPU_GATE_CALLBACK);
	freeing = in_thread(frees, &race);
	gate_await(SIM_GPU_GATE_CALLBACK);
	closing = in_thread(closes, &race);
	newest_thread_waits();
	gate_open(SIM_GPU_GATE_CALLBACK);
	thread_ends(freeing);
	thread_ends(closing);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/* During the callback nobody who reads the word or the list waits for the driver. */
TEST(callback_against_readers)
{
	struct race race = race_new();
	pthread_t freeing;
	struct shown shown;

	works(pdn_pin(race.fd, race.memory.va, PAGE, 0, &race.pin));
	gate_arm(SIM_GPU_GATE_CALLED);
	freeing = in_thread(frees, &race);
	gate_await(SIM_GPU_GATE_CALLED);
	check(!pdn_valid(race.state, &race.pin));
	check(pdn_shown(race.pin.region, &shown));
	gate_open(SIM_GPU_GATE_CALLED);
	thread_ends(freeing);
	check(!strcmp(shown.state, "revoked"));
}

static void *exports(void *arg)
{
	struct race *race = arg;

	race->result = pdn_export(race->fd, race->pin.region);
	race->error = errno;
	return NULL;
}

TEST(callback_against_export)
{
	struct race race = race_new();
	pthread_t freeing, exporting;

	works(pdn_pin(race.fd, race.memory.va, PAGE, 0, &race.pin));
	gate_arm(SIM_GPU_GATE_CALLBACK);
	freeing = in_thread(frees, &race);
	gate_await(SIM_GPU_GATE_CALLBACK);
	exporting = in_thread(exports, &race);
	newest_thread_waits();
	gate_open(SIM_GPU_GATE_CALLBACK);
	thread_ends(freeing);
	thread_ends(exporting);
	if (race.result >= 0)
		works(close(race.result));
	else
		check(race.error == ESTALE || race.error == EINVAL);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
}

/* ---- by chance ---- */

/* The usual rounds of all these tests together. */
#define USUAL 4500

static unsigned rounds(unsigned usual)
{
	const char *text = getenv("GUEST_ROUNDS");

	return text ? (strtoul(text, NULL, 10) * usual + USUAL - 1) / USUAL : usual;
}

static void with_delays(void)
{
	gpu_set(SIM_GPU_DELAY_GET, 60);
	gpu_set(SIM_GPU_DELAY_PUT, 60);
	gpu_set(SIM_GPU_DELAY_CALLBACK, 60);
}

/*
 * Another thread that runs a function once each round, at the same time as the test's own thread.
 */
struct helper {
	struct race *race;
	void *(*act)(void *);
	unsigned rounds;
};

static void *helps(void *arg)
{
	struct helper *helper = arg;
	unsigned i;

	for (i = 0; i < helper->rounds; i++) {
		pthread_barrier_wait(&helper->race->start);
		helper->act(helper->race);
		pthread_barrier_wait(&helper->race->start);
	}
	return NULL;
}

static void many(unsigned usual, void (*prepare)(struct race *), void *(*against)(void *),
		 void (*finish)(struct race *))
{
	struct race race = {.fd = pdn_open()};
	struct helper helper = {.race = &race, .act = against, .rounds = rounds(usual)};
	pthread_t thread;
	unsigned i;

	race.state = pdn_state(race.fd);
	pthread_barrier_init(&race.start, NULL, 2);
	with_delays();
	thread = in_thread(helps, &helper);
	for (i = 0; i < helper.rounds; i++) {
		race.memory = gpu_alloc(PAGE, 0);
		race.flags = 0;
		prepare(&race);
		pthread_barrier_wait(&race.start);
		gpu_free(&race.memory);
		pthread_barrier_wait(&race.start);
		finish(&race);
	}
	thread_ends(thread);
	check_equal(gpu_count(SIM_GPU_PINS), 0);
	check_equal(gpu_count(SIM_GPU_TABLES), 0);
	check_equal(gpu_count(SIM_GPU_MEMORY_PAGES), 0);
}

static void prepare_nothing(struct race *race)
{
	race->result = -2;
}

static void finish_pin(struct race *race)
{
	if (race->result == 0) {
		check(!pdn_valid(race->state, &race->pin));
		works(pdn_unpin(race->fd, race->pin.region));
	} else {
		check(race->error == ESTALE || race->error == EINVAL);
	}
}

/* ---- the count of revocations ---- */

struct watched {
	const struct pindown_state *state;
	const uint32_t *word;
	uint32_t before, seen;
	bool ready;
};

/* Spins until the count changes, and reads the word at once. */
static void *watches_the_count(void *arg)
{
	struct watched *watched = arg;

	__atomic_store_n(&watched->ready, true, __ATOMIC_RELEASE);
	while (__atomic_load_n(&watched->state->revocations, __ATOMIC_ACQUIRE) == watched->before)
		;
	watched->seen = __atomic_load_n(watched->word, __ATOMIC_ACQUIRE);
	return NULL;
}

/* A process that checks the count for many regions must then read 0 in the word. */
TEST(the_count_is_raised_behind_the_word, .seconds = 60)
{
	int fd = pdn_open();
	const char *area = (const char *)pdn_state(fd);
	struct watched watched = {.state = (const void *)area};
	struct pindown_pin pin;

	for (unsigned i = 0; i < 300; i++) {
		struct memory memory = gpu_alloc(PAGE, 0);
		pthread_t thread;

		works(pdn_pin(fd, memory.va, memory.size, 0, &pin));
		watched.word = (const void *)(area + pin.state_offset);
		watched.before = watched.state->revocations;
		watched.ready = false;
		thread = in_thread(watches_the_count, &watched);
		while (!__atomic_load_n(&watched.ready, __ATOMIC_ACQUIRE))
			;
		gpu_free(&memory);
		thread_ends(thread);
		check_equal(watched.seen, 0);
		works(pdn_unpin(fd, pin.region));
	}
}

TEST(many_frees_against_pins, .seconds = 900)
{
	many(1000, prepare_nothing, pins, finish_pin);
}

static void prepare_pin(struct race *race)
{
	works(pdn_pin(race->fd, race->memory.va, PAGE, 0, &race->pin));
}

static void finish_unpin(struct race *race)
{
	check_equal(race->result, 0);
}

TEST(many_frees_against_unpins, .seconds = 900)
{
	many(1000, prepare_pin, unpins, finish_unpin);
}

/* Each round has a descriptor of its own, which is closed against the callback. */
static void prepare_close(struct race *race)
{
	int fd = pdn_open();

	race->error = fd;
	works(pdn_pin(fd, race->memory.va, PAGE, 0, &race->pin));
}

static void *closes_own(void *arg)
{
	works(close(((struct race *)arg)->error));
	return NULL;
}

static void finish_nothing(struct race *race)
{
	race->error = 0;
}

TEST(many_frees_against_closes, .seconds = 900)
{
	many(1000, prepare_close, closes_own, finish_nothing);
}

static void *exports_and_closes(void *arg)
{
	struct race *race = arg;

	race->result = pdn_export(race->fd, race->pin.region);
	race->error = errno;
	if (race->result >= 0)
		works(close(race->result));
	return NULL;
}

static void finish_export(struct race *race)
{
	if (race->result < 0)
		check(race->error == ESTALE || race->error == EINVAL);
	works(pdn_unpin(race->fd, race->pin.region));
}

TEST(many_frees_against_exports, .seconds = 900)
{
	many(500, prepare_pin, exports_and_closes, finish_export);
}
