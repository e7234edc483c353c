/* SPDX-License-Identifier: MIT */
/*
 * perftest's plugin of GPU code, without a GPU: compares the bytes that `--data_validation` moves
 * into GPU memory.
 *
 * The sender fills a ring of messages again and again, each time with another byte. After each
 * chunk of messages it adds 1 to the chunk's marker, so that marker N says that the chunk has been
 * filled N times. perftest's own plugin compares while messages arrive; this one compares the whole
 * ring when the sender has ended.
 *
 * PERFTEST_SPOIL=1: one byte is changed before the comparison, which must be noticed.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hook/cuda/abi.h"

#define EXPORT __attribute__((visibility("default")))

enum { PATTERNS = 3 }; /* the bytes 1, 2, 3 in turn */

static struct {
	CUdeviceptr markers, ring;
	uint64_t message, chunk; /* sizes in bytes */
	uint32_t queue_pairs, chunks;
} layout;

static struct {
	uint64_t chunks, bytes, errors;
	/* The first error. */
	uint32_t queue_pair, chunk;
	uint64_t offset;
	uint8_t expected, actual;
} found;

static uint8_t pattern_of(uint64_t filled)
{
	return 1 + (filled - 1) % PATTERNS;
}

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "checker: %s: error %d\n", what, result);
	exit(1);
}

static void differs(uint32_t index, uint64_t offset, uint8_t expected, uint8_t actual)
{
	if (found.errors++)
		return;
	found.queue_pair = index / layout.chunks;
	found.chunk = index % layout.chunks;
	found.offset = offset;
	found.expected = expected;
	found.actual = actual;
}

static bool is_filled_with(const uint8_t *bytes, uint8_t byte)
{
	return bytes[0] == byte && memcmp(bytes, bytes + 1, layout.message - 1) == 0;
}

/*
 * The sender doesn't wait for its last change of a marker, and may end in the middle of a chunk: a
 * message may belong to the next filling. It is whole in any case.
 */
static void compare_message(uint32_t index, uint64_t offset, const uint8_t *bytes, uint64_t filled)
{
	uint8_t expected = pattern_of(filled);

	if (is_filled_with(bytes, expected) || is_filled_with(bytes, pattern_of(filled + 1)))
		return;
	for (uint64_t i = 0; i < layout.message; i++)
		if (bytes[i] != expected)
			differs(index, offset + i, expected, bytes[i]);
}

static void compare_chunk(uint32_t index, uint64_t filled, uint8_t *bytes)
{
	must(cuMemcpyDtoH_v2(bytes, layout.ring + index * layout.chunk, layout.chunk), "a chunk");
	for (uint64_t at = 0; at < layout.chunk; at += layout.message)
		compare_message(index, at, bytes + at, filled);
	found.chunks++;
	found.bytes += layout.chunk;
}

static void spoil_a_byte(void)
{
	const char *wanted = getenv("PERFTEST_SPOIL");
	const uint8_t byte = 0xee;

	if (wanted && *wanted)
		must(cuMemcpyHtoD_v2(layout.ring + layout.message / 2, &byte, 1), "a byte");
}

/* ---- what perftest calls -------------------------------------------------------------------- */

EXPORT int validation_init(void *buffer, uint64_t markers_offset, uint64_t ring_offset,
			   uint64_t message, uint32_t messages, uint32_t queue_pairs,
			   uint32_t chunks, int mode, int device, int debug)
{
	(void)mode, (void)device, (void)debug;
	layout.markers = (uintptr_t)buffer + markers_offset;
	layout.ring = (uintptr_t)buffer + ring_offset;
	layout.message = message;
	layout.chunk = message * messages;
	layout.queue_pairs = queue_pairs;
	layout.chunks = chunks;
	return 0;
}

EXPORT int validation_start(void *parameters, int blocks, int threads)
{
	(void)parameters, (void)blocks, (void)threads;
	memset(&found, 0, sizeof(found));
	return 0;
}

EXPORT int validation_stop(void)
{
	uint32_t all = layout.queue_pairs * layout.chunks;
	uint64_t *markers = calloc(all, sizeof(*markers));
	uint8_t *bytes = malloc(layout.chunk);

	must(markers && bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, "memory");
	spoil_a_byte();
	must(cuMemcpyDtoH_v2(markers, layout.markers, all * sizeof(*markers)), "the markers");
	for (uint32_t i = 0; i < all; i++)
		if (markers[i])
			compare_chunk(i, markers[i], bytes);
	free(markers);
	free(bytes);
	return 0;
}

EXPORT int validation_destroy(void)
{
	return 0;
}

EXPORT int validation_get_stats(uint64_t *chunks, uint64_t *bytes, uint64_t *errors,
				uint64_t *markers_scanned, uint64_t *markers_hit, uint64_t *skipped,
				uint64_t *overwritten, uint64_t *retried, uint64_t *dropped,
				uint64_t *stale)
{
	*chunks = found.chunks;
	*bytes = found.bytes;
	*errors = found.errors;
	/* Numbers of a plugin that compares while messages arrive. */
	*markers_scanned = *markers_hit = *skipped = 0;
	*overwritten = *retried = *dropped = *stale = 0;
	return 0;
}

EXPORT int validation_get_error(uint32_t *queue_pair, uint32_t *chunk, uint64_t *offset,
				uint8_t *expected, uint8_t *actual)
{
	*queue_pair = found.queue_pair;
	*chunk = found.chunk;
	*offset = found.offset;
	*expected = found.expected;
	*actual = found.actual;
	return 0;
}
