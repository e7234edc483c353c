/* SPDX-License-Identifier: MIT */
/*
 * One trace file, opened for reading: its header, its chunks and its clock.
 *
 * A trace may come from anywhere: everything in it is checked before it is used, and the memory
 * that reading takes depends on the file's length, not on its content. The file is read with pread,
 * not mapped, so that truncating it meanwhile causes no SIGBUS. Damage is reported in one line,
 * with its offset.
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
	uint32_t seen;	 /* events before this byte were already reported */
	uint32_t stream, sequence, tid;
	uint64_t base; /* ticks */
};

/* Ticks become nanoseconds by straight lines between moments at which both were read. */
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

/* A library or program that was mapped in the process. */
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
	bool left_out;	/* it is of an older run */
	int fd;
	uint64_t device, inode;		/* the same for all names of one file */
	uint64_t bytes, bytes_at_first; /* `bytes` shrinks when the file is cut meanwhile */
	struct pdn_trace_header header;
	struct journal *journal; /* parts not yet in the file; NULL: there are none */
	/* from the information records; never NULL */
	const char *version, *host, *program, *directory;
	const char *distrust;		   /* why every hit is checked; "": hits are trusted */
	const char *command, *environment; /* lists: each text with its final NUL */
	size_t command_bytes, environment_bytes;
	const char **calls;
	unsigned call_count;
	char *info;	      /* memory of all these texts */
	struct chunk *chunks; /* sorted by stream and sequence */
	unsigned chunk_count, chunk_capacity;
	uint32_t largest_chunk; /* maximum of chunk.used */
	struct moment *moments;
	unsigned moment_count, moment_capacity;
	int64_t rank;	   /* trace_rank(), or NO_RANK */
	uint64_t first_ns; /* CLOCK_MONOTONIC at its start */
	int64_t shift;	   /* added to its ns, to compare them with other files' */
	struct counters counters;
	struct trace_stack *stacks; /* sorted by number */
	unsigned stack_count, stack_capacity;
	struct trace_module *modules; /* sorted by number */
	unsigned module_count, module_capacity;
	uint64_t lost_untold; /* lost events that no record reports */
	uint64_t lost_told;   /* of these: reported when the file was last read */
	uint64_t records;     /* complete records that are events */
	uint64_t last_ticks;
	bool damaged; /* some part was skipped and reported */
	bool cut;     /* shorter than its header says */
};

/* Reads everything but the events. NULL, after one line on standard error, when it fails. */
struct trace_file *trace_file_open(const char *name);
void trace_file_close(struct trace_file *file);

/*
 * Whether the command may write its output to a file of this name; false, after one line that
 * begins with the option, when it is a trace or has a trace's name.
 */
bool trace_file_may_replace(const char *option, const char *name);

/* Reads bytes at an offset; false when the file does not have them, or no longer. */
bool trace_file_read(const struct trace_file *file, void *to, size_t bytes, uint64_t offset);

/*
 * Call it when bytes can't be read that were there when the file was opened. Either the file has
 * been cut since, which reader_note() then says, or the read failed, which is reported as damage.
 */
void trace_file_unread(struct trace_file *file, uint64_t offset);

/* Prints one line about damage at an offset, but only the first few lines of each file. */
void trace_file_bad(struct trace_file *file, uint64_t offset, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Adds a moment to the clock. After the last one, trace_file_clock() makes the clock usable. */
void trace_file_moment(struct trace_file *file, const struct pdn_trace_clock *clock);
void trace_file_clock(struct trace_file *file);

/* CLOCK_MONOTONIC in ns at a tick. *hint, 0 at first, speeds up calls for nearby ticks. */
uint64_t trace_file_ns(const struct trace_file *file, uint64_t ticks, unsigned *hint);

/* The frames of a stack, innermost first; returns how many: at most PDN_TRACE_MAX_FRAMES. */
unsigned trace_file_stack(const struct trace_file *file, uint32_t number, uint64_t *frames);

/* NULL: no module has that number. */
const struct trace_module *trace_file_module(const struct trace_file *file, unsigned number);

/* For file.c: keeps the content of a stack or module record that record_check() accepted. */
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
