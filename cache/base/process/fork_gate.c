/* SPDX-License-Identifier: MIT */
/*
 * Keeps forks apart from the making and closing of descriptors, which a child would inherit.
 *
 * The driver makes a descriptor some time before a pin names it, and a descriptor is closed some
 * time before its pin says so. A child that is forked in between has a descriptor that its copy of
 * the tables does not name. So a fork waits for the threads that are in between, and they wait for
 * a fork before they begin. Neither waits longer than pdn_fork_wait_ns from the beginning of the
 * fork: the forking thread may hold what the driver waits for, and a handler that runs before the
 * fork may wait for a thread that wants a descriptor.
 *
 * Each of the two sides counts itself and then looks at the other's count, sequentially consistent:
 * one of them sees the other.
 */
#define _GNU_SOURCE
#include "cache/base/process/fork_gate.h"

#include "cache/base/process/descriptor.h"
#include "cache/base/thread/lock.h"

/* Threads that are making or closing a descriptor; forks under way. */
static uint32_t busy, forks;
static uint64_t forks_until; /* of the latest fork; relaxed: stored before that is counted */

/* This thread's own share of these, for which it can't wait. */
static __thread uint32_t busy_here __attribute__((tls_model("initial-exec")));
static __thread uint32_t forks_here __attribute__((tls_model("initial-exec")));

/* Does a fork of another thread have to be waited for? */
static bool must_wait(uint64_t *until)
{
	*until = __atomic_load_n(&forks_until, __ATOMIC_RELAXED);
	return __atomic_load_n(&forks, __ATOMIC_SEQ_CST) && !forks_here && busy_here == 1 &&
	       pdn_deadline(0) < *until;
}

void pdn_descriptor_begin(void)
{
	uint64_t until;
	uint32_t under_way;

	for (;;) {
		busy_here++;
		__atomic_fetch_add(&busy, 1, __ATOMIC_SEQ_CST);
		if (!must_wait(&until))
			return;
		under_way = __atomic_load_n(&forks, __ATOMIC_SEQ_CST);
		pdn_descriptor_end();
		if (under_way)
			pdn_sleep_while(&forks, under_way, until);
	}
}

void pdn_descriptor_end(void)
{
	busy_here--;
	__atomic_fetch_sub(&busy, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&forks, __ATOMIC_SEQ_CST))
		pdn_wake_all(&busy);
}

/* ---- descriptors that are being closed ------------------------------------------------------ */

/*
 * The kernel copies the descriptors before it copies the memory. A descriptor closed in between is
 * open in the child, whose memory says that it is not. That happens where a fork did not wait: it
 * was made without our handlers, or it waited as long as it may. So each descriptor is noted before
 * it is closed, and a child closes those that were noted lately, if it has them.
 */
#define NOTED 1024u

static struct {
	uint64_t identity;
	int fd;
} noted[NOTED];
static uint32_t noted_count;
static __thread uint32_t noted_before_fork __attribute__((tls_model("initial-exec")));

/*
 * Release: the note is there before the closing that follows. A child that sees half of it was
 * forked before that.
 */
void pdn_descriptor_note(int fd, uint64_t identity)
{
	uint32_t place = __atomic_fetch_add(&noted_count, 1, __ATOMIC_RELAXED) % NOTED;

	__atomic_store_n(&noted[place].fd, fd, __ATOMIC_RELAXED);
	__atomic_store_n(&noted[place].identity, identity, __ATOMIC_RELEASE);
}

void pdn_fork_gate_close_noted(void)
{
	uint32_t count = forks_here ? noted_count - noted_before_fork : NOTED;

	for (uint32_t i = 0; i < count && i < NOTED; i++) {
		uint32_t place = (noted_count - 1 - i) % NOTED;

		if (noted[place].identity &&
		    pdn_descriptor_is(noted[place].fd, noted[place].identity))
			pdn_descriptor_close(noted[place].fd);
	}
}

/* fork() copies them, and only that runs our handlers. */
bool pdn_fork_gate_is_shared(void)
{
	return !forks_here && pdn_descriptors_are_shared();
}

/* The threads that could be waited for are gone, and closing in the child waits for no fork. */
void pdn_fork_gate_forget(void)
{
	forks = 0;
}

void pdn_fork_gate_child(void)
{
	busy = busy_here; /* it may have forked in a signal handler meanwhile */
	forks = forks_here = 0;
}

/* ---- around a fork -------------------------------------------------------------------------- */

void pdn_fork_gate_shut(void)
{
	uint64_t until = pdn_deadline(pdn_fork_wait_ns);
	uint32_t others;

	forks_here++;
	noted_before_fork = __atomic_load_n(&noted_count, __ATOMIC_RELAXED);
	__atomic_store_n(&forks_until, until, __ATOMIC_RELAXED);
	__atomic_fetch_add(&forks, 1, __ATOMIC_SEQ_CST);
	while ((others = __atomic_load_n(&busy, __ATOMIC_SEQ_CST)) != busy_here &&
	       pdn_deadline(0) < until)
		pdn_sleep_while(&busy, others, until);
	if (others != busy_here)
		noted_before_fork -= NOTED; /* one of these may still be open */
}

void pdn_fork_gate_open(void)
{
	forks_here--;
	__atomic_fetch_sub(&forks, 1, __ATOMIC_SEQ_CST);
	pdn_wake_all(&forks);
}
