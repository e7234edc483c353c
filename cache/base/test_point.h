/* SPDX-License-Identifier: MIT */
/*
 * Named points between the steps of get, put, free and pin, at which a test that builds the cache
 * with -DPDN_POINTS holds up threads (tests/unit/support/windows.c). In the library they are
 * nothing at all.
 *
 * addr: an address of the memory that the step is about.
 */
#ifndef PDN_TEST_POINT_H
#define PDN_TEST_POINT_H

/* Each comment says what a thread that stands at the point has just done. */
#define PDN_POINTS_ALL(P)                                                                    \
	P(HIT_FOUND)	    /* the index has named a region; not announced yet */            \
	P(HIT_ANNOUNCED)    /* its state not read yet */                                     \
	P(HIT_LIVE)	    /* its state was live; not counted yet */                        \
	P(HIT_HELD)	    /* counted; still announced */                                   \
	P(HIT_COMPARES)	    /* a checked hit is announced as such; its state not read yet */ \
	P(HIT_COMPARED)	    /* a checked hit, with the driver; state to be read */           \
	P(PUT_DROPPED)	    /* the hold is gone; the state not read yet */                   \
	P(PUT_SLOW)	    /* it was not live; on the way to the lock */                    \
	P(PUT_LAST)	    /* it was the last; about to unpin */                            \
	P(FREE_GUARDED)	    /* the guard is up; nothing looked at yet */                     \
	P(FREE_LOOKING)	    /* no work was under way; about to look it up */                 \
	P(FREE_ENDED)	    /* the driver's free is over; the guard still up */              \
	P(RETIRE_RESERVING) /* the same; the address is about to be reserved */              \
	P(END_DYING)	    /* no longer live; still in the index (locked) */                \
	P(END_UNLINKED)	    /* no longer in the index; before the barrier (locked) */        \
	P(END_BARRIER)	    /* behind it; hits that announce it to be waited for (locked) */ \
	P(END_COUNTING)	    /* all are over; about to count holds (locked) */                \
	P(END_TELLING)	    /* unlocked; about to notify subscribers */                      \
	P(END_LETTING_GO)   /* in use: about to drop the end's own hold */                   \
	P(END_UNPINNING)    /* idle, subscribers notified; about to unpin */                 \
	P(END_UNPINNED)	    /* still dying to others */                                      \
	P(END_WAITING)	    /* a free, for another thread's pin or unpin */                  \
	P(EVICT_CHOSEN)	    /* it looked idle (locked) */                                    \
	P(EVICT_MARKED)	    /* no get takes it meanwhile; before the barrier (locked) */     \
	P(EVICT_COUNTING)   /* about to see whether it is idle (locked) */                   \
	P(QUESTION_BEGUN)   /* the flight is in the list; before the barrier */              \
	P(PIN_DESCRIBED)    /* the driver has answered; not said yet what is pinned */       \
	P(PIN_ANNOUNCED)    /* about to pin */                                               \
	P(PIN_PINNED)	    /* about to ask for the buffer id again */                       \
	P(PIN_SAME)	    /* it was the same; on the way to the lock */                    \
	P(PIN_COMMITTED)    /* in the index; not returned yet */                             \
	P(PIN_LOST)	    /* a free was faster; about to unpin */                          \
	P(PIN_WAITING)	    /* for a guard to come down */                                   \
	P(PIN_DUPLICATE)    /* another thread pins the same */                               \
	P(ALLOC_BEGUN)	    /* new memory; regions known here may be stale */                \
	P(ALLOC_FORGOTTEN)  /* volatile no more, pins lost; stale regions not dropped yet */ \
	P(ALLOC_COMPARED)   /* dropped; live regions still checked */

enum pdn_point {
#define PDN_POINT_NUMBER(name) PDN_POINT_##name,
	PDN_POINTS_ALL(PDN_POINT_NUMBER)
#undef PDN_POINT_NUMBER
		PDN_POINT_COUNT
};

#ifdef PDN_POINTS
#include <stdint.h>

void pdn_point(enum pdn_point point, uint64_t addr);
#define PDN_POINT(name, addr) pdn_point(PDN_POINT_##name, addr)
#else
#define PDN_POINT(name, addr) ((void)sizeof(addr))
#endif

#endif
