// SPDX-License-Identifier: MIT
/*
 * For libFuzzer: any bytes as a trace, through everything that reads one. A trace is mostly zeroes, of
 * which a fuzzer can make nothing; so an input is what lies at the beginnings of its parts:
 *
 *	byte 0		0: the input is the file. Else
 *	2 bytes		how many bytes of the file are missing at its end
 *	then pieces:	2 bytes length, and so many bytes, to be put in turn at byte 0 (the header),
 *			at 4096 (information) and at the begin of each further unit
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format.h"
#include "fuzz_trace.h"
#include "out.h"
#include "plot.h"
#include "reader.h"
#include "report.h"
#include "symbols.h"
#include "tally.h"

enum { MOST_UNITS = 64 };

static unsigned char image[MOST_UNITS * PD_TRACE_UNIT];
static size_t dirty; /* of it may not be zero */

static size_t where_to(unsigned piece)
{
	return piece == 0 ? 0 : piece == 1 ? PD_TRACE_HEADER_BYTES : (piece - 1) * PD_TRACE_UNIT;
}

/* The file's length. */
static size_t unpack(const unsigned char *data, size_t size)
{
	size_t cut = data[1] | data[2] << 8, length = PD_TRACE_UNIT;

	memset(image, 0, dirty);
	data += 3;
	size -= 3;
	for (unsigned piece = 0; size > 2 && piece < MOST_UNITS; piece++) {
		size_t bytes = data[0] | data[1] << 8, at = where_to(piece);

		data += 2;
		size -= 2;
		if (bytes > size)
			bytes = size;
		if (bytes > PD_TRACE_UNIT - at % PD_TRACE_UNIT)
			bytes = PD_TRACE_UNIT - at % PD_TRACE_UNIT;
		memcpy(image + at, data, bytes);
		data += bytes;
		size -= bytes;
		length = (at / PD_TRACE_UNIT + 1) * PD_TRACE_UNIT;
	}
	dirty = length;
	return length > cut ? length - cut : 0;
}

static void dump(char *name, const struct format *format)
{
	struct reader *reader = reader_open(&name, 1);
	struct event event;

	if (!reader)
		return;
	format->begin(reader);
	while (reader_next(reader, &event))
		format->event(&event);
	format->end(reader);
	symbols_free();
	reader_close(reader);
}

static void report(char *name)
{
	const struct report_wishes wishes = {.all = true};
	struct reader *reader = reader_open(&name, 1);
	struct tally *tally;

	if (!reader)
		return;
	tally = tally_make(reader, 60, 100);
	plot_bytes(tally->timeline, tally->columns, 8, tally->span);
	report_answers(tally);
	report_regions(reader, tally, &wishes);
	report_sites(tally, &wishes);
	report_diff(tally, tally);
	report_html("/dev/null", reader, tally);
	tally_free(tally, reader);
	symbols_free();
	reader_close(reader);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	static int fd = -1;
	static char name[40];

	if (fd < 0) {
		fd = memfd_create("trace", MFD_CLOEXEC);
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		out.fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
		out_begin(OUT_NEVER, true);
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
	format_stacks = size & 1;
	dump(name, &format_text);
	dump(name, &format_json);
	dump(name, &format_chrome);
	report(name);
	out_flush();
	return 0;
}
