// SPDX-License-Identifier: MIT
/*
 * PROGRAM WORKLOAD REGIONS PATTERN: the workloads (`workloads` below), on the cache that the
 * program is linked with (peer.h). PATTERN is the place of the regions and the way
 * they are chosen: dense (side by side, at random), stride (2 MiB apart, at random), zipf (side by
 * side, most accesses to few of them).
 *
 * Prints lines WORKLOAD, REGIONS, PATTERN, THREADS, a value and a pace, with tabs between: ns for
 * one get and its put unless WORKLOAD says otherwise, for each thread; and ns for a fixed
 * computation (pace.h), between the batches of the workload. Both are medians of several batches.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "pace.h"
#include "peer.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define MAX_THREADS 2u
#define BASE	    UINT64_C(0x100000000000)

static struct regions regions = {.base = BASE, .shift = 16};
static uint32_t count;
static const char *pattern;
static unsigned batches;
static size_t batch; /* number of gets in a batch */

static void print_value(const char *workload, unsigned threads, double value)
{
	printf("%s\t%u\t%s\t%u\t%.2f\t%.2f\n", workload, count, count == 1 ? "same" : pattern,
	       threads, value, pace_since());
}

static void *table(size_t number, size_t size)
{
	void *p = calloc(number, size);

	if (!p)
		stop("no memory", 0);
	return p;
}

/* ---- orders ------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 32;
}

/* So that the popular regions are not neighbours. */
static uint32_t scatter(uint32_t rank, uint32_t limit)
{
	return (uint32_t)((rank * UINT64_C(2654435761) + 12345) % limit);
}

/* Ranks by Zipf's law with exponent 0.99: the inverse of its distribution, by the integral. */
static uint32_t zipf_rank(double u, uint32_t limit)
{
	const double s = 0.01;
	double rank = pow(u * (pow(limit + 1.0, s) - 1) + 1, 1 / s) - 1;

	return rank < limit ? (uint32_t)rank : limit - 1;
}

/* Chooses among regions first, first + step, ... up to `limit`; `freed` of 1000 are freed first. */
static uint32_t *make_order(uint32_t first, uint32_t step, unsigned freed, uint64_t seed)
{
	uint32_t limit = (count - first + step - 1) / step;
	uint32_t *order = table(batch, sizeof(*order));

	for (size_t i = 0; i < batch; i++) {
		double u = (double)next_random(&seed) / 4294967296.0;
		uint32_t chosen = strcmp(pattern, "zipf") == 0 ? scatter(zipf_rank(u, limit), limit)
							       : (uint32_t)(u * limit);

		order[i] = first + chosen * step;
		if (next_random(&seed) % 1000 < freed)
			order[i] |= PEER_FREED;
	}
	return order;
}

/* ---- threads ------------------------------------------------------------------------------ */

typedef void loop(const struct regions *, const uint32_t *, size_t);

struct worker {
	pthread_t thread;
	loop *loop;
	uint32_t *order;
	double ns;
};

static pthread_barrier_t start_line;

/*
 * A batch is timed in slices, shorter than the time after which a busy machine lets other work run:
 * otherwise the slower cache would be interrupted in more of its batches.
 */
#define MAX_BATCHES 9u
#define SLICES	    128u

