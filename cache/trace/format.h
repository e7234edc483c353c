/* SPDX-License-Identifier: MIT */
/*
 * The trace file (.pdt), version 1.2: docs/internals/trace-format.md in C. Shared by the writer and
 * the readers (tools/). Everything is little-endian and aligned to 8 bytes; a part that is not
 * written yet is zero.
 *
 * A file consists of units of 64 KiB. Unit 0 is the header and the information about the process.
 * Threads claim all others, one or several at a time, as chunks. A chunk of events belongs to one
 * thread at a time, and only that thread writes there. A record is complete when its first word is
 * not zero: that word is stored last, so that a killed process leaves only complete records.
 */
#ifndef PDN_TRACE_FORMAT_H
#define PDN_TRACE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "cache/base/environment/event.h"

#define PDN_TRACE_MAGIC	       "\x89PDT\r\n\x1a\n"
#define PDN_TRACE_MAJOR	       1
#define PDN_TRACE_MINOR	       2
#define PDN_TRACE_UNIT	       65536u
#define PDN_TRACE_MAX_UNITS    64u /* of one chunk */
#define PDN_TRACE_HEADER_BYTES 4096u

/* The same moment on three clocks: the trace's own, and CLOCK_MONOTONIC and _REALTIME in ns. */
struct pdn_trace_clock {
	uint64_t ticks, monotonic, realtime;
};

struct pdn_trace_header {
	char magic[8];
	uint16_t major, minor;
	uint32_t header_bytes; /* information records begin here */
	uint32_t unit;	       /* PDN_TRACE_UNIT */
	uint32_t pid, ppid;
	uint32_t flags;	     /* PDN_TRACE_TICKS_ARE_NS */
	uint64_t event_mask; /* bits 1 << enum pdn_event: the events to be written */
	struct pdn_trace_clock begin;
	struct pdn_trace_clock end; /* zero until the process has ended in order */
	uint64_t units;		    /* claimed so far, unit 0 included */
	uint64_t lost;		    /* lost events that no counters slot has counted */
	uint64_t forked_from; /* pid of the traced process that this one was forked from; or 0 */
};
#define PDN_TRACE_TICKS_ARE_NS 1u /* ticks are CLOCK_MONOTONIC's nanoseconds */

/* Information about the process: 8 bytes, then `length` bytes, padded with zeroes to 8. */
struct pdn_trace_info {
	uint32_t length;
	uint16_t flags;
	uint16_t kind; /* stored last; 0: the end */
};
enum pdn_trace_info_kind {
	PDN_INFO_VERSION = 1,	  /* of libpindown.so, text */
	PDN_INFO_COMMAND = 2,	  /* argv, each with its final NUL */
	PDN_INFO_ENVIRONMENT = 3, /* PINDOWN* variables, NAME=value, each with its final NUL */
	PDN_INFO_HOST = 4,
	PDN_INFO_PROGRAM = 5,	/* the executable's path */
	PDN_INFO_DIRECTORY = 6, /* the working directory when the trace began */
	PDN_INFO_DISTRUST = 8, /* text: why every hit is checked from some time on; may come late */
	PDN_INFO_CALLS = 7,    /* call names from number 0, each with its final NUL */
};
#define PDN_INFO_CUT 1u /* only its beginning fitted */

/* At the start of a chunk. */
struct pdn_trace_chunk {
	uint32_t magic;	   /* PDN_CHUNK_MAGIC, stored last */
	uint16_t kind;	   /* enum pdn_chunk_kind; others are skipped */
	uint16_t units;	   /* 1 to PDN_TRACE_MAX_UNITS, this one included */
	uint32_t stream;   /* chunks of one stream follow each other in order of `sequence` */
	uint32_t sequence; /* from 0 */
	uint32_t tid;	   /* the thread that claimed it */
	uint32_t reserved;
	uint64_t base; /* ticks from which the first records' `when` counts */
	struct pdn_trace_clock clock;
	uint64_t reserved2;
};
#define PDN_CHUNK_MAGIC 0x4b434450u /* "PDCK" */
enum pdn_chunk_kind { PDN_CHUNK_EVENTS = 1, PDN_CHUNK_COUNTERS = 2 };

