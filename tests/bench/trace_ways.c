// SPDX-License-Identifier: MIT
/*
 * trace_ways FOLDER: the cost of an event for several ways to write it into a file in that folder:
 * the mean over a run, so that it includes the allocation of space. The ways take turns; the result
 * of each is the median of the rounds. docs/internals/trace-format.md says why the trace uses its
 * way.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

enum { EVENT = 32, CHUNK = 4 * 65536, EVENTS = 400000, ROUNDS = 9, MAX_THREADS = 4 };
enum memory { MAPPED_FILE, PRIVATE, SEALED, SYSTEM_V };

static const struct way {
	const char *name;
	enum memory memory;
	unsigned piece; /* bytes in one write */
} ways[] = {
	{"stored in a mapping of the file", MAPPED_FILE, 0},
	{"one write for each event", PRIVATE, EVENT},
	{"one for 64 events", PRIVATE, 64 * EVENT},
	{"one for 4 KiB", PRIVATE, 4096},
	{"one for 64 KiB", PRIVATE, 65536},
	{"one for 64 KiB, of a sealed memfd", SEALED, 65536},
	{"one for 64 KiB, of System V's memory", SYSTEM_V, 65536},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static const struct way *way;
static int file;
static uint64_t claimed;

static void stop(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t claim(void)
{
	uint64_t offset = __atomic_fetch_add(&claimed, CHUNK, __ATOMIC_RELAXED);

	if (fallocate(file, 0, (off_t)offset, CHUNK) != 0)
		stop("fallocate");
	return offset;
}

static char *memory_for_pieces(void)
{
	int fd = way->memory == SEALED ? memfd_create("ways", MFD_ALLOW_SEALING) : -1, id;
	void *memory;

	if (way->memory == SYSTEM_V) {
		id = shmget(IPC_PRIVATE, way->piece, 0600);
		memory = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		return memory == (void *)-1 ? NULL : memory;
	}
	if (fd >= 0 && (ftruncate(fd, way->piece) != 0 ||
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0))
		stop("memfd");
	memory = mmap(NULL, way->piece, PROT_READ | PROT_WRITE,
		      fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (fd >= 0)
		close(fd);
	return memory == MAP_FAILED ? NULL : memory;
}

static void put(char *at, uint64_t number)
{
	uint64_t *words = (uint64_t *)(void *)at;

	words[1] = number;
	words[2] = number * 7;
	words[3] = number * 9;
	__atomic_store_n(words, number | 1, __ATOMIC_RELEASE);
}

static void store_in_mapping(void)
{
	char *window = NULL;

	for (uint64_t i = 0, left = 0; i < EVENTS; i++, left -= EVENT) {
		if (!left) {
			uint64_t offset = claim();

			window = mmap(window, CHUNK, PROT_READ | PROT_WRITE,
				      MAP_SHARED | (window ? MAP_FIXED : 0), file, (off_t)offset);
			if (window == MAP_FAILED)
				stop("mmap");
			madvise(window, CHUNK, MADV_POPULATE_WRITE);
			left = CHUNK;
		}
		put(window + CHUNK - left, i);
	}
	munmap(window, CHUNK);
}

static void write_pieces(void)
{
	uint64_t offset = 0, left = 0;
	char *memory = memory_for_pieces();
	unsigned used = 0;

	if (!memory)
		stop("memory");
	for (uint64_t i = 0; i < EVENTS; i++) {
		put(memory + used, i);
		used += EVENT;
		if (used < way->piece)
			continue;
		if (!left) {
			offset = claim();
			left = CHUNK;
		}
		if (pwrite(file, memory, used, (off_t)offset) != (ssize_t)used)
			stop("pwrite");
		memset(memory, 0, used);
		offset += used;
		left -= used;
		used = 0;
	}
}

static void *work(void *arg)
{
	(void)arg;
	if (way->memory == MAPPED_FILE)
		store_in_mapping();
	else
		write_pieces();
	return NULL;
}

/* ns for an event of one thread, while several threads write. */
static double round_of(const char *path, unsigned threads)
{
	pthread_t thread[MAX_THREADS];
	struct timespec begin, end;

	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (file < 0)
		stop(path);
	unlink(path);
	claimed = 0;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, NULL) != 0)
			stop("pthread_create");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	close(file);
	return ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
	       EVENTS;
}

static int compare(const void *a, const void *b)
{
	const double *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

int main(int argc, char **argv)
{
	static double results[WAYS][ROUNDS];
	char path[4096];

	if (argc != 2) {
		fprintf(stderr, "usage: trace_ways FOLDER\n");
		return 2;
	}
	snprintf(path, sizeof(path), "%s/trace_ways.%d", argv[1], getpid());
	for (unsigned threads = 1; threads <= MAX_THREADS; threads *= 2) {
		for (unsigned i = 0; i < ROUNDS; i++)
			for (unsigned j = 0; j < WAYS; j++) {
				way = &ways[j];
				results[j][i] = round_of(path, threads);
			}
		for (unsigned j = 0; j < WAYS; j++) {
			qsort(results[j], ROUNDS, sizeof(double), compare);
			printf("%u thread%s\t%-38s %8.1f ns (%.1f to %.1f)\n", threads,
			       threads == 1 ? "" : "s", ways[j].name, results[j][ROUNDS / 2],
			       results[j][0], results[j][ROUNDS - 1]);
		}
	}
	return 0;
}
