// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "lock.h"
#include "pages.h"
#include "thread.h"
#include "trace_chunk.h"
#include "trace_clock.h"
#include "trace_file.h"
#include "trace_format.h"
#include "trace_info.h"
#include "trace_stack.h"

/*
 * A thread's place in the file, in its record: trace_chunk is its window, address space that is
 * kept for the life of the record; trace_at to trace_end is what is left of the chunk mapped there
 * (both NULL: none is); trace_base is where the 32-bit time stamps count from.
 *
 * Everything rare is hidden in one comparison of the fast path: no chunk, chunk full, time stamp
 * out of range, another thread's record taken over (trace_base is then RETURNED, out of any range).
 */
enum { FIRST_UNITS = 1, UNITS = 4, CLOCK_WORDS = 5, TWO_WORDS = 2 };
#define RETURNED UINT64_MAX

enum state { UNTRIED, OPENING, OPEN, OFF };

/*
 * The state is stored with release when all else is there, and loaded with acquire by who uses that;
 * it changes from UNTRIED on by compare-and-swap, so that one thread opens.
 */
static struct {
	int state; /* enum state */
	struct pd_trace_header *header;
	uint32_t streams;
	uint32_t pid, forked_from;
	bool ended;
	const char *const *call_names;
	unsigned calls;
	const char *distrust; /* see pd_trace_distrust() */
	bool told_distrust;   /* in this file */
} trace;

uint32_t pd_trace_mask;

/* ---- counters in the file ------------------------------------------------------------------- */

static bool has_slot(const struct pd_thread *self)
{
	return self->counters != &self->own_counters;
}

static struct pd_trace_slot *slot_of(struct pd_thread *self)
{
	_Static_assert(offsetof(struct pd_trace_slot, told) == sizeof(struct pd_counters),
		       "a slot begins with the counters");
	return (struct pd_trace_slot *)self->counters;
}

/*
 * The owner's counters move into the file. Release: pairs with pd_counter_sum(), which finds them
 * filled.
 */
static void take_slot(struct pd_thread *self)
{
	struct pd_trace_slot *slot = pd_trace_slot_new(trace.header, (uint32_t)self->tid);

	if (!slot)
		return;
	memcpy(slot, &self->own_counters, sizeof(self->own_counters));
	__atomic_store_n(&self->counters, (struct pd_counters *)slot, __ATOMIC_RELEASE);
}

static void lose(struct pd_thread *self)
{
	struct pd_trace_header *header = trace.header;

	if (self && has_slot(self))
		pd_count(&self->counters->lost_events);
	else if (header) /* relaxed: a count, for the reader of the file */
		__atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED);
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool create_file(const char *name)
{
	struct pd_trace_header *header = pd_trace_file_create(name);

	if (!header)
		return false;
	header->major = PD_TRACE_MAJOR;
	header->minor = PD_TRACE_MINOR;
	header->header_bytes = PD_TRACE_HEADER_BYTES;
	header->unit = PD_TRACE_UNIT;
	header->pid = trace.pid = (uint32_t)getpid();
	header->ppid = (uint32_t)getppid();
	header->flags = pd_ticks_steady ? 0 : PD_TRACE_TICKS_ARE_NS;
	header->event_mask = pd_config()->trace_events;
	header->forked_from = trace.forked_from;
	header->units = 1;
	pd_trace_clock_read(&header->begin);
	pd_trace_info_write(header, trace.call_names, trace.calls);
	/* Last: a file without it is none yet. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memcpy(header->magic, PD_TRACE_MAGIC, sizeof(header->magic));
	trace.header = header;
	trace.ended = false;
	if (pd_config()->trace_stacks)
		pd_stacks_begin(pd_config()->trace_stacks < PD_TRACE_MOST_FRAMES
					? (unsigned)pd_config()->trace_stacks
					: PD_TRACE_MOST_FRAMES);
	return true;
}

/* Both who opens and who has the reason come here, and one of them sees the other. */
static void write_distrust(void)
{
	const char *why = __atomic_load_n(&trace.distrust, __ATOMIC_SEQ_CST);

	if (!why || __atomic_load_n(&trace.state, __ATOMIC_SEQ_CST) != OPEN ||
	    __atomic_exchange_n(&trace.told_distrust, true, __ATOMIC_RELAXED))
		return;
	pd_trace_info_distrust(trace.header, why);
	pd_trace_error(why, 0, 0, 0);
}

void pd_trace_distrust(const char *why)
{
	__atomic_store_n(&trace.distrust, why, __ATOMIC_SEQ_CST);
	write_distrust();
}

/* Another thread opens: a matter of microseconds, unless it was killed half-way. */
static void wait_for_opening(void)
{
	uint64_t end = pd_race_deadline();
	struct pd_rest rest = {0};

	while (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) == OPENING && pd_ticks_ns() < end)
		pd_rest(&rest);
}

