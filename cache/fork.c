/* SPDX-License-Identifier: MIT */
/*
 * fork() and exit. A child inherits descriptors, and with them would keep the parent's GPU memory
 * alive; it can't use CUDA unless the parent never did. So it drops what it has inherited and
 * begins with an empty cache. When, and what of ours is then whole: base/process.h.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "cache/base/barrier.h"
#include "cache/backend/backend.h"
#include "cache/cache.h"
#include "cache/base/descriptor.h"
#include "cache/region_dmabuf.h"
#include "cache/driver/driver.h"
#include "cache/hook_events.h"
#include "cache/foreign_dmabufs.h"
#include "cache/index.h"
#include "cache/top/page.h"
#include "cache/objects/object.h"
#include "cache/base/process.h"

/* ---- descriptors that are being made or closed ---------------------------------------------- */

/*
 * Between the moment at which the driver makes a descriptor and the one at which a pin names it, a
 * child would inherit it without knowing; and between the moment at which a descriptor is closed
 * and the one at which its pin says so, a child may have the descriptor though its pin says no. So
 * a fork waits for threads that are in between, and they wait for a fork before they begin. Neither
 * waits for longer than pd_fork_wait_ns from the beginning of the fork: the thread that forks may
 * hold what the driver waits for, and a handler that runs before the fork may wait for a thread
 * that wants a descriptor.
 *
 * Each of the two sides counts itself and then looks at the other's count, sequentially consistent:
 * one of them sees the other.
 */
static uint32_t unnamed, forks;
static uint64_t forks_until; /* of the latest fork; relaxed: stored before that is counted */

/* This thread's own share of these, for which it can't wait. */
static __thread uint32_t unnamed_here __attribute__((tls_model("initial-exec")));
static __thread uint32_t forks_here __attribute__((tls_model("initial-exec")));

/* Does a fork of another thread have to be waited for? */
static bool must_wait(uint64_t *until)
{
	*until = __atomic_load_n(&forks_until, __ATOMIC_RELAXED);
	return __atomic_load_n(&forks, __ATOMIC_SEQ_CST) && !forks_here && unnamed_here == 1 &&
	       pd_deadline(0) < *until;
}

void pd_descriptor_begin(void)
{
	uint64_t until;
	uint32_t under_way;

	for (;;) {
		unnamed_here++;
		__atomic_fetch_add(&unnamed, 1, __ATOMIC_SEQ_CST);
		if (!must_wait(&until))
			return;
		under_way = __atomic_load_n(&forks, __ATOMIC_SEQ_CST);
		pd_descriptor_end();
		if (under_way)
			pd_sleep_while(&forks, under_way, until);
	}
}

void pd_descriptor_end(void)
{
	unnamed_here--;
	__atomic_fetch_sub(&unnamed, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&forks, __ATOMIC_SEQ_CST))
		pd_wake_all(&unnamed);
}

/* ---- descriptors that are being closed ------------------------------------------------------ */

/*
 * The kernel copies the descriptors before it copies the memory. What is closed in between is open
 * in the child, whose memory says that it is not. That happens where a fork did not wait: it was
 * made without our handlers, or it waited as long as it may. So what is about to be closed is
 * noted, and a child closes what was noted lately, if it has it.
 */
#define NOTED 1024u

static struct {
	uint64_t identity;
	int fd;
} noted[NOTED];
static uint32_t noted_count;
static __thread uint32_t noted_before_fork __attribute__((tls_model("initial-exec")));

/*
 * Release: the note is there before what follows, the closing. A child that sees half of it was
 * forked before that.
 */
void pd_descriptor_note(int fd, uint64_t identity)
{
	uint32_t place = __atomic_fetch_add(&noted_count, 1, __ATOMIC_RELAXED) % NOTED;

	__atomic_store_n(&noted[place].fd, fd, __ATOMIC_RELAXED);
	__atomic_store_n(&noted[place].identity, identity, __ATOMIC_RELEASE);
}

static void close_what_was_noted(void)
{
	uint32_t count = forks_here ? noted_count - noted_before_fork : NOTED;

	for (uint32_t i = 0; i < count && i < NOTED; i++) {
		uint32_t place = (noted_count - 1 - i) % NOTED;

		if (noted[place].identity &&
		    pd_descriptor_is(noted[place].fd, noted[place].identity))
			pd_descriptor_close(noted[place].fd);
	}
}

/* Nobody is left who could be waited for, and what the child closes need not wait for a fork. */
static void forget_forks(void)
{
	forks = 0;
}

static void descriptors_fork_child(void)
{
	unnamed = unnamed_here; /* it may have forked in a signal handler meanwhile */
	forks = forks_here = 0;
}

/* ---- around a fork -------------------------------------------------------------------------- */

void pd_fork_prepare(void)
{
	uint64_t until = pd_deadline(pd_fork_wait_ns);
	uint32_t others;

	forks_here++;
	noted_before_fork = __atomic_load_n(&noted_count, __ATOMIC_RELAXED);
	__atomic_store_n(&forks_until, until, __ATOMIC_RELAXED);
	__atomic_fetch_add(&forks, 1, __ATOMIC_SEQ_CST);
	while ((others = __atomic_load_n(&unnamed, __ATOMIC_SEQ_CST)) != unnamed_here &&
	       pd_deadline(0) < until)
		pd_sleep_while(&unnamed, others, until);
	if (others != unnamed_here)
		noted_before_fork -= NOTED; /* one of these may still be open */
}

void pd_fork_parent(void)
{
	forks_here--;
	__atomic_fetch_sub(&forks, 1, __ATOMIC_SEQ_CST);
	pd_wake_all(&forks);
}

/* ---- in a child ----------------------------------------------------------------------------- */

static void abandon(struct pd_pin *pin)
{
	const struct pd_backend *backend = pd_backend_chosen(pin->device);

	if (backend)
		backend->abandon(pin);
}

/*
 * A pin is in the list of flights until after it has got into a region's record, so that it is
 * found in one of the two wherever the threads of the parent were. What looks like a descriptor and
 * is none is not closed: its file is another.
 */
void pd_abandon_all(void)
{
	forget_forks();
	pd_flights_each_pin(abandon);
	pd_region_each_pin(abandon);
	close_what_was_noted();
	pd_backend_kmod_fork_child();
}

void pd_begin_anew(void)
{
	if (pd_hook_fork_child)
		pd_hook_fork_child();
	if (pd_region_limit)
		pd_index_reset();
	pd_region_fork_child();
	pd_objects_fork_child();
	pd_creations_fork_child();
	pd_exports_fork_child();
	pd_consumers_fork_child();
	pd_queues_fork_child();
	pd_occupied = 0;
	pd_end_fork_child();
	pd_flights_fork_child();
	pd_dmabuf_fork_child();
	pd_volatile_fork_child();
	pd_subscribe_fork_child();
	pd_stats_fork_child();
	pd_thread_fork_child();
	pd_live_fork_child();
	pd_trace_fork_child();
	pd_lock_fork_child();
	descriptors_fork_child();
	pd_asym_fork_child();
}

/* ---- exit ----------------------------------------------------------------------------------- */

void pd_exiting(void)
{
	pd_driver_forget();
	pd_trace_close();
	pd_live_close();
}
