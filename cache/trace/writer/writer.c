// SPDX-License-Identifier: MIT
/* The life of the trace: opening it, what it says about the process, fork and exit. */
#define _GNU_SOURCE
#include "cache/trace/writer/writer.h"

#include "cache/base/process/process.h"

#include <string.h>
#include <unistd.h>

#include "cache/base/environment/config.h"
#include "cache/base/thread/lock.h"
#include "cache/base/thread/thread.h"
#include "cache/trace/journal/rescue.h"
#include "cache/trace/stack/stack.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/writer/file.h"
#include "cache/trace/writer/info.h"
#include "cache/trace/writer/stream.h"

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
	*header = (struct pdn_trace_header){
		.major = PDN_TRACE_MAJOR,
		.minor = PDN_TRACE_MINOR,
		.header_bytes = PDN_TRACE_HEADER_BYTES,
		.unit = PDN_TRACE_UNIT,
		.pid = process.pid = (uint32_t)getpid(),
		.ppid = (uint32_t)getppid(),
		.flags = pdn_ticks_steady ? 0 : PDN_TRACE_TICKS_ARE_NS,
		.event_mask = pdn_config()->trace_events,
		.forked_from = process.forked_from,
		.units = 1,
	};
	memcpy(header->magic, PDN_TRACE_MAGIC, sizeof(header->magic));
	pdn_trace_clock_read(&header->begin);
	pdn_trace_info_write(header, process.call_names);
}

static bool create_file(const char *name)
{
	struct pdn_trace_header *header;

	pdn_journal_rescue();
	header = pdn_journal_begin();
	if (header)
		fill_header(header);
	if (!pdn_trace_file_create(name, header)) {
		pdn_journal_end();
		pdn_journal_forget();
		return false;
	}
	pdn_trace.header = header;
	pdn_trace.ended = false;
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
	pdn_trace_info_text(pdn_trace.header, PDN_INFO_DISTRUST, why);
	pdn_trace_error(why, 0, 0, 0);
}

void pdn_trace_distrust(const char *why)
{
	__atomic_store_n(&process.distrust, why, __ATOMIC_SEQ_CST);
	write_distrust();
}

void pdn_trace_open(void)
{
	const struct pdn_config *config;
	int untried = PDN_TRACE_UNTRIED;
	struct pdn_backoff rest = {0};
	struct pdn_shield alone;
	uint64_t end;
	bool opened;

	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) >= PDN_TRACE_OPEN)
		return;
	config = pdn_config();
	end = pdn_race_deadline();
	if (!__atomic_compare_exchange_n(&pdn_trace.state, &untried, PDN_TRACE_OPENING, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		/* Another thread is opening. That takes microseconds, unless it is killed there. */
		while (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) == PDN_TRACE_OPENING &&
		       pdn_deadline(0) < end)
			pdn_backoff(&rest);
		return;
	}
	opened = config->enabled && config->trace && !pdn_process_is_off();
	if (opened) {
		pdn_alone_begin(&alone);
		pdn_trace_clock_choose();
		opened = create_file(config->trace);
		pdn_shield_down(&alone);
	}
	/* Release: pairs with pdn_tracing(). */
	__atomic_store_n(&pdn_trace_mask, opened ? config->trace_events : 0, __ATOMIC_RELEASE);
	pdn_thread_look_now();
	__atomic_store_n(&pdn_trace.state, opened ? PDN_TRACE_OPEN : PDN_TRACE_OFF,
			 __ATOMIC_SEQ_CST);
	if (opened && pdn_self_tls)
		pdn_stream_start_thread(pdn_self_tls);
	write_distrust();
}

PDN_STARTS void pdn_trace_call_names(const char *names)
{
	struct pdn_shield alone;

	process.call_names = names;
	if (__atomic_load_n(&pdn_trace.state, __ATOMIC_ACQUIRE) != PDN_TRACE_OPEN)
		return;
	pdn_alone_begin(&alone);
	pdn_trace_info_calls(pdn_trace.header, names);
	pdn_trace_file_write(pdn_trace.header, PDN_TRACE_UNIT, 0);
	pdn_shield_down(&alone);
}

/* ---- fork and exit -------------------------------------------------------------------------- */

void pdn_trace_fork_child(void)
{
	pdn_stacks_fork_child(); /* lines on standard error have used it without a trace, too */
	if (pdn_trace.state == PDN_TRACE_UNTRIED ||
	    (pdn_trace.state == PDN_TRACE_OFF && !pdn_trace.header))
		return;
	pdn_streams_fork_child();
	pdn_trace_file_forget();
	pdn_journal_forget();
	process.forked_from = process.pid;
	pdn_trace.header = NULL;
	process.wrote_distrust = false;
	pdn_trace.state = PDN_TRACE_UNTRIED;
	pdn_trace_mask = pdn_process_is_off() ? 0 : pdn_config()->trace_events;
	pdn_thread_look_now();
}

/* Puts the counts of all threads whose counters are not in the file into one slot. */
static void sum_up(void)
{
	struct pdn_trace_slot *slot;
	uint64_t sum[3] = {0}; /* hits, misses, tag checks */

	for (struct pdn_thread *t = pdn_thread_next_ever(NULL); t; t = pdn_thread_next_ever(t)) {
		/* As in pdn_counter_sum(). */
		struct pdn_counters *counters = __atomic_load_n(&t->counters, __ATOMIC_ACQUIRE);

		for (unsigned i = 0; i < 3 && counters == &t->own_counters; i++)
			sum[i] += __atomic_load_n(&counters->hits + i, __ATOMIC_RELAXED);
	}
	slot = sum[0] || sum[1] || sum[2] ? pdn_stream_slot_new(PDN_SLOT_OF_MANY) : NULL;
	if (slot)
		memcpy(slot, sum, sizeof(sum));
}

PDN_STARTS void pdn_trace_close(void)
{
	struct pdn_trace_clock end;
	struct pdn_shield alone;

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
	pdn_shield_down(&alone);
}
