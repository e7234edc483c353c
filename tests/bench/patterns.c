// SPDX-License-Identifier: MIT
/*
 * patterns NAME: registers GPU memory as some kind of program does, through pindown's cache, so
 * that its trace (PINDOWN_TRACE_EVENTS=all) can be replayed. Linked with libcuda.so.1; the memory
 * is never used.
 *
 *	ring	  an all-reduce: 64 chunks of 8 MiB, one after the other, again and again
 *	halo	  26 neighbours, a send and a receive buffer each, of three sizes, in every step;
 *		  every 20th step writes 64 fields of 16 MiB out
 *	alltoall  256 peers, a send and a receive buffer of 2 MiB for each, in an order that turns
 *		  with each step
 *	training  gradients in 40 buckets of 25 MiB, in every step from the last to the first;
 *		  activations in segments of 20 MiB chosen by Zipf's law; every 50th step the
 *		  segments are freed and allocated again
 *	serving	  a key-value cache: 2000 blocks of 2 MiB chosen by Zipf's law, one in 100 freed and
 *		  allocated again, and now and then all read in order
 */
#include "calls.h"
#include "cache/pindown.h"

#include <math.h>
#include <string.h>

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

struct buffer {
	CUdeviceptr addr;
	size_t bytes;
};

static struct buffer *make(unsigned count, size_t bytes)
{
	struct buffer *buffers = calloc(count, sizeof(*buffers));

	if (!buffers)
		stop("no memory", 0);
	for (unsigned i = 0; i < count; i++) {
		buffers[i].bytes = bytes;
		must(cuMemAlloc_v2(&buffers[i].addr, bytes), "cuMemAlloc");
	}
	return buffers;
}

static void make_anew(struct buffer *buffer)
{
	must(cuMemFree_v2(buffer->addr), "cuMemFree");
	must(cuMemAlloc_v2(&buffer->addr, buffer->bytes), "cuMemAlloc");
}

static void end(struct buffer *buffers, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		must(cuMemFree_v2(buffers[i].addr), "cuMemFree");
	free(buffers);
}

static void transfer(const struct buffer *buffer)
{
	pindown_region *region;
	int result = pindown_get(buffer->addr, buffer->bytes, 0, &region);

	if (result != PINDOWN_OK)
		stop(pindown_strerror(result), result);
	pindown_put(region);
}

static double random_share(void)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (double)(state >> 40) / (double)(1 << 24);
}

/* Exponent 0.9, by the integral. */
static unsigned zipf(unsigned limit)
{
	const double s = 0.1;
	double rank = pow(random_share() * (pow(limit + 1.0, s) - 1) + 1, 1 / s) - 1;

	return rank < limit ? (unsigned)rank : limit - 1;
}

static void ring(void)
{
	struct buffer *chunks = make(64, MIB(8));

	for (unsigned step = 0; step < 60 * 64; step++) {
		transfer(&chunks[step % 64]);
		transfer(&chunks[(step + 63) % 64]);
	}
	end(chunks, 64);
}

static void halo(void)
{
	struct buffer *faces = make(12, MIB(4)), *edges = make(24, KIB(512)),
		      *corners = make(16, KIB(64)), *fields = make(64, MIB(16));

	for (unsigned step = 0; step < 400; step++) {
		for (unsigned i = 0; i < 12; i++)
			transfer(&faces[i]);
		for (unsigned i = 0; i < 24; i++)
			transfer(&edges[i]);
		for (unsigned i = 0; i < 16; i++)
			transfer(&corners[i]);
		for (unsigned i = 0; step % 20 == 19 && i < 64; i++)
			transfer(&fields[i]);
	}
	end(faces, 12);
	end(edges, 24);
	end(corners, 16);
	end(fields, 64);
}

static void alltoall(void)
{
	struct buffer *send = make(256, MIB(2)), *receive = make(256, MIB(2));

	for (unsigned step = 0; step < 60; step++)
		for (unsigned i = 0; i < 256; i++) {
			transfer(&send[(step + i) % 256]);
			transfer(&receive[(step + 256 - i) % 256]);
		}
	end(send, 256);
	end(receive, 256);
}

static void training(void)
{
	struct buffer *buckets = make(40, MIB(25)), *segments = make(200, MIB(20));

	for (unsigned step = 0; step < 400; step++) {
		for (unsigned i = 0; i < 60; i++)
			transfer(&segments[zipf(200)]);
		for (unsigned i = 40; i-- > 0;)
			transfer(&buckets[i]);
		for (unsigned i = 0; step % 50 == 49 && i < 200; i++)
			make_anew(&segments[i]);
	}
	end(buckets, 40);
	end(segments, 200);
}

static void serving(void)
{
	struct buffer *blocks = make(2000, MIB(2));

	for (unsigned i = 0; i < 60000; i++) {
		unsigned block = zipf(2000) * 7919 % 2000;

		transfer(&blocks[block]);
		if (i % 100 == 99)
			make_anew(&blocks[(unsigned)(random_share() * 2000)]);
		for (unsigned j = 0; i % 15000 == 14999 && j < 2000; j++)
			transfer(&blocks[j]);
	}
	end(blocks, 2000);
}

static const struct {
	const char *name;
	void (*run)(void);
} patterns[] = {{"ring", ring},
		{"halo", halo},
		{"alltoall", alltoall},
		{"training", training},
		{"serving", serving}};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc == 2 && i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (strcmp(argv[1], patterns[i].name) == 0) {
			open_driver();
			patterns[i].run();
			return 0;
		}
	fprintf(stderr, "usage: %s ring|halo|alltoall|training|serving\n", argv[0]);
	return 2;
}