void pd_trace_open(void)
{
	const struct pd_config *config;
	int untried = UNTRIED, error = errno;
	bool opened;

	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) >= OPEN)
		return;
	config = pd_config();
	if (!__atomic_compare_exchange_n(&trace.state, &untried, OPENING, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_ACQUIRE)) {
		wait_for_opening();
		errno = error;
		return;
	}
	opened = config->enabled && config->trace;
	if (opened) {
		pd_trace_clock_choose();
		opened = create_file(config->trace);
	}
	/* Release: pairs with pd_tracing(). */
	__atomic_store_n(&pd_trace_mask, opened ? config->trace_events : 0, __ATOMIC_RELEASE);
	pd_thread_look_now();
	__atomic_store_n(&trace.state, opened ? OPEN : OFF, __ATOMIC_SEQ_CST);
	if (opened && pd_self_tls)
		pd_trace_thread_start(pd_self_tls);
	write_distrust();
	errno = error;
}

void pd_trace_call_names(const char *const *names, unsigned count)
{
	trace.call_names = names;
	trace.calls = count;
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) == OPEN)
		pd_trace_info_calls(trace.header, names, count);
}

/* ---- a thread's place in the file -------------------------------------------------------- */

/* Without room in the file the thread's place stays what it was. */
static bool next_chunk(struct pd_thread *self, uint64_t end)
{
	struct pd_trace_chunk *window = self->trace_chunk, *chunk;
	bool first = !self->trace_end;
	unsigned units = first ? FIRST_UNITS : UNITS;
	uint32_t stream, sequence;
	uint64_t offset;

	if (!window) {
		window = pd_trace_window(UNITS * PD_TRACE_UNIT);
		if (!window)
			return false;
		self->trace_chunk = window;
	}
	offset = pd_trace_file_claim(units);
	if (!offset)
		return false;
	/* Relaxed: a number of its own is all that a stream needs. */
	stream = first ? __atomic_fetch_add(&trace.streams, 1, __ATOMIC_RELAXED) : window->stream;
	sequence = first ? 0 : window->sequence + 1;
	/* Nothing may be written there by a signal handler's call while the window changes. */
	self->trace_at = self->trace_end = NULL;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	chunk = pd_trace_chunk_map(window, PD_CHUNK_EVENTS, offset, units);
	if (!chunk)
		return false;
	chunk->stream = stream;
	chunk->sequence = sequence;
	chunk->tid = (uint32_t)self->tid;
	chunk->base = end;
	pd_trace_clock_read(&chunk->clock);
	pd_trace_chunk_publish(trace.header, chunk, offset);
	self->trace_base = end;
	self->trace_at = (char *)(chunk + 1);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->trace_end = (char *)chunk + (size_t)units * PD_TRACE_UNIT;
	return true;
}

static bool has_room(const struct pd_thread *self, unsigned words)
{
	return self->trace_end && (size_t)(self->trace_end - self->trace_at) >= words * 8u;
}