/* The ns of each call in one batch, slice by slice. */
static void time_slices(loop *measured, const struct regions *where, const uint32_t *order,
			double *values)
{
	size_t slice = batch / SLICES;

	for (unsigned i = 0; i < SLICES; i++) {
		double begin = now_ns();

		measured(where, order + i * slice, slice);
		values[i] = (now_ns() - begin) / (double)slice;
		pace_look();
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	double values[MAX_BATCHES * SLICES];

	peer_thread();
	w->loop(&regions, w->order, batch);
	for (unsigned i = 0; i < batches; i++) {
		pthread_barrier_wait(&start_line);
		time_slices(w->loop, &regions, w->order, values + i * SLICES);
	}
	w->ns = median(values, batches * SLICES);
	return NULL;
}

/* The main thread is one of them: a process with one thread must be measured as such. */
static void run_threads(const char *workload, struct worker *workers, unsigned threads)
{
	double sum = 0;

	pthread_barrier_init(&start_line, NULL, threads);
	for (unsigned i = 1; i < threads; i++)
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			stop("no thread", 0);
	work(&workers[0]);
	for (unsigned i = 1; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	for (unsigned i = 0; i < threads; i++) {
		sum += workers[i].ns;
		free(workers[i].order);
	}
	pthread_barrier_destroy(&start_line);
	print_value(workload, threads, sum / threads);
}

static void measure_gets(const char *workload, unsigned threads, bool own, unsigned freed)
{
	struct worker workers[MAX_THREADS];

	for (unsigned i = 0; i < threads; i++)
		workers[i] = (struct worker){
			.loop = freed ? peer_gets_and_frees : peer_gets,
			.order = make_order(own ? i : 0, own ? threads : 1, freed, i + 1)};
	run_threads(workload, workers, threads);
}

static void must_be_hits(uint64_t pins)
{
	if (peer_pins() != pins)
		stop("some gets were no hits", (int)(peer_pins() - pins));
}

/* ---- workloads ---------------------------------------------------------------------------- */

static double register_all(void)
{
	uint32_t *order = table(count, sizeof(*order));
	double begin, took;

	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	pace_look_long();
	begin = now_ns();
	peer_gets(&regions, order, count);
	took = (now_ns() - begin) / count;
	pace_look_long();
	free(order);
	return took;
}

static void gets(void)
{
	double miss = register_all();
	uint64_t pins = peer_pins();

	if (count > 1 && peer_has_frees)
		print_value("miss and insert", 1, miss);
	measure_gets("hit", 1, false, 0);
	measure_gets("hit", 2, false, 0);
	if (count > 1)
		measure_gets("hit, own regions", 2, true, 0);
	must_be_hits(pins);
}

static void frees(void)
{
	register_all();
	measure_gets("hit, 1 % freed", 1, false, 10);
	measure_gets("hit, 10 % freed", 1, false, 100);
	measure_gets("free, get that pins, and put", 1, false, 1000);
	measure_gets("hit, 1 % freed", 2, false, 10);
	measure_gets("hit, 10 % freed", 2, false, 100);
}

/* The cost of reading the clock. */
static double clock_ns(void)
{
	double values[999];

	for (unsigned i = 0; i < 999; i++) {
		double begin = now_ns();

		values[i] = now_ns() - begin;
	}
	return median(values, 999);
}

/* The cost of a call that ends `present` regions; they are registered again before each call. */
static void measure_range(const char *workload, uint64_t begin, uint64_t length, uint32_t present)
{
	enum { MAX_TURNS = 2000 };
	static double values[MAX_TURNS];
	unsigned turns = present > 1 ? 100 : MAX_TURNS;
	unsigned times = present ? 1 : 64; /* a call that ends nothing can be repeated */
	uint32_t *order = table(present + 1, sizeof(*order));
	double clock = clock_ns();

	for (uint32_t i = 0; i < present; i++)
		order[i] = (uint32_t)((begin - regions.base) >> regions.shift) + i;
	for (unsigned i = 0; i < turns; i++) {
		double start;

		peer_gets(&regions, order, present);
		start = now_ns();
		for (unsigned j = 0; j < times; j++)
			peer_free_range(begin, length);
		values[i] = (now_ns() - start - clock) / times;
		pace_look();
	}
	free(order);
	print_value(workload, 1, median(values, turns));
}

/* All of it, whichever part of the work of an end a cache leaves to the next get. */
static void measure_end_and_pins(void)
{
	enum { PRESENT = 1000, TURNS = 101 };
	static uint32_t order[PRESENT];
	static double values[TURNS];

	for (uint32_t i = 0; i < PRESENT; i++)
		order[i] = i;
	for (unsigned turn = 0; turn < TURNS; turn++) {
		double begin = now_ns();

		peer_free_range(region_at(&regions, 0), (uint64_t)PRESENT << regions.shift);
		peer_gets(&regions, order, PRESENT);
		values[turn] = now_ns() - begin;
		pace_look();
	}
	print_value("invalidate a range that has 1000, and pin these again", 1,
		    median(values, TURNS));
}

static void ranges(void)
{
	const uint64_t empty = BASE - (UINT64_C(64) << 30);
	struct regions elsewhere = regions;
	double values[MAX_BATCHES * SLICES];
	uint32_t *order;

	register_all();
	measure_range("invalidate a range of 64 MiB that has none", empty, 64 << 20, 0);
	measure_range("invalidate a range of 16 GiB that has none", empty, UINT64_C(16) << 30, 0);
	measure_range("invalidate one region", region_at(&regions, count / 2), PEER_BYTES, 1);
	if (count >= 1000) {
		measure_range("invalidate a range that has 1000", region_at(&regions, 0),
			      UINT64_C(1000) << regions.shift, 1000);
		measure_end_and_pins();
	}
	/* Through the call's wrapper and a driver that does nothing, or by the event. */
	elsewhere.base = empty;
	order = make_order(0, 1, 0, 1);
	peer_frees(&elsewhere, order, batch);
	for (unsigned i = 0; i < batches; i++)
		time_slices(peer_frees, &elsewhere, order, values + i * SLICES);
	free(order);
	print_value("free of what is not registered", 1, median(values, batches * SLICES));
}

/* The ends of single regions, several of them between two looks at the clock. */
static void ends(void)
{
	enum { ENDED = 64, TURNS = 501 };
	static double values[TURNS];
	uint32_t order[ENDED];

	if (count < ENDED)
		stop("too few regions", (int)count);
	register_all();
	for (uint32_t i = 0; i < ENDED; i++)
		order[i] = (uint32_t)((uint64_t)count * i / ENDED);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		double begin = now_ns();

		for (unsigned i = 0; i < ENDED; i++)
			peer_free_range(region_at(&regions, order[i]), PEER_BYTES);
		values[turn] = (now_ns() - begin) / ENDED;
		pace_look();
		peer_gets(&regions, order, ENDED);
	}
	print_value("invalidation of one region", 1, median(values, TURNS));
}

/* The cache keeps an order in which it would evict regions. */
static void limited(void)
{
	uint64_t pins;

	register_all();
	pins = peer_pins();
	measure_gets("hit, with a limit on regions", 1, false, 0);
	measure_gets("hit, with a limit on regions", 2, false, 0);
	must_be_hits(pins);
}

/* 1000 regions are in use while their memory is freed; hits are of others. */
static void pending(void)
{
	const uint32_t held = 1000;
	uint64_t pins;

	if (count <= held)
		stop("too few regions", (int)count);
	register_all();
	count -= held;
	measure_gets("hit, before", 1, false, 0);
	count += held;
	peer_hold(&regions, count - held, held);
	for (uint32_t i = count - held; i < count; i++)
		peer_frees(&regions, &i, 1);
	pins = peer_pins();
	count -= held;
	measure_gets("hit, with 1000 invalidations pending", 1, false, 0);
	must_be_hits(pins);
	count += held;
	peer_let_go();
}

static bool stop_churning;

static void *churn(void *arg)
{
	uint32_t *order = arg;

	peer_thread();
	while (!__atomic_load_n(&stop_churning, __ATOMIC_RELAXED))
		peer_gets_and_frees(&regions, order, 64);
	return NULL;
}

/* One thread hits, another frees and registers other regions without a pause. */
static void churning(void)
{
	struct worker worker = {.loop = peer_gets};
	pthread_t other;
	uint32_t *order;

	register_all();
	worker.order = make_order(0, 2, 0, 1);
	order = make_order(1, 2, 1000, 2);
	if (pthread_create(&other, NULL, churn, order) != 0)
		stop("no thread", 0);
	run_threads("hit, another thread frees others", &worker, 1);
	__atomic_store_n(&stop_churning, true, __ATOMIC_RELAXED);
	pthread_join(other, NULL);
	free(order);
}

/* ---- memory ------------------------------------------------------------------------------- */

static uint64_t resident(void)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512];
	uint64_t sum = 0, kib;

	if (!file)
		stop("/proc/self/smaps", 0);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Rss: %lu kB", &kib) == 1)
			sum += kib;
	fclose(file);
	return sum * 1024;
}

