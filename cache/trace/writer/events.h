/* SPDX-License-Identifier: MIT */
/*
 * The events of the trace, as the library records them.
 *
 * Any thread may call any of these functions at any time. None takes a lock, allocates with malloc,
 * changes errno, or makes a watched call. An event that finds no room is counted as lost.
 */
#ifndef PDN_TRACE_EVENTS_H
#define PDN_TRACE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/environment/event.h"
#include "cache/trace/writer/clock.h"

/*
 * Bit (1 << event) is set if the event is to be written. 0 when there is no trace. Stored with
 * release when the trace is open. Acquire: a thread that sees a bit also sees the chosen clock and
 * the depth of stacks.
 */
extern __attribute__((visibility("hidden"))) uint32_t pdn_trace_mask;

static inline bool pdn_tracing(enum pdn_event event)
{
	return __builtin_expect(__atomic_load_n(&pdn_trace_mask, __ATOMIC_ACQUIRE) & (1u << event),
				0);
}

/*
 * A watched call. extra: another value that depends on the call (stream, context, count, ...), or
 * 0. begin: pdn_ticks() before the call; 0: it was not taken.
 */
void pdn_trace_call(unsigned call, uint64_t addr, uint64_t size, int result, uint64_t begin,
		    uint64_t end, uint64_t extra);

/* An event about a region. */
struct pdn_trace_region {
	uint64_t addr, size; /* the allocation; for a hit: the range of the get */
	uint64_t pin_addr, pin_size;
	uint64_t buffer_id;
	uint64_t context;
	uint32_t region; /* region number, unique among the regions pinned now */
	int32_t device;
	int32_t result;	 /* enum pindown_result, or the driver's */
	uint16_t reason; /* enum pindown_reason */
	uint16_t flags;	 /* PDN_TRACE_IN_USE ... */
};
void pdn_trace_region(enum pdn_event event, const struct pdn_trace_region *what, uint64_t begin,
		      uint64_t end);

/* An event about something else that has a name: a consumer's object, or the program's dma-buf. */
struct pdn_trace_note {
	uint64_t addr, size;
	uint64_t extra; /* the key's owner, a count or a descriptor, depending on the event */
	uint64_t key;	/* the second word of an object's key */
	uint64_t pin_size, buffer_id;
	uint32_t region; /* 0: none */
	uint32_t number; /* of the object, or of the dma-buf */
	uint32_t stack;	 /* pdn_trace_caller(); 0: the current stack, if stacks are wanted */
	uint32_t origin; /* the stack that has made the registration; 0: unknown */
	int32_t device;
	int32_t result;
	uint16_t reason, flags; /* as of regions; flags of at most 8 bits */
	const char *name;	/* at most 200 bytes; NULL: none */
};
void pdn_trace_note(enum pdn_event event, const struct pdn_trace_note *what, uint64_t begin,
		    uint64_t end);

/* Something failed; the text is copied (at most 200 bytes). */
void pdn_trace_error(const char *text, uint64_t addr, uint64_t size, int result);

#endif
