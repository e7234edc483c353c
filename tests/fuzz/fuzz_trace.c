// SPDX-License-Identifier: MIT
/*
 * For libFuzzer: arbitrary bytes as a trace, for every command that reads one. A trace consists
 * mostly of zeroes, with which a fuzzer can't work; so an input has only the beginnings of its
 * parts:
 *
 *	byte 0		0: the input is the file. Else
 *	2 bytes		how many bytes of the file are missing at its end
 *	then pieces:	2 bytes length, and that many bytes, to be put in turn at byte 0 (header),
 *			at 4096 (information) and at the begin of each further unit
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_trace.h"
#include "tools/base/out.h"
#include "cache/trace/format.h"
#include "tools/command.h"

enum { MAX_UNITS = 64 };

static unsigned char image[MAX_UNITS * PDN_TRACE_UNIT];
static size_t dirty; /* bytes that may be other than zero */

static size_t where_to(unsigned piece)
{
	return piece == 0 ? 0 : piece == 1 ? PDN_TRACE_HEADER_BYTES : (piece - 1) * PDN_TRACE_UNIT;
}

/* The length of the file. */
static size_t unpack(const unsigned char *data, size_t size)
{
	size_t cut = data[1] | data[2] << 8, length = PDN_TRACE_UNIT;

	memset(image, 0, dirty);
	data += 3;
	size -= 3;
	for (unsigned piece = 0; size > 2 && piece < MAX_UNITS; piece++) {
		size_t bytes = data[0] | data[1] << 8, at = where_to(piece);

		data += 2;
		size -= 2;
		if (bytes > size)
			bytes = size;
		if (bytes > PDN_TRACE_UNIT - at % PDN_TRACE_UNIT)
			bytes = PDN_TRACE_UNIT - at % PDN_TRACE_UNIT;
		memcpy(image + at, data, bytes);
		data += bytes;
		size -= bytes;
		length = (at / PDN_TRACE_UNIT + 1) * PDN_TRACE_UNIT;
	}
	dirty = length;
	return length > cut ? length - cut : 0;
}

/* The command as it is typed, with up to two words before the trace's name. */
static void run(const struct command *command, char *first, char *second, char *name)
{
	char *words[5] = {(char *)command->name};
	int count = 1;

	if (first)
		words[count++] = first;
	if (second)
		words[count++] = second;
	words[count++] = name;
	command_start(command, count, words);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static char stacks[] = "--stacks", json[] = "--json", chrome[] = "--chrome",
		    all[] = "--all", html[] = "--html=/dev/null", diff[] = "--diff";
	static int fd = -1;
	static char name[40];

	if (fd < 0) {
		fd = memfd_create("trace", MFD_CLOEXEC);
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		out.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	}
	if (size < 3)
		return 0;
	if (data[0]) {
		size = unpack(data, size);
		data = image;
	} else {
		data++;
		size--;
	}
	if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	run(&command_dump, size & 1 ? stacks : NULL, NULL, name);
	run(&command_dump, json, size & 1 ? stacks : NULL, name);
	run(&command_dump, chrome, NULL, name);
	run(&command_report, all, html, name);
	run(&command_report, diff, name, name);
	run(&command_replay, NULL, NULL, name);
	return 0;
}
