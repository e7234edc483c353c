// SPDX-License-Identifier: MIT
/*
 * How the cost of a cache's operations changes with what it holds: one program for each cache, from
 * this main() (peer.h).
 *
 * PROGRAM table REGIONS THREADS DEVICES: each operation with so much of everything
 * PROGRAM ended:                         after threads have ended
 * PROGRAM idle:                          beside idle threads
 * PROGRAM held REGIONS:                  a miss that makes room, while REGIONS regions are held
 * PROGRAM version:                       the version of the library
 *
 * Prints lines OPERATION, REGIONS, THREADS, DEVICES, ns and the pace of the processor meanwhile
 * (pace.h), with tabs between. In the lines of `ended` and `idle` the first number is that of such
 * threads. The regions lie side by side, 64 KiB each, by turns on the devices, which are TiBs
 * apart.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "pace.h"
#include "peer.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_THREADS 64u
#define MAX_DEVICES 8u
#define DEVICE_BIT  24	/* in the number of a region: its address has the device's TiB */
#define SPARE	    64u /* regions for which there is room beside the held ones */

/* In this part of the address space the driver that does nothing has eight devices. */
static struct regions regions = {.base = UINT64_C(0x200000000000), .shift = 16};
static uint32_t count, threads = 1, devices = 1;

static void *table_of(size_t number, size_t size)
{
	void *p = calloc(number ? number : 1, size);

	if (!p)
		stop("no memory", 0);
	return p;
}

static uint32_t number_of(uint32_t i)
{
	return (i % devices) << DEVICE_BIT | i / devices;
}

static uint32_t *numbers_of(uint32_t first, uint32_t many)
{
	uint32_t *order = table_of(many, sizeof(*order));

	for (uint32_t i = 0; i < many; i++)
		order[i] = number_of(first + i);
	return order;
}

static void print_paced(const char *operation, uint32_t size, double value, double pace)
{
	printf("%s\t%u\t%u\t%u\t%.2f\t%.2f\n", operation, size, threads, devices, value, pace);
	fflush(stdout);
}

/* With the pace since the last line. */
static void print_value(const char *operation, uint32_t size, double value)
{
	print_paced(operation, size, value, pace_since());
}

static double median_time(void (*step)(void), unsigned turns)
{
	double *values = table_of(turns, sizeof(*values)), middle;

	for (unsigned i = 0; i < turns; i++) {
		double begin = now_ns();

		step();
		values[i] = now_ns() - begin;
		if (i % 16 == 0)
			pace_look();
	}
	middle = median(values, turns);
	free(values);
	return middle;
}

/* ---- operations that all threads make at once --------------------------------------------- */

enum { MISS, HIT, FREE, MISS_AGAIN, INVALIDATE, CYCLE, TIMED };

static const char *const names[TIMED] = {
	"miss, first",	    "hit", "free", "miss after a free", "invalidate one region",
	"free, get and put"};

struct worker {
	pthread_t thread;
	uint32_t first, many; /* its own regions */
	uint64_t seed;
	double ns[TIMED], pace[TIMED];
};

static pthread_barrier_t start_line;

static double time_of(void (*loop)(const struct regions *, const uint32_t *, size_t),
		      const uint32_t *order, size_t many)
{
	double begin, took;

	pthread_barrier_wait(&start_line);
	pace_look_long();
	begin = now_ns();
	loop(&regions, order, many);
	took = now_ns() - begin;
	pace_look_long();
	return took / (double)many;
}

static void invalidate_each(const struct regions *where, const uint32_t *order, size_t many)
{
	for (size_t i = 0; i < many; i++)
		peer_free_range(region_at(where, order[i]), PEER_BYTES);
}

static double hits(struct worker *w)
{
	enum { HITS = 32768, TURNS = 7 };
	uint32_t *order = table_of(HITS, sizeof(*order));
	double values[TURNS];

	for (unsigned i = 0; i < HITS; i++) {
		w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
		order[i] = number_of((uint32_t)((w->seed >> 32) * count >> 32));
	}
	peer_gets(&regions, order, HITS);
	for (unsigned i = 0; i < TURNS; i++)
		values[i] = time_of(peer_gets, order, HITS);
	free(order);
	return median(values, TURNS);
}

static void frees_and_misses(struct worker *w, uint32_t *own)
{
	enum { TURNS = 5 };
	double frees[TURNS], misses[TURNS], ends[TURNS];
	uint32_t some = w->many < 1000 ? w->many : 1000;

	for (unsigned i = 0; i < TURNS; i++) {
		frees[i] = time_of(peer_frees, own, some);
		misses[i] = time_of(peer_gets, own, some);
		ends[i] = time_of(invalidate_each, own, some);
		peer_gets(&regions, own, some);
	}
	w->ns[FREE] = median(frees, TURNS);
	w->ns[MISS_AGAIN] = median(misses, TURNS);
	w->ns[INVALIDATE] = median(ends, TURNS);
	w->pace[FREE] = w->pace[MISS_AGAIN] = w->pace[INVALIDATE] = pace_since();
}