static void memory(void)
{
	uint32_t *order = table(count, sizeof(*order));
	uint64_t before, full, after;

	for (uint32_t i = 0; i < count; i++)
		order[i] = i;
	peer_gets(&regions, order, 1);
	resident(); /* for the program itself */
	before = resident();
	peer_gets(&regions, order, count);
	full = resident();
	peer_flush(&regions, order, count);
	after = resident();
	free(order);
	print_value("bytes for each region", 1, (double)(full - before) / count);
	print_value("bytes for each region after a flush", 1,
		    ((double)after - (double)before) / count);
}

/* ---- for a counter of instructions --------------------------------------------------------- */

/* tests/bench/counts counts only these calls, by their names. */
#define COUNTED static void __attribute__((noinline))

COUNTED misses_counted(const uint32_t *order)
{
	peer_gets(&regions, order, count);
}

COUNTED hits_counted(const uint32_t *order)
{
	peer_gets(&regions, order, batch);
}

COUNTED frees_counted(const uint32_t *order)
{
	peer_gets_and_frees(&regions, order, batch);
}

COUNTED tenths_counted(const uint32_t *order)
{
	peer_gets_and_frees(&regions, order, batch);
}

COUNTED ends_counted(uint32_t many)
{
	for (uint32_t i = 0; i < many; i++)
		peer_free_range(region_at(&regions, i), PEER_BYTES);
}

