/* SPDX-License-Identifier: MIT */
/*
 * One trace file, opened for reading: what its header says, where its chunks are, how its clock
 * goes.
 *
 * A trace is a file from anywhere: nothing in it is believed before it has been checked, and memory
 * depends on the file's length, not on what it says. It is read with pread, not mapped, so that a
 * file that is cut short meanwhile is no fault. Offsets of what is wrong are told in one line each.
 */
#ifndef TRACE_FILE_H
#define TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/trace/format.h"

/* A chunk of events. */
struct chunk {
	uint64_t offset; /* in the file, of its header */
	uint32_t used;	 /* bytes up to the end of its last complete record */
	uint32_t seen;	 /* what lies before was told already: not events to come */
	uint32_t stream, sequence, tid;
	uint64_t base; /* ticks */
};

/* From ticks to nanoseconds: straight lines between moments at which both were read. */
struct moment {
	uint64_t ticks, ns;
	uint64_t slope; /* ns in a tick, times 2^SLOPE_SHIFT, from here to the next */
};
enum { SLOPE_SHIFT = 56 };

struct counters {
	uint64_t hits, misses, tag_checks, lost;
};

/* A call stack: where in the file its frames are. */
struct trace_stack {
	uint32_t number, frames;
	uint64_t offset;
};

/* A file that code came from. */
struct trace_module {
	uint64_t begin, end, bias; /* where it was in the process */
	unsigned number;
	unsigned id_length;
	unsigned char id[64]; /* build id */
	char *path;	      /* printable */
};

struct trace_file {
	const char *name;
	unsigned index; /* among the files of a reader */
	int fd;
	uint64_t bytes, bytes_at_first; /* fewer when it was cut while it was read */
	struct pd_trace_header header;
	struct journal *journal; /* what is not in the file yet; NULL: all is */
	/* from the information records; never NULL */
	const char *version, *host, *program, *directory;
	const char *distrust;		   /* why every hit is checked; "": not every one is */
	const char *command, *environment; /* lists: each text with its final NUL */
	size_t command_bytes, environment_bytes;
	const char **calls;
	unsigned call_count;
	char *info;	      /* holds all these */
	struct chunk *chunks; /* sorted by stream and sequence */
	unsigned chunk_count, chunk_capacity;
	uint32_t largest_chunk; /* the most that is used of one */
	struct moment *moments;
	unsigned moment_count, moment_capacity;
	uint64_t first_ns; /* CLOCK_MONOTONIC at its start */
	int64_t shift;	   /* what makes its nanoseconds comparable with those of the other files */
	struct counters counters;
	struct trace_stack *stacks; /* sorted by number */
	unsigned stack_count, stack_capacity;
	struct trace_module *modules; /* sorted by number */
	unsigned module_count, module_capacity;
	uint64_t lost_untold; /* lost events that no record in the file tells of */
	uint64_t lost_told;   /* of these: told when the file was looked at before */
	uint64_t records;     /* complete records that are events */
	uint64_t last_ticks;
	bool damaged; /* something was skipped, and told */
	bool cut;     /* shorter than its header says */
};

/* Reads everything but the events. NULL after one line on standard error. */
struct trace_file *trace_file_open(const char *name);
void trace_file_close(struct trace_file *file);

/* Bytes at an offset; false when the file does not have them (any longer). */
bool trace_file_read(const struct trace_file *file, void *to, size_t bytes, uint64_t offset);

/*
 * For who could not read what was there when the file was opened: it has been cut since, which its note
 * then says, or the disk is broken.
 */
void trace_file_unread(struct trace_file *file, uint64_t offset);

/* One line about what is wrong at an offset; only the first few of a file are printed. */
void trace_file_bad(struct trace_file *file, uint64_t offset, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A moment to be known to the clock; trace_file_clock() then makes it usable. */
void trace_file_moment(struct trace_file *file, const struct pd_trace_clock *clock);
void trace_file_clock(struct trace_file *file);

/* CLOCK_MONOTONIC in ns at a tick. *hint: 0 at first, speeds up neighbouring questions. */
uint64_t trace_file_ns(const struct trace_file *file, uint64_t ticks, unsigned *hint);

/* The frames of a stack, innermost first: at most PD_TRACE_MOST_FRAMES; how many there are. */
unsigned trace_file_stack(const struct trace_file *file, uint32_t number, uint64_t *frames);

/* NULL: none of that number. */
const struct trace_module *trace_file_module(const struct trace_file *file, unsigned number);

/* For file.c: what a record of a stack or a module says is kept; it was found good. */
void trace_file_take_stack(struct trace_file *file, const uint64_t *words, uint64_t offset);
void trace_file_take_module(struct trace_file *file, const uint64_t *words);
void trace_file_sort_stacks(struct trace_file *file);
void trace_file_free_stacks(struct trace_file *file);

/* The name of a call number, or NULL. */
static inline const char *trace_file_call(const struct trace_file *file, unsigned call)
{
	return call < file->call_count ? file->calls[call] : NULL;
}

#endif
