/* SPDX-License-Identifier: MIT */
/*
 * A scripted CUDA driver for the cache's unit tests. Memory lies where the test says, and the test
 * can act at each edge of each call. (The simulated driver of tests/sim does the opposite: it
 * behaves like the real driver and can't be scripted.)
 *
 * An edge is the begin or the end of a driver call that the cache makes, see fake_at_edge().
 *
 * An export is the write end of a pipe whose read end stays here. So the driver sees when the last
 * descriptor of an export has been closed, in this process or in any child.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

/* The CUresults that the tests need. */
enum {
	FAKE_SUCCESS = 0,
	FAKE_INVALID_VALUE = 1,
	FAKE_OUT_OF_MEMORY = 2,
	FAKE_DEINITIALIZED = 4,
	FAKE_INVALID_CONTEXT = 201,
	FAKE_OPERATING_SYSTEM = 304,
	FAKE_NOT_FOUND = 500,
	FAKE_NOT_PERMITTED = 800,
	FAKE_NOT_SUPPORTED = 801,
	FAKE_UNKNOWN = 999,
};

enum fake_kind {
	FAKE_LINEAR,  /* cuMemAlloc */
	FAKE_POOL,    /* cuMemAllocAsync: no context */
	FAKE_VMM,     /* cuMemMap: no context, no SYNC_MEMOPS */
	FAKE_MANAGED, /* cuMemAllocManaged */
	FAKE_HOST,    /* cuMemHostAlloc */
	FAKE_GRAPH,   /* allocated while capturing: an address that the driver denies knowing */
};

/* The calls, grouped by purpose: the cache may use any entry point that serves it. */
enum fake_call {
	FAKE_QUERY,  /* pointer attributes, address range */
	FAKE_SYNC,   /* setting SYNC_MEMOPS */
	FAKE_EXPORT, /* the dma-buf */
	FAKE_OTHER,  /* contexts, devices, versions */
	FAKE_CALLS
};

/* The function for pdn_find_driver_symbol. */
void *fake_symbol(const char *name);

/* The function for pdn_is_mapped. */
bool fake_is_mapped(uint64_t base, uint64_t id);

/*
 * The program's side: memory is allocated, freed and mapped again. pindown does not watch these
 * calls.
 */
void fake_alloc(uint64_t base, uint64_t size, enum fake_kind kind);
void fake_alloc_in(uint64_t base, uint64_t size, enum fake_kind kind, void *context, int device,
		   void *pool);
int fake_free(uint64_t base);
extern bool fake_overlaps_allowed;
/* The same where pindown sees nothing of it: it may meet questions (fake_asks()). */
int fake_free_unseen(uint64_t base); /* FAKE_INVALID_VALUE when nothing starts there */
void fake_context_destroy(void *context);
uint64_t fake_id(uint64_t addr);    /* the buffer id alive there, 0 when none */
#define FAKE_CONTEXT ((void *)0xc0) /* the context of fake_alloc() */

/*
 * Mappings in this range are parts of one reservation. Any other mapping fills a reservation of its
 * own.
 */
extern uint64_t fake_reserved, fake_reserved_size;

/* The driver answers 0 where it is asked for the larger piece that an allocation was cut from. */
extern bool fake_hides_pieces;

/* How often cuCtxPushCurrent() made a context current. */
extern unsigned fake_pushes;

/* From now on questions about addresses in [begin, end) are counted, by any thread. */
void fake_watch_questions(uint64_t begin, uint64_t end);
unsigned fake_watched_questions(void);

/* From now on this thread has no current context, and an export without one is refused. */
void fake_no_current_context(void);

/* How often a call was entered; FAKE_CALLS: any call. */
unsigned fake_count(enum fake_call call);

/* From the nth entry of this call on (0: the next one), `times` entries fail with this result. */
void fake_fail(enum fake_call call, unsigned nth, unsigned times, int result);

/* Open exports may have this many bytes in total. */
void fake_pin_space(uint64_t bytes);

/*
 * For `times` exports, the memory gets another buffer id during the export: it was replaced unseen.
 */
void fake_swap_during_export(unsigned times);

/* The device does not support dma-buf export. */
void fake_no_dmabuf(void);

/*
 * Each call has two edges: entering it (nothing has been looked at) and leaving it (the answer is
 * fixed). At the nth edge from now, of this call or of any call (FAKE_CALLS), the calling thread
 * runs fn, once. fake_edge_met() says whether it ran: a test of a race must not pass because there
 * was no race.
 */
void fake_at_edge(enum fake_call call, unsigned nth, void (*fn)(void *arg), void *arg);
bool fake_edge_met(void);
/* The number of the edge at which the nth call is entered, and left. */
#define FAKE_ENTERING(nth) (2 * (nth))
#define FAKE_LEAVING(nth)  (2 * (nth) + 1)

/*
 * Call this before the cache's fork handlers are registered: the cache waits for pins under way,
 * and these need this driver.
 */
void fake_handle_forks(void);

/* How many descriptors of exports this process has. */
unsigned fake_descriptors_here(void);

/* Exports that some process still has open: all of them, or those of memory that has ended. */
unsigned fake_open_exports(void);
unsigned fake_open_exports_of_dead(void);
/* The same for one buffer id. */
unsigned fake_open_exports_of(uint64_t id);
unsigned fake_exports_made(void);

#endif
