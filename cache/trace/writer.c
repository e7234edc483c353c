// SPDX-License-Identifier: MIT
/* The life of the trace: opening it, what it says about the process, fork and exit. */
#define _GNU_SOURCE
#include "cache/base/process.h"
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
static PDN_AT_LOAD struct {
	uint32_t pid, forked_from;
	const char *call_names;
	const char *distrust; /* see pdn_trace_distrust() */
	bool wrote_distrust;  /* in this file */
} process;

/* ---- opening -------------------------------------------------------------------------------- */

static void fill_header(struct pdn_trace_header *header)
{
	header->major = PDN_TRACE_MAJOR;
	header->minor = PDN_TRACE_MINOR;
	header->header_bytes = PDN_TRACE_HEADER_BYTES;
	header->unit = PDN_TRACE_UNIT;
	header->pid = process.pid = (uint32_t)getpid();
	header->ppid = (uint32_t)getppid();
	header->flags = pdn_ticks_steady ? 0 : PDN_TRACE_TICKS_ARE_NS;
	header->event_mask = pdn_config()->trace_events;
	header->forked_from = process.forked_from;
	header->units = 1;
	pdn_trace_clock_read(&header->begin);
	pdn_trace_info_write(header, process.call_names);
	memcpy(header->magic, PDN_TRACE_MAGIC, sizeof(header->magic));
}

static bool create_file(const char *name)
{
	struct pdn_trace_header *header;
	uint64_t device, inode;

	pdn_journal_rescue();
	if (!pdn_trace_file_create(name))
		return false;
	header = pdn_journal_begin();
	if (!header) {
		pdn_trace_file_drop(ENOMEM);
		return false;
	}
	fill_header(header);
	if (!pdn_trace_file_begin(header)) {
		pdn_journal_end();
		pdn_journal_forget();
		return false;
	}
	pdn_trace_file_identify(&device, &inode);
	pdn_journal_publish(header, device, inode, pdn_trace_file_name());
	pdn_trace.header = header;
	pdn_trace.ended = false;
	if (pdn_config()->trace_stacks)
		pdn_stacks_begin((unsigned)pdn_config()->trace_stacks);
	return true;
}

/*
 * Called by the thread that opens the trace and by the one that has the reason. Sequentially
 * consistent: one of them sees the other's store.
 */
static void write_distrust(void)
{
	const char *why = __atomic_load_n(&process.distrust, __ATOMIC_SEQ_CST);

	if (!why || __atomic_load_n(&pdn_trace.state, __ATOMIC_SEQ_CST) != PDN_TRACE_OPEN ||
	    __atomic_exchange_n(&process.wrote_distrust, true, __ATOMIC_RELAXED))
		return;
	pdn_trace_info_distrust(pdn_trace.header, why);
	pdn_trace_error(why, 0, 0, 0);
}

void pdn_trace_distrust(const char *why)
{
	__atomic_store_n(&process.distrust, why, __ATOMIC_SEQ_CST);
	write_distrust();
}

/* Another thread is opening: takes microseconds, unless that thread was killed half-way. */
static void wait_for_opening(void)
{
	uint64_t end = pdn_race_deadline();
	struct pdn_backoff rest = {0};

	while (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) == PDN_TRACE_OPENING &&
	       pdn_deadline(0) < end)
		pdn_backoff(&rest);
}

void pdn_trace_open(void)
{
	const struct pdn_config *config;
	int untried = PDN_TRACE_UNTRIED, error = errno;
	struct pdn_alone alone;
	bool opened;

	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) >= PDN_TRACE_OPEN)
		return;
	config = pdn_config();
	if (!__atomic_compare_exchange_n(&pdn_trace.state, &untried, PDN_TRACE_OPENING, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		wait_for_opening();
		errno = error;
		return;
	}
	opened = config->enabled && config->trace && !pdn_process_is_off();
	if (opened) {
		pdn_alone_begin(&alone);
		pdn_trace_clock_choose();
		opened = create_file(config->trace);
		pdn_alone_end(&alone);
	}
	/* Release: pairs with pdn_tracing(). */
	__atomic_store_n(&pdn_trace_mask, opened ? config->trace_events : 0, __ATOMIC_RELEASE);
	pdn_thread_look_now();
	__atomic_store_n(&pdn_trace.state, opened ? PDN_TRACE_OPEN : PDN_TRACE_OFF,
			 __ATOMIC_SEQ_CST);
	if (opened && pdn_self_tls)
		pdn_stream_start_thread(pdn_self_tls);
	write_distrust();
	errno = error;
}

