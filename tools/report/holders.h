/* SPDX-License-Identifier: MIT */
/*
 * Holders of freed memory that a trace shows: registrations that the program held, and dma-bufs
 * that the program, or middleware in it, had exported itself.
 */
#ifndef HOLDERS_H
#define HOLDERS_H

#include "tools/report/answers.h"
#include "tools/trace/reader.h"
#include "tools/trace/regions.h"

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

/*
 * What became of a registration that the program had when its memory was freed; the worst first.
 * CURED: it ended with the free, and its address was kept from reuse while the program held it.
 */
enum fate {
	FATE_ESCAPED,	 /* it ended, but somebody else had got the address */
	FATE_DROPPED,	 /* CURED, but the address was given back before */
	FATE_STILL_HELD, /* CURED, and held when the process ended */
	FATE_KEPT,
	FATE_REVOKED, /* it ended, and the address may be used again */
	FATE_ORDERED, /* freed in stream order */
	FATE_CURED,
	FATES
};

struct registration {
	uint32_t file, tid;
	uint32_t made_by, freed_by; /* stacks; 0: unknown */
	uint64_t ts, addr, size;
	uint32_t object; /* its number */
	uint32_t next;	 /* another one of the same memory: its index + 1; or 0 */
	enum fate fate;
	bool is_over; /* CURED, and not held any more */
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
	struct registration *registrations;
	unsigned registration_count, registration_capacity;
	unsigned registration_turn; /* the list is full: which one may make place next */
	uint64_t registrations_all; /* including those not listed */
	struct regions freed;	    /* memory under registrations; the key's number is 0 */
	struct consumer *consumers;
	unsigned consumer_count, consumer_capacity;
	struct answers *answers;
};

void holders_count(struct holders *holders, const struct event *event);
/* After the last event: finds the exports of outlived dma-bufs, and what is held at the end. */
void holders_match(struct holders *holders, const struct reader *reader);
void holders_free(struct holders *holders);

/* Prints their parts of the report, with lists of up to `max` lines. */
void holders_print(const struct holders *holders, const struct reader *reader, unsigned max);

/* registrations.c: the same for registrations that the program had. */
void registrations_count(struct holders *holders, const struct event *event);
void registrations_match(struct holders *holders, const struct reader *reader);
void registrations_print(const struct holders *holders, const struct reader *reader, unsigned max);

/*
 * Whether an event ends a registration that the free of its memory had kept, as its block is
 * retired.
 */
bool registrations_cured(struct holders *holders, const struct event *event);
/* Then it does not count as held; nor, with its first one, does the region. */
void holders_cured(struct holders *holders, const struct event *event, bool first);

/* What became of it: "kept", "open" and so on. */
const char *registration_fate(const struct registration *registration);
const char *outlived_state(const struct outlived *outlived);

/* The code that a stack's caller is in, its library first. */
char *put_maker(char *at, const struct trace_file *file, uint32_t stack);

#endif