/* Takes `words` from the chunk. The record is complete when its first word is stored. */
static uint64_t *take(struct pd_thread *self, unsigned words)
{
	uint64_t *at = (uint64_t *)(void *)self->trace_at;

	self->trace_at += words * 8u;
	/* Before the words are filled: a call from a signal handler takes others. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return at;
}

/* Release: pairs with readers of the file, who look at a record's first word first. */
static void commit(uint64_t *at, unsigned words, enum pd_record type, unsigned what, uint64_t when)
{
	__atomic_store_n(at, words | (uint64_t)type << 8 | (uint64_t)what << 16 | when << 32,
			 __ATOMIC_RELEASE);
}

static void put_word(struct pd_thread *self, enum pd_record type, uint64_t word)
{
	uint64_t *at = take(self, TWO_WORDS);

	at[1] = word;
	commit(at, TWO_WORDS, type, 0, 0);
}

static void put_clock(struct pd_thread *self, uint64_t base)
{
	uint64_t *at = take(self, CLOCK_WORDS);
	struct pd_trace_clock clock;

	pd_trace_clock_read(&clock);
	at[1] = base;
	at[2] = clock.ticks;
	at[3] = clock.monotonic;
	at[4] = clock.realtime;
	commit(at, CLOCK_WORDS, PD_RECORD_CLOCK, 0, 0);
	self->trace_base = base;
}

/* Say where events were lost, now that there is room again. */
static void put_lost(struct pd_thread *self)
{
	struct pd_trace_slot *slot = slot_of(self);
	uint64_t lost = self->counters->lost_events;

	if (lost == slot->told)
		return;
	put_word(self, PD_RECORD_LOST, lost - slot->told);
	slot->told = lost;
}

/* See the comment at the top: whatever it is that is missing. */
static __attribute__((noinline)) bool make_room(struct pd_thread *self, unsigned words,
						uint64_t end, bool is_event)
{
	const unsigned more = CLOCK_WORDS + TWO_WORDS + TWO_WORDS;
	bool other_thread, ready = true;
	int error = errno;

	/* In a child that has not been told, the windows show the parent's file. */
	if (!pd_process_is_known()) {
		if (pd_locks_held)
			return false;
		pd_process_begin();
	}
	other_thread = self->trace_base == RETURNED;
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) != OPEN)
		pd_trace_open();
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) != OPEN) {
		errno = error;
		return false;
	}
	if (!has_slot(self))
		take_slot(self);
	if (!has_room(self, words + more)) {
		ready = next_chunk(self, end);
	} else {
		if (other_thread)
			put_word(self, PD_RECORD_THREAD, (uint32_t)self->tid);
		put_clock(self, end);
	}
	if (!ready && is_event)
		lose(self);
	else if (ready && has_slot(self))
		put_lost(self);
	errno = error;
	return ready;
}

static inline bool prepare(struct pd_thread *self, unsigned words, uint64_t end, bool is_event)
{
	if (__builtin_expect(end - self->trace_base <= UINT32_MAX && has_room(self, words), 1) &&
	    pd_process_is_known())
		return true;
	return make_room(self, words, end, is_event);
}

bool pd_trace_words(enum pd_record type, unsigned what, const uint64_t *words, unsigned count)
{
	struct pd_thread *self = pd_self();
	uint64_t *at;

	if (!self || !prepare(self, count + 1, pd_ticks(), false))
		return false;
	at = take(self, count + 1);
	memcpy(at + 1, words, count * sizeof(*words));
	commit(at, count + 1, type, what, 0);
	return true;
}

void pd_trace_thread_start(struct pd_thread *self)
{
	int error = errno;

	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) == OPEN) {
		if (has_slot(self))
			/* Relaxed: the slot is taken already; the tid is for readers of the file. */
			__atomic_store_n(&slot_of(self)->tid, (uint32_t)self->tid,
					 __ATOMIC_RELAXED);
		else
			take_slot(self);
	}
	errno = error;
}

void pd_trace_thread_exit(struct pd_thread *self)
{
	self->trace_base = RETURNED;
	self->stack_low = self->stack_high = 0;
}

/* ---- events ------------------------------------------------------------------------------ */

/* Fields are gathered here in the order of their PD_HAS bits. */
struct draft {
	uint64_t words[2 + 16];
	unsigned used, fields;
};