PDN_STARTS void pdn_trace_call_names(const char *names)
{
	struct pdn_alone alone;

	process.call_names = names;
	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN)
		return;
	pdn_alone_begin(&alone);
	pdn_trace_info_calls(pdn_trace.header, names);
	pdn_trace_file_write(pdn_trace.header, PDN_TRACE_UNIT, 0);
	pdn_alone_end(&alone);
}

/* ---- fork and exit -------------------------------------------------------------------------- */

void pdn_trace_fork_child(void)
{
	const struct pdn_config *config = pdn_config();
	int error = errno;

	pdn_stacks_fork_child(); /* lines on standard error have used it without a trace, too */
	if (pdn_trace.state == PDN_TRACE_UNTRIED ||
	    (pdn_trace.state == PDN_TRACE_OFF && !pdn_trace.header))
		return;
	pdn_streams_fork_child();
	pdn_trace_file_forget();
	pdn_journal_forget();
	process.forked_from = process.pid;
	pdn_trace_slots_forget();
	pdn_trace.header = NULL;
	process.wrote_distrust = false;
	pdn_trace.state = PDN_TRACE_UNTRIED;
	pdn_trace_mask = pdn_process_is_off() ? 0 : config->trace_events;
	pdn_thread_look_now();
	errno = error;
}

/* Puts the counts of all threads whose counters are not in the file into one slot. */
static void sum_up(void)
{
	struct pdn_counters sum = {0};
	struct pdn_trace_slot *slot;
	bool any = false;

	for (struct pdn_thread *t = pdn_thread_next_ever(NULL); t; t = pdn_thread_next_ever(t)) {
		/* As in pdn_counter_sum(). */
		struct pdn_counters *counters = __atomic_load_n(&t->counters, __ATOMIC_ACQUIRE);

		if (counters != &t->own_counters)
			continue;
		sum.hits += __atomic_load_n(&counters->hits, __ATOMIC_RELAXED);
		sum.misses += __atomic_load_n(&counters->misses, __ATOMIC_RELAXED);
		sum.tag_checks += __atomic_load_n(&counters->tag_checks, __ATOMIC_RELAXED);
		any = any || sum.hits || sum.misses || sum.tag_checks;
	}
	slot = any ? pdn_trace_slot_new(pdn_trace.header, PDN_SLOT_OF_MANY) : NULL;
	if (slot)
		memcpy(slot, &sum, sizeof(sum));
}

PDN_STARTS void pdn_trace_close(void)
{
	struct pdn_trace_clock end;
	int error = errno;
	struct pdn_alone alone;

	/*
	 * A child that has not noticed the fork leaves its parent's alone. Relaxed: it only decides
	 * which call is the first.
	 */
	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN ||
	    process.pid != (uint32_t)getpid() ||
	    __atomic_exchange_n(&pdn_trace.ended, true, __ATOMIC_RELAXED))
		return;
	pdn_alone_begin(&alone);
	sum_up();
	pdn_trace_clock_read(&end);
	pdn_trace.header->end.monotonic = end.monotonic;
	pdn_trace.header->end.realtime = end.realtime;
	/* Release: readers of the journal take nonzero ticks as the sign that there is an end. */
	__atomic_store_n(&pdn_trace.header->end.ticks, end.ticks, __ATOMIC_RELEASE);
	if (pdn_journal_write_all(pdn_trace_file_write))
		pdn_journal_end();
	else if (pdn_trace_file_is_cut())
		pdn_trace_stop();
	pdn_alone_end(&alone);
	errno = error;
}