COUNTED ranges_counted(uint32_t many)
{
	peer_free_range(regions.base, (uint64_t)many << regions.shift);
}

COUNTED unknown_counted(const struct regions *elsewhere, const uint32_t *order)
{
	peer_frees(elsewhere, order, batch);
}

/* Each function once to warm up, once counted; and by which number its counts are to be divided. */
static void count_gets(const char *function, loop *warm, void (*counted)(const uint32_t *),
		       unsigned freed)
{
	uint32_t *order = make_order(0, 1, freed, freed + 1);

	warm(&regions, order, batch);
	counted(order);
	free(order);
	print_value(function, 1, (double)batch);
}

static void count_ends(const uint32_t *all, uint32_t many)
{
	ends_counted(many);
	peer_gets(&regions, all, many);
	print_value("ends_counted", 1, many);
	if (many < 1000)
		return;
	peer_free_range(regions.base, (uint64_t)many << regions.shift);
	peer_gets(&regions, all, many);
	ranges_counted(many);
	peer_gets(&regions, all, many);
	print_value("ranges_counted", 1, 1);
}

static void count_unknown(void)
{
	struct regions elsewhere = {.base = BASE - (UINT64_C(64) << 30), .shift = regions.shift};
	uint32_t *order = make_order(0, 1, 0, 1);

	peer_frees(&elsewhere, order, batch);
	unknown_counted(&elsewhere, order);
	free(order);
	print_value("unknown_counted", 1, (double)batch);
}

static void counted(void)
{
	uint32_t *all = table(count, sizeof(*all));

	batch = 1 << 16;
	for (uint32_t i = 0; i < count; i++)
		all[i] = i;
	misses_counted(all);
	print_value("misses_counted", 1, count);
	count_gets("hits_counted", peer_gets, hits_counted, 0);
	if (peer_has_frees) {
		count_gets("frees_counted", peer_gets_and_frees, frees_counted, 1000);
		count_gets("tenths_counted", peer_gets_and_frees, tenths_counted, 100);
		count_ends(all, count < 1000 ? count : 1000);
		count_unknown();
	}
	free(all);
}

/* ---- main --------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(void);
} workloads[] = {{"gets", gets},      {"frees", frees},	    {"ranges", ranges},
		 {"ends", ends},      {"limited", limited}, {"pending", pending},
		 {"churn", churning}, {"memory", memory},   {"counted", counted}};

int main(int argc, char **argv)
{
	count = argc == 4 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	pattern = argc == 4 ? argv[3] : "";
	if (!count || (strcmp(pattern, "dense") != 0 && strcmp(pattern, "stride") != 0 &&
		       strcmp(pattern, "zipf") != 0)) {
		fprintf(stderr, "usage: %s WORKLOAD REGIONS dense|stride|zipf\n", argv[0]);
		return 2;
	}
	if (strcmp(pattern, "stride") == 0)
		regions.shift = 21;
	batch = count > 100000 ? 1 << 19 : 1 << 18;
	batches = count > 100000 ? 5 : MAX_BATCHES;
	for (unsigned i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++)
		if (strcmp(argv[1], workloads[i].name) == 0) {
			peer_open(count, strcmp(argv[1], "limited") == 0 ? count : 0);
			workloads[i].run();
			return 0;
		}
	fprintf(stderr, "%s: no workload '%s'\n", argv[0], argv[1]);
	return 2;
}
