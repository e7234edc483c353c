/* SPDX-License-Identifier: MIT */
/*
 * A scripted CUDA driver for the cache's unit tests: memory lies where the test says, and the test
 * can step in at each edge of each call. (The simulated driver of tests/sim is the other way round:
 * it behaves like the real one and can't be scripted.)
 *
 * An export is the writing end of a pipe whose reading end stays here, so that the driver sees when
 * the last descriptor of it has been closed, in this process or in any child.
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

/* The calls by what they are for: the cache may use whichever entry point serves. */
enum fake_call {
	FAKE_QUERY,  /* pointer attributes, address range */
	FAKE_SYNC,   /* setting SYNC_MEMOPS */
	FAKE_EXPORT, /* the dma-buf */
	FAKE_OTHER,  /* contexts, devices, versions */
	FAKE_CALLS
};

/* Where pd_find_driver_symbol is to point; a driver that finds nothing is NULL to the cache. */
void *fake_symbol(const char *name);

/* For pd_is_mapped. */
bool fake_is_mapped(uint64_t base, uint64_t id);

/* The program's side: memory comes, goes, and is mapped anew. These are not watched by anything. */
void fake_alloc(uint64_t base, uint64_t size, enum fake_kind kind);
void fake_alloc_in(uint64_t base, uint64_t size, enum fake_kind kind, void *context, int device,
		   void *pool);
int fake_free(uint64_t base); /* FAKE_INVALID_VALUE when nothing starts there */
void fake_context_destroy(void *context);
uint64_t fake_id(uint64_t addr);    /* the buffer id alive there, 0 when none */
#define FAKE_CONTEXT ((void *)0xc0) /* the context of fake_alloc() */

/* Mappings in here are parts of one reservation; others fill one of their own each. */
extern uint64_t fake_reserved, fake_reserved_size;

/* How often any context was made current by cuCtxPushCurrent(). */
extern unsigned fake_pushes;

/* This thread has no current context from now on: an export without one is refused. */
void fake_no_current_context(void);

/* How often a call was entered, or any call (FAKE_CALLS). */
unsigned fake_count(enum fake_call call);

/* The nth entry of this call from now (0: the next) fails with result, and so on for `times`. */
void fake_fail(enum fake_call call, unsigned nth, unsigned times, int result);

/* At most so many bytes of exports can be open. */
void fake_pin_space(uint64_t bytes);

/* Each export has another buffer id afterwards, for `times` exports: memory replaced unseen. */
void fake_swap_during_export(unsigned times);

/* dma-buf export isn't supported by this device. */
void fake_no_dmabuf(void);

/*
 * Each call has two edges: entered (nothing looked at yet) and leaving (the answer is fixed). At
 * the nth edge from now, of this call or of any (FAKE_CALLS), fn runs in the calling thread; once.
 * fake_edge_met() says whether it ran: a test of a race must not pass because it never raced.
 */
void fake_at_edge(enum fake_call call, unsigned nth, void (*fn)(void *arg), void *arg);
bool fake_edge_met(void);
/* The edges that this many entries of a call have. */
#define FAKE_ENTERING(nth) (2 * (nth))
#define FAKE_LEAVING(nth)  (2 * (nth) + 1)

/*
 * To be called before the cache's fork handlers are registered: pins under way, for which the cache
 * waits, need this driver.
 */
void fake_handle_forks(void);

/* Descriptors of exports that this process has. */
unsigned fake_descriptors_here(void);

/* Exports not closed by anybody yet: all, or those of memory that has ended. */
unsigned fake_open_exports(void);
unsigned fake_open_exports_of_dead(void);
/* Of one buffer id. */
unsigned fake_open_exports_of(uint64_t id);
unsigned fake_exports_made(void);

#endif
