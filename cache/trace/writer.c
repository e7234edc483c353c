// SPDX-License-Identifier: MIT
/* The life of the trace: opening it, what it says about the process, fork and exit. */
#define _GNU_SOURCE
#include "cache/trace/writer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/thread.h"
#include "cache/trace/chunk.h"
#include "cache/trace/clock.h"
#include "cache/trace/file.h"
#include "cache/trace/format.h"
#include "cache/trace/info.h"
#include "cache/trace/journal.h"
#include "cache/trace/stack.h"
#include "cache/trace/state.h"
#include "cache/trace/stream.h"

/* About this process, for its file. */
static struct {
	uint32_t pid, forked_from;
	const char *const *call_names;
	unsigned calls;
	const char *distrust; /* see pd_trace_distrust() */
	bool wrote_distrust;  /* in this file */
} process;

/* ---- opening -------------------------------------------------------------------------------- */

static void fill_header(struct pd_trace_header *header)
{
	header->major = PD_TRACE_MAJOR;
	header->minor = PD_TRACE_MINOR;
	header->header_bytes = PD_TRACE_HEADER_BYTES;
	header->unit = PD_TRACE_UNIT;
	header->pid = process.pid = (uint32_t)getpid();
	header->ppid = (uint32_t)getppid();
	header->flags = pd_ticks_steady ? 0 : PD_TRACE_TICKS_ARE_NS;
	header->event_mask = pd_config()->trace_events;
	header->forked_from = process.forked_from;
	header->units = 1;
	pd_trace_clock_read(&header->begin);
	pd_trace_info_write(header, process.call_names, process.calls);
	memcpy(header->magic, PD_TRACE_MAGIC, sizeof(header->magic));
}

static bool create_file(const char *name)
{
	struct pd_trace_header *header;
	uint64_t device, inode;

	pd_journal_rescue();
	if (!pd_trace_file_create(name))
		return false;
	header = pd_journal_begin();
	if (!header) {
		pd_trace_file_drop(ENOMEM);
		return false;
	}
	fill_header(header);
	if (!pd_trace_file_begin(header)) {
		pd_journal_end();
		pd_journal_forget();
		return false;
	}
	pd_trace_file_identify(&device, &inode);
	pd_journal_publish(header, device, inode, pd_trace_file_name());
	pd_trace.header = header;
	pd_trace.ended = false;
	if (pd_config()->trace_stacks)
		pd_stacks_begin(pd_config()->trace_stacks < PD_TRACE_MOST_FRAMES
					? (unsigned)pd_config()->trace_stacks
					: PD_TRACE_MOST_FRAMES);
	return true;
}

/*
 * Called by the thread that opens the trace and by the one that has the reason. Sequentially
 * consistent: one of them sees the other's store.
 */
static void write_distrust(void)
{
	const char *why = __atomic_load_n(&process.distrust, __ATOMIC_SEQ_CST);

	if (!why || __atomic_load_n(&pd_trace.state, __ATOMIC_SEQ_CST) != PD_TRACE_OPEN ||
	    __atomic_exchange_n(&process.wrote_distrust, true, __ATOMIC_RELAXED))
		return;
	pd_trace_info_distrust(pd_trace.header, why);
	pd_trace_error(why, 0, 0, 0);
}

void pd_trace_distrust(const char *why)
{
	__atomic_store_n(&process.distrust, why, __ATOMIC_SEQ_CST);
	write_distrust();
}

/* Another thread is opening: takes microseconds, unless that thread was killed half-way. */
static void wait_for_opening(void)
{
	uint64_t end = pd_race_deadline();
	struct pd_rest rest = {0};

	while (__atomic_load_n(&pd_trace.state, __ATOMIC_ACQUIRE) == PD_TRACE_OPENING &&
	       pd_ticks_ns() < end)
		pd_rest(&rest);
}

