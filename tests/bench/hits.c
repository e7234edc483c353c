// SPDX-License-Identifier: MIT
/*
 * hits REGIONS THREADS: the cost of a get that hits plus its put, in ns for each thread, with
 * REGIONS registered and gets spread at random over them.
 */
#include "bench.h"
#include "hits.h"

#include <pthread.h>
#include <string.h>

#define GETS	    200000u /* of each thread in one batch */
#define ROUNDS	    9u
#define MAX_THREADS 64u

static pthread_barrier_t start_line;

struct worker {
	pthread_t thread;
	uint64_t *order; /* GETS addresses */
	double ns;	 /* for one get + put, the median of the rounds */
};

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* The addresses in the order in which one thread asks for them, prepared before the measurement. */
static uint64_t *random_order(const uint64_t *addrs, size_t regions, uint64_t seed)
{
	uint64_t *order = malloc(GETS * sizeof(*order));
	size_t i;

	if (!order)
		stop("no memory", 0);
	for (i = 0; i < GETS; i++)
		order[i] = addrs[next_random(&seed) % regions];
	return order;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	double rounds[ROUNDS], begin;
	unsigned i;

	hits_thread();
	hits_loop(w->order, GETS);
	for (i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&start_line);
		begin = now_ns();
		hits_loop(w->order, GETS);
		rounds[i] = (now_ns() - begin) / GETS;
	}
	w->ns = median(rounds, ROUNDS);
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker workers[MAX_THREADS] = {0};
	size_t regions = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
	unsigned threads = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	uint64_t *addrs = calloc(regions, sizeof(*addrs));
	char name[100];
	double sum = 0;
	unsigned i;

	if (!regions || !threads || threads > MAX_THREADS || !addrs) {
		fprintf(stderr, "usage: %s REGIONS THREADS (1 to %u)\n", argv[0], MAX_THREADS);
		return 2;
	}
	hits_open(addrs, regions);
	pthread_barrier_init(&start_line, NULL, threads);
	for (i = 0; i < threads; i++) {
		workers[i].order = random_order(addrs, regions, i + 1);
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			stop("no thread", 0);
	}
	for (i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		sum += workers[i].ns;
		free(workers[i].order);
	}
	hits_close(regions, (size_t)threads * GETS * (ROUNDS + 1));
	free(addrs);
	snprintf(name, sizeof(name), "%s hit+put, %zu regions, %u threads", hits_name, regions,
		 threads);
	print_measure(name, sum / threads);
	return 0;
}