/*
 * Free, get, put, again and again: it holds all of an end's work and of a pin's, whichever call a
 * cache does it in. It takes some time slices of the kernel's, so that the threads do run at once
 * where there are more of them than processors.
 */
static double cycles(struct worker *w, const uint32_t *own)
{
	enum { CYCLES = 1u << 14, TURNS = 3 };
	uint32_t *order = table_of(CYCLES, sizeof(*order));
	double values[TURNS];

	for (unsigned i = 0; i < CYCLES; i++)
		order[i] = own[i % (w->many < 1000 ? w->many : 1000)] | PEER_FREED;
	for (unsigned i = 0; i < TURNS; i++)
		values[i] = time_of(peer_gets_and_frees, order, CYCLES);
	free(order);
	return median(values, TURNS);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint32_t *own = numbers_of(w->first, w->many);

	peer_thread();
	w->ns[MISS] = time_of(peer_gets, own, w->many);
	w->pace[MISS] = pace_since();
	pthread_barrier_wait(&start_line); /* all are registered */
	w->ns[HIT] = hits(w);
	w->pace[HIT] = pace_since();
	frees_and_misses(w, own);
	w->ns[CYCLE] = cycles(w, own);
	w->pace[CYCLE] = pace_since();
	free(own);
	return NULL;
}

/* The main thread is one of them: a process with one thread must be measured as such. */
static void run_threads(void)
{
	static struct worker workers[MAX_THREADS];

	pthread_barrier_init(&start_line, NULL, threads);
	for (uint32_t i = 0; i < threads; i++) {
		uint32_t first = (uint32_t)((uint64_t)count * i / threads);
		uint32_t end = (uint32_t)((uint64_t)count * (i + 1) / threads);

		workers[i] = (struct worker){.first = first, .many = end - first, .seed = i + 1};
		if (i && pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			stop("no thread", (int)i);
	}
	work(&workers[0]);
	for (uint32_t i = 1; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	for (unsigned which = 0; which < TIMED; which++) {
		double sum = 0;

		for (uint32_t i = 0; i < threads; i++)
			sum += workers[i].ns[which];
		print_paced(names[which], count, sum / threads, workers[0].pace[which]);
	}
}

/* ---- operations of one thread ------------------------------------------------------------- */

static double fork_ns(void)
{
	enum { TURNS = 9 };
	double values[TURNS];

	for (unsigned i = 0; i < TURNS; i++) {
		double begin;
		pid_t child;

		pace_look_long();
		begin = now_ns();
		child = fork();

		if (child == 0)
			_exit(0);
		values[i] = now_ns() - begin;
		if (child < 0 || waitpid(child, NULL, 0) != child)
			stop("fork", child);
	}
	return median(values, TURNS);
}

/* The command `pindown top --once`, from its start to its end, while this process has a page. */
static void run_top(void)
{
	char *const argv[] = {getenv("BENCH_COMMAND"), "top", "--once", NULL};
	char *const envp[] = {"PATH=/usr/bin:/bin", NULL};
	posix_spawn_file_actions_t quiet;
	pid_t child;
	int status;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawn(&child, argv[0], &quiet, NULL, argv, envp) != 0 ||
	    waitpid(child, &status, 0) != child || status != 0)
		stop("pindown top --once", 0);
	posix_spawn_file_actions_destroy(&quiet);
}

static void count_1000(void)
{
	for (unsigned i = 0; i < 1000; i++)
		peer_count();
}

static void measure_table(void)
{
	uint32_t *all = numbers_of(0, count);
	double begin, took;

	peer_open(count, 0);
	run_threads();
	print_value("fork", count, fork_ns());
	if (peer_count()) {
		print_value("stats", count, median_time(count_1000, 9) / 1000);
		if (getenv("BENCH_COMMAND"))
			print_value("pindown top --once", count, median_time(run_top, 5));
	}
	pace_look_long();
	begin = now_ns();
	peer_flush(&regions, all, count);
	took = now_ns() - begin;
	pace_look_long();
	print_value("flush, each region", count, took / count);
	free(all);
}

/* ---- threads that came and went, or are idle ---------------------------------------------- */

static uint32_t some_regions[16], one_region;

static void get_some(void)
{
	peer_gets(&regions, some_regions, 16);
}

static void end_and_pin(void)
{
	peer_free_range(region_at(&regions, one_region), PEER_BYTES);
	peer_gets(&regions, &one_region, 1);
}

static sem_t has_got, may_end;

static void *be_idle(void *arg)
{
	(void)arg;
	peer_thread();
	get_some();
	sem_post(&has_got);
	sem_wait(&may_end);
	return NULL;
}

static void *busy(void *arg)
{
	struct worker *w = arg;

	peer_thread();
	get_some();
	w->ns[HIT] = median_time(get_some, 20001) / 16;
	w->pace[HIT] = pace_since();
	return NULL;
}

/* A process may have a great many of these: they need next to no stack. */
static void start_idle(pthread_t *idle, uint32_t many)
{
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 128 << 10);
	for (uint32_t i = 0; i < many; i++) {
		if (pthread_create(&idle[i], &attributes, be_idle, NULL) != 0)
			stop("no thread", (int)i);
		sem_wait(&has_got);
	}
	pthread_attr_destroy(&attributes);
}

