/* SPDX-License-Identifier: MIT */
/*
 * Traces made by hand from docs/internals/trace-format.md, without the writer: the same bytes each
 * time, and contents that today's writer does not write. A tick is half a nanosecond.
 */
#ifndef MADE_TRACE_H
#define MADE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "cache/pindown.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/format.h"

struct made {
	unsigned char *bytes; /* a whole number of units */
	size_t size, capacity;
	size_t chunk; /* the offset of the chunk that takes the next record */
	size_t at;    /* where the next record goes */
	uint64_t base;
	uint32_t pid;
	uint32_t stack; /* of the events that follow; 0: none */
};

enum { TICKS_IN_NS = 2, BEGAN_NS = 5000000 /* CLOCK_MONOTONIC when the first trace began */ };

void made_begin(struct made *made, uint32_t pid, uint64_t began_ns);
void made_info(struct made *made, enum pdn_trace_info_kind kind, const void *data, size_t bytes);
void made_counters(struct made *made, uint64_t hits, uint64_t misses, uint64_t lost, uint64_t told);
void made_chunk(struct made *made, uint32_t stream, uint32_t sequence, uint32_t tid, uint64_t ns);
void made_word(struct made *made, uint64_t word);

/* Times are CLOCK_MONOTONIC in ns. `end` decides the order of events. */
void made_call(struct made *made, unsigned call, uint64_t addr, uint64_t size, int64_t result,
	       uint64_t extra, uint64_t begin, uint64_t end);
void made_region(struct made *made, enum pdn_event event, const struct pdn_trace_region *what,
		 uint64_t begin, uint64_t end);
/* The name has at most 16 characters. */
void made_note(struct made *made, enum pdn_event event, const struct pdn_trace_note *what,
	       uint64_t at);
void made_error(struct made *made, const char *text, int64_t result, uint64_t end);
void made_clock(struct made *made, uint64_t base_ns);
void made_thread(struct made *made, uint32_t tid);
void made_lost(struct made *made, uint64_t count);
void made_stack(struct made *made, uint32_t number, const uint64_t *frames, unsigned count);
void made_module(struct made *made, unsigned number, uint64_t begin, const char *path);
void made_end(struct made *made, uint64_t ns);

/* A trace in which nothing is wrong. */
void made_good(struct made *made);
/* What a program allocates, maps and does not free; no pins. */
void made_unfreed(struct made *made);
/* Two threads pin at the same time; the one that began first ends last. */
void made_crossed(struct made *made);
/*
 * More than a report shows of each: regions, consumers, call sites; and a registration of memory
 * that was freed.
 */
void made_many(struct made *made);
/*
 * Memory that is freed under registrations, by kind: c, cured; s, two small buffers in a block,
 * which are cured behind the second free; e, the address escapes, E, after a while; d, it is
 * dropped; h, held at the end; k, kept; r, revoked; x, a dma-buf of it is open. A last letter l:
 * the trace has no end mark.
 */
void made_retired(struct made *made, const char *kinds);
/* One of them, the n-th: its region has number n + 1; s takes two. */
void made_fate(struct made *made, char kind, uint32_t n, uint64_t at);
/* made_good() of a process that is still running. */
void made_live(struct made *made, uint32_t pid);

/* A process of a job of many; see made_rank() for which of them stand out. */
void made_rank(struct made *made, unsigned rank);

/* A bit of everything, for one of two processes (0 or 1). */
void made_story(struct made *made, unsigned process);

/*
 * One kind of event again and again, until the file has this size. Kinds: pins, hits, stacks,
 * early, threads, calls.
 */
void made_much(struct made *made, const char *what, size_t bytes);

void made_write(const struct made *made, const char *path);
void made_free(struct made *made);

#endif