void pd_trace_open(void)
{
	const struct pd_config *config;
	int untried = PD_TRACE_UNTRIED, error = errno;
	struct pd_alone alone;
	bool opened;

	if (__atomic_load_n(&pd_trace.state, __ATOMIC_ACQUIRE) >= PD_TRACE_OPEN)
		return;
	config = pd_config();
	if (!__atomic_compare_exchange_n(&pd_trace.state, &untried, PD_TRACE_OPENING, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		wait_for_opening();
		errno = error;
		return;
	}
	opened = config->enabled && config->trace;
	if (opened) {
		pd_alone_begin(&alone);
		pd_trace_clock_choose();
		opened = create_file(config->trace);
		pd_alone_end(&alone);
	}
	/* Release: pairs with pd_tracing(). */
	__atomic_store_n(&pd_trace_mask, opened ? config->trace_events : 0, __ATOMIC_RELEASE);
	pd_thread_look_now();
	__atomic_store_n(&pd_trace.state, opened ? PD_TRACE_OPEN : PD_TRACE_OFF, __ATOMIC_SEQ_CST);
	if (opened && pd_self_tls)
		pd_stream_start_thread(pd_self_tls);
	write_distrust();
	errno = error;
}

void pd_trace_call_names(const char *const *names, unsigned count)
{
	struct pd_alone alone;

	process.call_names = names;
	process.calls = count;
	if (__atomic_load_n(&pd_trace.state, __ATOMIC_ACQUIRE) != PD_TRACE_OPEN)
		return;
	pd_alone_begin(&alone);
	pd_trace_info_calls(pd_trace.header, names, count);
	pd_trace_file_write(pd_trace.header, PD_TRACE_UNIT, 0);
	pd_alone_end(&alone);
}

/* ---- fork and exit -------------------------------------------------------------------------- */

void pd_trace_fork_child(void)
{
	const struct pd_config *config = pd_config();
	int error = errno;

	if (pd_trace.state == PD_TRACE_UNTRIED ||
	    (pd_trace.state == PD_TRACE_OFF && !pd_trace.header))
		return;
	pd_streams_fork_child();
	pd_trace_file_forget();
	pd_journal_forget();
	process.forked_from = process.pid;
	pd_trace_slots_forget();
	pd_stacks_fork_child();
	pd_trace.header = NULL;
	process.wrote_distrust = false;
	pd_trace.state = PD_TRACE_UNTRIED;
	pd_trace_mask = config->trace_events;
	pd_thread_look_now();
	errno = error;
}

/* Puts the counts of all threads whose counters are not in the file into one slot. */
static void sum_up(void)
{
	struct pd_counters sum = {0};
	struct pd_trace_slot *slot;
	bool any = false;

	for (struct pd_thread *t = pd_threads(); t; t = t->next) {
		/* As in pd_counter_sum(). */
		struct pd_counters *counters = __atomic_load_n(&t->counters, __ATOMIC_ACQUIRE);

		if (counters != &t->own_counters)
			continue;
		sum.hits += __atomic_load_n(&counters->hits, __ATOMIC_RELAXED);
		sum.misses += __atomic_load_n(&counters->misses, __ATOMIC_RELAXED);
		sum.tag_checks += __atomic_load_n(&counters->tag_checks, __ATOMIC_RELAXED);
		any = any || sum.hits || sum.misses || sum.tag_checks;
	}
	slot = any ? pd_trace_slot_new(pd_trace.header, PD_SLOT_OF_MANY) : NULL;
	if (slot)
		memcpy(slot, &sum, sizeof(sum));
}

void pd_trace_close(void)
{
	struct pd_trace_clock end;
	int error = errno;
	struct pd_alone alone;

	/* Relaxed: it only decides which call is the first. */
	if (__atomic_load_n(&pd_trace.state, __ATOMIC_ACQUIRE) != PD_TRACE_OPEN ||
	    __atomic_exchange_n(&pd_trace.ended, true, __ATOMIC_RELAXED))
		return;
	pd_alone_begin(&alone);
	sum_up();
	pd_trace_clock_read(&end);
	pd_trace.header->end.monotonic = end.monotonic;
	pd_trace.header->end.realtime = end.realtime;
	/* Release: readers of the journal take nonzero ticks as the sign that there is an end. */
	__atomic_store_n(&pd_trace.header->end.ticks, end.ticks, __ATOMIC_RELEASE);
	if (pd_journal_write_all(pd_trace_file_write))
		pd_journal_end();
	else if (pd_trace_file_is_cut())
		pd_trace_stop();
	pd_alone_end(&alone);
	errno = error;
}