static void end_idle(pthread_t *idle, uint32_t many)
{
	for (uint32_t i = 0; i < many; i++)
		sem_post(&may_end);
	for (uint32_t i = 0; i < many; i++)
		pthread_join(idle[i], NULL);
}

static void measure_new_thread(uint32_t alive)
{
	struct worker w;

	if (pthread_create(&w.thread, NULL, busy, &w) != 0)
		stop("no thread", 0);
	pthread_join(w.thread, NULL);
	print_paced("hit in a new thread, idle threads", alive, w.ns[HIT], w.pace[HIT]);
}

static void open_for_threads(void)
{
	uint32_t *all = numbers_of(0, 1000);

	peer_open(1000, 0);
	peer_gets(&regions, all, 1000);
	memcpy(some_regions, all, sizeof(some_regions));
	one_region = all[500];
	free(all);
	sem_init(&has_got, 0, 0);
	sem_init(&may_end, 0, 0);
}

static void measure_idle(void)
{
	static const uint32_t sizes[] = {0, 1, 3, 7, 15, 31, 63};
	pthread_t idle[MAX_THREADS];
	uint32_t alive = 0;

	open_for_threads();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		start_idle(idle + alive, sizes[i] - alive);
		alive = sizes[i];
		measure_new_thread(alive);
		print_value("invalidation and pin, idle threads", alive,
			    median_time(end_and_pin, 1001));
	}
	end_idle(idle, alive);
}

/* They were all alive at once. */
static void measure_ended(void)
{
	static const uint32_t sizes[] = {0, 10, 100, 1000, 5000, 20000};
	pthread_t *idle = table_of(20000, sizeof(*idle));

	open_for_threads();
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		start_idle(idle, sizes[i]);
		end_idle(idle, sizes[i]);
		print_value("invalidation and pin, ended threads", sizes[i],
			    median_time(end_and_pin, sizes[i] > 1000 ? 51 : 1001));
		print_value("hit, ended threads", sizes[i], median_time(get_some, 20001) / 16);
	}
	free(idle);
}

/* ---- held regions ------------------------------------------------------------------------- */

static void measure_held(void)
{
	enum { MISSES = 200, TURNS = 5 };
	uint32_t *others = numbers_of(count, SPARE + MISSES * (TURNS + 1));
	double values[TURNS], begin;
	uint64_t pins;

	peer_open(count + SPARE, count + SPARE);
	peer_hold(&regions, 0, count);
	peer_gets(&regions, others, SPARE + MISSES);
	pins = peer_pins();
	for (unsigned i = 0; i < TURNS; i++) {
		begin = now_ns();
		peer_gets(&regions, others + SPARE + MISSES * (i + 1), MISSES);
		values[i] = (now_ns() - begin) / MISSES;
		pace_look();
	}
	if (peer_pins() - pins != MISSES * TURNS)
		stop("some gets were no misses", (int)(peer_pins() - pins));
	free(others);
	print_value("miss that makes room, held regions", count, median(values, TURNS));
	peer_let_go();
}

/* ---- main --------------------------------------------------------------------------------- */

static uint32_t argument(int argc, char **argv, int which, uint32_t most)
{
	unsigned long value = which < argc ? strtoul(argv[which], NULL, 10) : 0;

	if (value > most)
		stop("too many; at most", (int)most);
	return (uint32_t)value;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	count = argument(argc, argv, 2, 1u << DEVICE_BIT);
	if (strcmp(what, "table") == 0 && argc == 5) {
		threads = argument(argc, argv, 3, MAX_THREADS);
		devices = argument(argc, argv, 4, MAX_DEVICES);
		if (threads && devices && count >= threads) {
			measure_table();
			return 0;
		}
	} else if (strcmp(what, "ended") == 0) {
		measure_ended();
		return 0;
	} else if (strcmp(what, "idle") == 0) {
		measure_idle();
		return 0;
	} else if (strcmp(what, "held") == 0 && argc == 3) {
		measure_held();
		return 0;
	} else if (strcmp(what, "version") == 0) {
		puts(peer_version());
		return 0;
	}
	fprintf(stderr,
		"usage: %s table REGIONS THREADS DEVICES | ended | idle | held REGIONS | version\n",
		argv[0]);
	return 2;
}