/* Slots follow the header of a PDN_CHUNK_COUNTERS, each written by one thread at a time. */
struct pdn_trace_slot {
	uint64_t hits, misses, tag_checks, lost_events, spare[4]; /* struct pdn_counters */
	uint64_t told; /* how many of the lost events the stream's PDN_RECORD_LOST records have */
	uint32_t tid;  /* the last thread that counted here; 0: free */
	uint32_t reserved[13];
};
#define PDN_SLOT_OF_MANY 0xffffffffu /* tid: the sum of the threads without a slot */

/*
 * A record's first word:  bits 0-7   its length in words of 8 bytes, this one included
 *                         bits 8-15  enum pdn_record
 *                         bits 16-31 by type
 *                         bits 32-63 when it ended, in ticks after the base
 * and its second:         bits 0-31  its duration, in ticks
 *                         bits 32-47 PDN_HAS_...
 *                         bits 48-63 by type
 * Then one word for each bit of PDN_HAS, from the lowest up, then, for an error, the text.
 * A reader skips types, and words of PDN_HAS bits, that it does not know.
 */
enum pdn_record {
	PDN_RECORD_CALL = 1,   /* first: call number; second: CUresult */
	PDN_RECORD_REGION = 2, /* first: enum pdn_event; second: PDN_TRACE_... flags */
	PDN_RECORD_ERROR = 3,  /* second: length of the text in bytes */
	/* These three have no second word as above. */
	PDN_RECORD_CLOCK = 4,  /* words: new base, then a struct pdn_trace_clock */
	PDN_RECORD_THREAD = 5, /* word: the tid of the thread that wrote what follows */
	PDN_RECORD_LOST = 6,   /* word: how many events were lost here */
	/* Since 1.1; neither has a second word as above. */
	PDN_RECORD_STACK = 7,  /* first: how many frames; words: its number, the frames */
	PDN_RECORD_MODULE = 8, /* first: its number; words: see struct pdn_trace_module */
	/*
	 * Since 1.1, with a second word: an event with a name. First: enum pdn_event; second: bits
	 * 48-55 PDN_TRACE_... flags, bits 56-63 length of the name in bytes.
	 */
	PDN_RECORD_NOTE = 9,
};

#define PDN_HAS_ADDR	 0x001u
#define PDN_HAS_SIZE	 0x002u
#define PDN_HAS_RESULT	 0x004u /* a result that does not fit the second word, signed */
#define PDN_HAS_DURATION 0x008u /* a duration that does not fit the second word */
#define PDN_HAS_EXTRA	 0x010u
/* Bits 0-31 number, 32-47 enum pindown_reason, 48-63 device, signed. */
#define PDN_HAS_REGION	  0x020u
#define PDN_HAS_PIN_ADDR  0x040u
#define PDN_HAS_PIN_SIZE  0x080u
#define PDN_HAS_BUFFER_ID 0x100u
#define PDN_HAS_CONTEXT	  0x200u
#define PDN_HAS_STACK	  0x400u  /* a stack's number; since 1.1 */
#define PDN_HAS_KEY	  0x800u  /* of a note: the second word of an object's key */
#define PDN_HAS_NUMBER	  0x1000u /* of a note: an object's or a dma-buf's */
#define PDN_HAS_ORIGIN	  0x2000u /* of a note: the stack that made the registration */

/*
 * A frame has a module's number in its upper bits (0: none, as for code made at run time) and the
 * return address below them: an address of the module's file or, without a module, of the process.
 */
#define PDN_FRAME_OFFSET_BITS 48
#define PDN_TRACE_MAX_FRAMES  64u

/* Follows the first word of a PDN_RECORD_MODULE; then come build id and path, each padded. */
struct pdn_trace_module {
	uint64_t begin, end; /* where it was */
	uint64_t bias;	     /* address - bias: address in the file */
	uint16_t id_length, path_length;
	uint32_t reserved;
};

#define PDN_RECORD_MAX_WORDS 255u
#define PDN_ERROR_MAX_TEXT   200u

_Static_assert(sizeof(struct pdn_trace_header) <= PDN_TRACE_HEADER_BYTES, "header");
_Static_assert(sizeof(struct pdn_trace_chunk) == 64, "chunk header");
_Static_assert(sizeof(struct pdn_trace_slot) == 128, "slot");
_Static_assert(sizeof(struct pdn_trace_info) == 8, "info");
_Static_assert(sizeof(struct pdn_trace_module) == 32, "module");

#endif
