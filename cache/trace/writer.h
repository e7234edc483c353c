/* SPDX-License-Identifier: MIT */
/*
 * The trace writer: what the library calls. The file's format is in format.h and
 * docs/trace-format.md; reading is tools/' business.
 *
 * Any thread may call any of these at any time; none takes a lock, allocates with malloc, changes
 * errno, or calls anything that is watched. An event that finds no room is counted as lost.
 */
#ifndef PD_TRACE_H
#define PD_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/base/event.h"

/*
 * Bit (1 << event) set: the event is to be written. 0 when there is no trace. Stored with release
 * when the trace is open; acquire: who sees a bit sees which clock was chosen, and how deep stacks
 * are to be.
 */
extern __attribute__((visibility("hidden"))) uint32_t pd_trace_mask;

static inline bool pd_tracing(enum pd_event event)
{
	return __builtin_expect(__atomic_load_n(&pd_trace_mask, __ATOMIC_ACQUIRE) & (1u << event),
				0);
}

/*
 * A time stamp, cheap: the processor's counter where it is steady, else nanoseconds. Which of the
 * two is settled when the trace is opened, so that stamps are for use while tracing only. Relaxed: who
 * traces has seen the mask (pd_tracing()) or the trace's state.
 */
extern bool pd_ticks_steady;
uint64_t pd_ticks_ns(void); /* CLOCK_MONOTONIC */

static inline uint64_t pd_ticks(void)
{
#if defined(__x86_64__)
	if (__builtin_expect(__atomic_load_n(&pd_ticks_steady, __ATOMIC_RELAXED), 1))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	if (__builtin_expect(__atomic_load_n(&pd_ticks_steady, __ATOMIC_RELAXED), 1)) {
		uint64_t ticks;

		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
		return ticks;
	}
#endif
	return pd_ticks_ns();
}

/*
 * The names of the watched calls, index = call number (below 65536); to be set before the first
 * call is traced. The array is kept, not copied.
 */
void pd_trace_call_names(const char *const *names, unsigned count);

/*
 * A watched call. extra: what else is worth having, per call (stream, context, count...), or 0.
 * begin: pd_ticks() before the call, 0 when it was not taken.
 */
void pd_trace_call(unsigned call, uint64_t addr, uint64_t size, int result, uint64_t begin,
		   uint64_t end, uint64_t extra);

/* An event about a region. */
struct pd_trace_region {
	uint64_t addr, size; /* the allocation; for a hit: what was asked for */
	uint64_t pin_addr, pin_size;
	uint64_t buffer_id;
	uint64_t context;
	uint32_t region; /* region number: no other region that is pinned now has it */
	int32_t device;
	int32_t result;	 /* enum pindown_result, or the driver's */
	uint16_t reason; /* enum pindown_reason */
	uint16_t flags;	 /* PD_TRACE_IN_USE ... */
};
void pd_trace_region(enum pd_event event, const struct pd_trace_region *what, uint64_t begin,
		     uint64_t end);

/* An event about something else that has a name: a consumer's object, or a dma-buf of the program's. */
struct pd_trace_note {
	uint64_t addr, size;
	uint64_t extra; /* the key's owner; how many; a descriptor: by event */
	uint64_t key;	/* its second word */
	uint64_t pin_size, buffer_id;
	uint32_t region; /* 0: none */
	uint32_t number; /* of the object, or of the dma-buf */
	uint32_t stack;	 /* who called, if that is known; else whatever is wanted of all events */
	int32_t device;
	int32_t result;
	uint16_t reason, flags; /* as of regions; flags of at most 8 bits */
	const char *name;	/* at most 200 bytes; NULL: none */
};
void pd_trace_note(enum pd_event event, const struct pd_trace_note *what, uint64_t begin,
		   uint64_t end);

/* A stack of one frame, for an event that is to tell who called it in any case; 0: can't be told. */
uint32_t pd_trace_caller(const void *caller);

/*
 * Every hit is checked from now on, and this is why: said in this process's trace, and in those of
 * its children, also if they are opened later. The text is kept, not copied.
 */
void pd_trace_distrust(const char *why);

/* Something went wrong; text is copied (at most 200 bytes). */
void pd_trace_error(const char *text, uint64_t addr, uint64_t size, int result);

/*
 * Open the trace file if the configuration asks for one; once, at the first driver use. From then
 * on pd_trace_mask says what is written. Other calls, while one opens, wait for it.
 */
void pd_trace_open(void);

/*
 * In a forked child: the parent's file is none of ours; a new one is opened at the first event. All
 * threads' counters are the records' own again, and zero.
 */
void pd_trace_fork_child(void);

/* The path of the file that is written, or NULL. Not to be asked while it is being opened. */
const char *pd_trace_file_name(void);

/*
 * For call stacks: a module is about to be unloaded, so that what is known of code addresses may no
 * longer be so; one is about to be loaded, perhaps where that was.
 */
void pd_stacks_unloading(void);
void pd_stacks_loading(void);

/*
 * At exit: note that the process ended in order, and the counters that are not in the file yet.
 * Events that come later are still written.
 */
void pd_trace_close(void);

#endif
