// SPDX-License-Identifier: MIT
/*
 * pack TRACE >INPUT: turns a trace into an input of fuzz_trace.c, without the zeroes at the end of
 * each unit.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cache/trace/format.h"

static unsigned char unit[PDN_TRACE_UNIT];

static size_t without_zeroes(const unsigned char *from, size_t bytes)
{
	while (bytes && !from[bytes - 1])
		bytes--;
	return bytes;
}

static void put(const unsigned char *from, size_t bytes)
{
	size_t length = without_zeroes(from, bytes);

	/* The length has 2 bytes, so a full unit loses its last word, which is unused. */
	if (length > 65535)
		length = 65535;
	putchar((int)(length & 0xff));
	putchar((int)(length >> 8));
	if (length)
		fwrite(from, length, 1, stdout);
}

int main(int argc, char **argv)
{
	FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;

	if (!file) {
		perror(argc == 2 ? argv[1] : "usage: pack TRACE");
		return 2;
	}
	fwrite("\1\0\0", 3, 1, stdout);
	for (unsigned i = 0; fread(unit, sizeof(unit), 1, file) == 1; i++) {
		if (i == 0) {
			put(unit, PDN_TRACE_HEADER_BYTES);
			put(unit + PDN_TRACE_HEADER_BYTES, sizeof(unit) - PDN_TRACE_HEADER_BYTES);
		} else {
			put(unit, sizeof(unit));
		}
	}
	fclose(file);
	return 0;
}