static inline void add_always(struct draft *draft, unsigned field, uint64_t value)
{
	draft->words[draft->used++] = value;
	draft->fields |= field;
}

static inline void add(struct draft *draft, unsigned field, uint64_t value)
{
	if (value)
		add_always(draft, field, value);
}

/* The highest field that an event can have. */
static inline void add_stack(struct draft *draft)
{
	struct pd_thread *self;

	if (__builtin_expect(!pd_stacks_depth, 1))
		return;
	self = pd_self();
	if (self)
		add(draft, PD_HAS_STACK, pd_stack_take(self));
}

static inline uint64_t time_taken(uint64_t begin, uint64_t end)
{
	return begin && begin < end ? end - begin : 0;
}

static inline void write_text(struct draft *draft, enum pd_record type, unsigned what,
			      unsigned aside, uint64_t taken, uint64_t end, const char *text,
			      unsigned length)
{
	unsigned text_words = (length + 7) / 8, words = draft->used + text_words;
	struct pd_thread *self = pd_self();
	uint64_t *at;

	if (__builtin_expect(!self, 0)) {
		lose(NULL);
		return;
	}
	if (!prepare(self, words, end, true))
		return;
	at = take(self, words);
	at[1] = (uint32_t)taken | (uint64_t)draft->fields << 32 | (uint64_t)aside << 48;
	for (unsigned i = 2; i < draft->used; i++)
		at[i] = draft->words[i];
	if (text_words)
		memcpy(at + draft->used, text, length);
	commit(at, words, type, what, end - self->trace_base);
}

static inline void write_draft(struct draft *draft, enum pd_record type, unsigned what,
			       unsigned aside, uint64_t taken, uint64_t end)
{
	write_text(draft, type, what, aside, taken, end, NULL, 0);
}

void pd_trace_call(unsigned call, uint64_t addr, uint64_t size, int result, uint64_t begin,
		   uint64_t end, uint64_t extra)
{
	uint64_t taken = time_taken(begin, end);
	bool fits = (unsigned)result <= UINT16_MAX, quick = taken <= UINT32_MAX;
	struct draft draft;

	if (!pd_tracing(PD_EV_CALL))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PD_HAS_ADDR, addr);
	add(&draft, PD_HAS_SIZE, size);
	if (__builtin_expect(!fits, 0))
		add(&draft, PD_HAS_RESULT, (uint64_t)(int64_t)result);
	if (__builtin_expect(!quick, 0))
		add(&draft, PD_HAS_DURATION, taken);
	add(&draft, PD_HAS_EXTRA, extra);
	add_stack(&draft);
	write_draft(&draft, PD_RECORD_CALL, call, fits ? (unsigned)result : 0, quick ? taken : 0,
		    end);
}

void pd_trace_region(enum pd_event event, const struct pd_trace_region *what, uint64_t begin,
		     uint64_t end)
{
	uint64_t taken = time_taken(begin, end);
	bool quick = taken <= UINT32_MAX;
	struct draft draft;

	if (!pd_tracing(event))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PD_HAS_ADDR, what->addr);
	add(&draft, PD_HAS_SIZE, what->size);
	add(&draft, PD_HAS_RESULT, (uint64_t)(int64_t)what->result);
	if (!quick)
		add(&draft, PD_HAS_DURATION, taken);
	/* Device 0 and region 0 are some too. */
	add_always(&draft, PD_HAS_REGION,
		   what->region | (uint64_t)what->reason << 32 |
			   (uint64_t)(uint16_t)what->device << 48);
	add(&draft, PD_HAS_PIN_ADDR, what->pin_addr);
	add(&draft, PD_HAS_PIN_SIZE, what->pin_size);
	add(&draft, PD_HAS_BUFFER_ID, what->buffer_id);
	add(&draft, PD_HAS_CONTEXT, what->context);
	if (event != PD_EV_HIT)
		add_stack(&draft);
	write_draft(&draft, PD_RECORD_REGION, event, what->flags, quick ? taken : 0, end);
}

