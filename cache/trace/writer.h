/* SPDX-License-Identifier: MIT */
/*
 * The trace writer, as the library calls it. The file's format is in format.h and
 * docs/trace-format.md; the readers are in tools/.
 *
 * Any thread may call any of these functions at any time. None takes a lock, allocates with malloc,
 * changes errno, or makes a watched call. An event that finds no room is counted as lost.
 */
#ifndef PDN_WRITER_H
#define PDN_WRITER_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/event.h"

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
 * A cheap time stamp: the processor's counter if it is steady, else nanoseconds. That is decided
 * when the trace is opened, so stamps are valid only while tracing. Relaxed: a thread that traces
 * has seen the mask (pdn_tracing()) or the trace's state.
 */
extern bool pdn_ticks_steady;
uint64_t pdn_ticks_ns(void); /* CLOCK_MONOTONIC */

static inline uint64_t pdn_ticks(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(__atomic_load_n(&pdn_ticks_steady, __ATOMIC_RELAXED), 1))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	if (__builtin_expect(__atomic_load_n(&pdn_ticks_steady, __ATOMIC_RELAXED), 1)) {
		uint64_t ticks;

		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
		return ticks;
	}
#endif
	return pdn_ticks_ns();
}

/*
 * Sets the names of the watched calls, by call number (below 65536), before the first call is
 * traced: each name with its final NUL, and an empty one behind the last. The text is kept, not
 * copied.
 */
void pdn_trace_call_names(const char *names);

/*
 * A watched call. extra: another value that depends on the call (stream, context, count, ...), or
 * 0. begin: pdn_ticks() before the call; 0: it was not taken.
 */
void pdn_trace_call(unsigned call, uint64_t addr, uint64_t size, int result, uint64_t begin,
		    uint64_t end, uint64_t extra);

/* The rank of this process in its job, as its environment has it, or PDN_NO_RANK (rank.h). */
int32_t pdn_trace_rank(void);

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

/* A stack of one frame, for an event that names its caller even without stacks; 0: unknown. */
uint32_t pdn_trace_caller(const void *caller);

/*
 * The number of the current stack: all of it where stacks are wanted. Where they are not, it is 0,
 * or with `few` the innermost frames.
 */
uint32_t pdn_trace_stack(bool few);

/* For `origin`: of a stack's number, which is returned as it is, or of a return address. */
uint32_t pdn_trace_origin(uint64_t number_or_address);
bool pdn_trace_is_address(uint64_t number_or_address);

/*
 * Writes why every hit is checked from now on, into this process's trace and those of its children,
 * also if they are opened later. The text is kept, not copied.
 */
void pdn_trace_distrust(const char *why);

/* Something failed; the text is copied (at most 200 bytes). */
void pdn_trace_error(const char *text, uint64_t addr, uint64_t size, int result);

/*
 * Open the trace file if the configuration asks for one; once, at the first use of the driver. From
 * then on pdn_trace_mask says which events are written. Concurrent calls wait for the first.
 */
void pdn_trace_open(void);

/*
 * In a forked child: leaves the parent's file. The child's own is opened at the first event, unless
 * the child is off: then there is none. All threads' counters are back in their records, and zero.
 */
void pdn_trace_fork_child(void);

/* The path of the file being written, or NULL. Don't call it while the trace is being opened. */
const char *pdn_trace_file_name(void);

/*
 * For call stacks: a module is about to be unloaded, which makes knowledge about code addresses
 * stale; a module is about to be loaded, perhaps at the place of an unloaded one.
 */
void pdn_stacks_unloading(void);
void pdn_stacks_loading(void);

/*
 * At exit: write that the process ended in order, and the counters that are not in the file yet.
 * Later events are still written.
 */
void pdn_trace_close(void);

#endif
