/* SPDX-License-Identifier: MIT */
/*
 * Holders of freed memory that a trace shows: registrations that the program held, and dma-bufs
 * that the program, or middleware in it, had exported itself.
 */
#ifndef HOLDERS_H
#define HOLDERS_H

#include "tools/trace/reader.h"

/* A dma-buf that the program exported. */
struct export
{
	uint32_t file, number; /* these two are its key */
	uint32_t tid, stack;
	uint64_t ts, addr, size;
};

/* A dma-buf that outlived its memory. */
struct outlived {
	struct export made; /* ts 0 and tid 0: the export is not in the trace */
	uint64_t ts, addr, size, fd;
	uint32_t tid;
	bool open, imported;
};

/* A registration that the program had when its memory was freed. */
struct registration {
	uint32_t file, tid;
	uint32_t made_by, freed_by; /* stacks; 0: unknown */
	uint64_t ts, addr, size;
	bool ordered, revoked;
};

struct consumer {
	char name[PDN_ERROR_MAX_TEXT + 1];
	uint64_t made, failed, destroyed, revoked;
	uint64_t held, held_regions, held_bytes; /* at the end of their memory */
};

enum { MAX_OUTLIVED = 10000, MAX_CONSUMERS = 200 };

struct holders {
	struct export *exports;
	unsigned export_count, export_capacity;
	struct outlived *outlived;
	unsigned outlived_count, outlived_capacity;
	uint64_t outlived_all, outlived_bytes; /* including those not listed */
	uint64_t outlived_ordered;	       /* not included above: freed in stream order */
	struct registration *registrations;
	unsigned registration_count, registration_capacity;
	uint64_t registrations_all; /* including those not listed */
	uint64_t registrations_revoked, registrations_ordered;
	struct consumer *consumers;
	unsigned consumer_count, consumer_capacity;
	uint64_t held, held_bytes;
	uint64_t held_ordered; /* not included above: freed in stream order */
};

void holders_count(struct holders *holders, const struct event *event);
/* Finds the exports of outlived dma-bufs; call it after the last event. */
void holders_match(struct holders *holders);
void holders_free(struct holders *holders);

/* Prints their parts of the report, with lists of up to `max` lines. */
void holders_print(const struct holders *holders, const struct reader *reader, unsigned max);

/* registrations.c: the same for registrations that the program had. */
void registrations_count(struct holders *holders, const struct event *event);
void registrations_print(const struct holders *holders, const struct reader *reader, unsigned max);

/* What became of it: "kept", "open" and so on. */
const char *registration_fate(const struct registration *registration);
const char *outlived_state(const struct outlived *outlived);

/* The code that a stack's caller is in, its library first. */
char *put_maker(char *at, const struct trace_file *file, uint32_t stack);

#endif