void pd_trace_note(enum pd_event event, const struct pd_trace_note *what, uint64_t begin,
		   uint64_t end)
{
	unsigned length = what->name ? (unsigned)strnlen(what->name, PD_ERROR_MOST_TEXT) : 0;
	uint64_t taken = time_taken(begin, end);
	bool quick = taken <= UINT32_MAX;
	struct draft draft;

	if (!pd_tracing(event))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PD_HAS_ADDR, what->addr);
	add(&draft, PD_HAS_SIZE, what->size);
	add(&draft, PD_HAS_RESULT, (uint64_t)(int64_t)what->result);
	if (!quick)
		add(&draft, PD_HAS_DURATION, taken);
	add_always(&draft, PD_HAS_EXTRA, what->extra);
	add_always(&draft, PD_HAS_REGION,
		   what->region | (uint64_t)what->reason << 32 |
			   (uint64_t)(uint16_t)what->device << 48);
	add(&draft, PD_HAS_PIN_SIZE, what->pin_size);
	add(&draft, PD_HAS_BUFFER_ID, what->buffer_id);
	if (what->stack)
		add(&draft, PD_HAS_STACK, what->stack);
	else
		add_stack(&draft);
	add(&draft, PD_HAS_KEY, what->key);
	add(&draft, PD_HAS_NUMBER, what->number);
	write_text(&draft, PD_RECORD_NOTE, event, (what->flags & 0xffu) | length << 8,
		   quick ? taken : 0, end, what->name, length);
}

void pd_trace_error(const char *text, uint64_t addr, uint64_t size, int result)
{
	unsigned length = (unsigned)strnlen(text, PD_ERROR_MOST_TEXT);
	struct draft draft;

	if (!pd_tracing(PD_EV_ERROR))
		return;
	draft.used = 2;
	draft.fields = 0;
	add(&draft, PD_HAS_ADDR, addr);
	add(&draft, PD_HAS_SIZE, size);
	add(&draft, PD_HAS_RESULT, (uint64_t)(int64_t)result);
	add_stack(&draft);
	write_text(&draft, PD_RECORD_ERROR, PD_EV_ERROR, length, 0, pd_ticks(), text, length);
}

/* ---- fork and exit ----------------------------------------------------------------------- */

void pd_trace_fork_child(void)
{
	const struct pd_config *config = pd_config();
	int error = errno;

	if (trace.state == UNTRIED || trace.state == OFF)
		return;
	/*
	 * The records' windows still show the parent's file: nothing more is written there.
	 * trace_at stays, as this may be a signal handler that has interrupted who was about to.
	 */
	for (struct pd_thread *t = pd_threads(); t; t = t->next) {
		t->trace_end = NULL;
		t->trace_base = 0;
		t->counters = &t->own_counters;
		memset(&t->own_counters, 0, sizeof(t->own_counters));
	}
	pd_trace_file_forget();
	if (trace.header)
		pd_make_private(trace.header, PD_TRACE_UNIT);
	trace.forked_from = trace.pid;
	pd_trace_slots_forget();
	pd_stacks_fork_child();
	trace.header = NULL;
	trace.told_distrust = false;
	trace.streams = 0;
	trace.state = UNTRIED;
	pd_trace_mask = config->trace_events;
	pd_thread_look_now();
	errno = error;
}

/* Threads whose counters are still their own: what they counted goes into one slot. */
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
	slot = any ? pd_trace_slot_new(trace.header, PD_SLOT_OF_MANY) : NULL;
	if (slot)
		memcpy(slot, &sum, sizeof(sum));
}

void pd_trace_close(void)
{
	struct pd_trace_clock end;
	int error = errno;

	/* Relaxed: it only says who is first. */
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) != OPEN ||
	    __atomic_exchange_n(&trace.ended, true, __ATOMIC_RELAXED))
		return;
	sum_up();
	pd_trace_clock_read(&end);
	trace.header->end.monotonic = end.monotonic;
	trace.header->end.realtime = end.realtime;
	/* Release: for readers of the file, to whom ticks say that there is an end. */
	__atomic_store_n(&trace.header->end.ticks, end.ticks, __ATOMIC_RELEASE);
	errno = error;
}
