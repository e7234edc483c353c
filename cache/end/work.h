/* SPDX-License-Identifier: MIT */
/*
 * Work: what a thread does with memory in more than one step. A question to the driver,
 * its pin, or its opening of a descriptor is a flight; regions that it ends are an ending. Each is
 * on the stack of its thread and in one list, so that whoever frees the memory finds it there, and
 * waits until it is over. guard.h says how a flight and a free notice each other.
 *
 * Work is added to the list with or without the lock, at the front; under the lock it is removed,
 * its members are changed, and others look at it.
 */
#ifndef PDN_WORK_H
#define PDN_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "cache/driver/driver.h"
#include "cache/end/guard.h"
#include "cache/hit/region.h"

enum pdn_work_kind {
	PDN_FLIES,
	PDN_ENDS,
};

struct pdn_work {
	struct pdn_work *next;
	enum pdn_work_kind kind;
	uint32_t tid; /* its thread's, which need not have a record */
};

extern PDN_HIDDEN struct pdn_work *pdn_works; /* the latest one first */

/*
 * Sequentially consistent: pairs with pdn_flight_begin(), as a guard is up. A free looks at this
 * before it looks at the index: see nothing_at_all() in hook_events.c.
 */
static inline bool pdn_works_any(void)
{
	return __atomic_load_n(&pdn_works, __ATOMIC_SEQ_CST) != NULL;
}

/*
 * Lock held. Another thread's work that touches memory which the scope covers: its tid; 0: there is
 * none. The end of a context or a device waits for each flight: whose the memory is, the flight is
 * just finding out.
 */
uint32_t pdn_work_under(const struct pdn_scope *scope);

/* Lock held. This thread is about to end, with work on its stack; its regions stay pinned. */
void pdn_work_drop_own(void);

/* ---- flights -------------------------------------------------------------------------------- */

/* A question to the driver, a pin under way, or the opening or closing of a region's descriptor. */
struct pdn_pin;
struct pdn_flight {
	struct pdn_work work;		 /* must be first */
	struct pdn_memory memory;	 /* of the pin, once there is one: a free makes it lost */
	uint64_t reach_begin, reach_end; /* all that the driver touches: frees there wait */
	uint64_t reserved;		 /* bytes of the budget that it has taken */
	uint64_t max_dmabufs; /* the owner's limit: with this many open it must not open another */
	struct pdn_pin *pin;  /* or NULL; a child that is forked meanwhile abandons it */
	bool nowait;	      /* set by its owner before it begins: PINDOWN_GET_NOWAIT */
	bool lost;	      /* some of the memory ends: a pin must not be used */
};

/*
 * Without the lock it is a look, to give up early. In a child the descriptor of a pin that the
 * forking thread is in the middle of has been closed.
 */
static inline bool pdn_flight_lost(const struct pdn_flight *flight)
{
	unsigned lost = __atomic_load_n(&flight->lost, __ATOMIC_RELAXED);
	unsigned off = pdn_process_is_off();

	return lost | off; /* without a jump */
}

/*
 * With or without the lock held. Frees that look for work from here on see it; those under way are
 * not looked for. The flight is of any context's memory until the driver has described it: what was
 * there earlier may have been freed unseen, and replaced by what another context owns.
 */
void pdn_flight_add(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/*
 * Lock not held. The same before a question to the driver about this memory. Returns who is ending
 * some of it: while that is another thread, nothing may be asked. This thread itself is not in the
 * driver.
 */
unsigned pdn_flight_begin(struct pdn_flight *flight, uint64_t begin, uint64_t end);

/*
 * Lock not held. From here on the flight also touches all of [begin, end), which belongs to the
 * same owner. Returns who is ending some of that; the second function answers nobody, where the
 * flight has touched it before.
 */
unsigned pdn_flight_reach_further(struct pdn_flight *flight, uint64_t begin, uint64_t end);
static inline unsigned pdn_flight_reach(struct pdn_flight *flight, uint64_t begin, uint64_t end)
{
	return begin >= flight->reach_begin && end <= flight->reach_end
		       ? PDN_UNGUARDED
		       : pdn_flight_reach_further(flight, begin, end);
}

/* Lock held. The driver has described the memory, which is what it was asked about. */
void pdn_flight_is_of(struct pdn_flight *flight, const struct pdn_memory *memory);

/*
 * Lock not held. The flight has ended. Wait until no other thread's guard is on what it touched.
 * false: the deadline has passed.
 */
bool pdn_flight_wait(const struct pdn_flight *flight);

/*
 * Lock not held. Does the driver have this memory there, as pdn_driver_compare() says? Asked in a
 * flight, as other threads may free it; PDN_UNKNOWN, too, if one of them is just doing so.
 * Keeps errno.
 */
enum pdn_truth pdn_compare_memory(uint64_t begin, uint64_t end, uint64_t buffer_id,
				  uint64_t mappings_hash);

/* Lock held. It wakes the threads that wait. */
void pdn_flight_end(struct pdn_flight *flight);

/* The same without the lock held. */
void pdn_flight_end_unlocked(struct pdn_flight *flight);

/*
 * Lock held. Mark lost all flights of memory that the scope covers; until it is known what one pins
 * that is all that it touches.
 */
void pdn_flights_mark_lost(const struct pdn_scope *scope);

/* Lock held. Does another thread pin memory that overlaps this one's? */
bool pdn_flight_is_duplicate(const struct pdn_flight *flight);

/* For a child, wherever other threads were when it was forked: the pins that flights have. */
void pdn_flights_each_pin(void (*fn)(struct pdn_pin *pin));

uint64_t pdn_flights_reserved(uint32_t *count);
bool pdn_flights_of_others_reserve(void);

/* ---- endings -------------------------------------------------------------------------------- */

/*
 * Regions that one thread ends, from the moment when they are live no longer until they are
 * unpinned or left to their holders; linked through ->next, in the order in which they were
 * added. It is in the list from the first region on, and until the last has left it; they leave it
 * in order.
 */
struct pdn_ending {
	struct pdn_work work; /* must be first */
	uint32_t first, last;
	/*
	 * How it is known that their frees were noticed only after the driver had made them, as the
	 * end of a sentence; NULL: they were noticed in time. Volatile regions are not counted so.
	 */
	const char *missed;
	const struct pdn_scope *scope; /* whose end ends them; NULL: none, each ends by itself */
	bool are_replaced; /* by a region that reaches over them: no eviction for lack of room */
};

/* Lock held. Before the region leaves the index: see nothing_at_all() in hook_events.c. */
void pdn_ending_append(struct pdn_ending *ending, uint32_t number);

/* Lock held. The first of them is no longer ending. */
void pdn_ending_leave(struct pdn_ending *ending);

/* Lock held. Does any thread end regions? Another one? */
bool pdn_endings_any(void);
bool pdn_endings_of_others(void);

/* Lock held. A region that this thread is ending, which the function accepts; 0: there is none. */
uint32_t pdn_find_own_ending(bool (*is_it)(uint32_t number, const struct pdn_scope *scope),
			     const struct pdn_scope *scope);

/*
 * The region's memory, to be compared with a scope: it stands until the record is free. Of a window
 * it is the allocation, whose end ends the window.
 */
struct pdn_memory pdn_memory_of(const struct pindown_region *region);
bool pdn_region_is_under(uint32_t number, const struct pdn_scope *scope);

#endif
