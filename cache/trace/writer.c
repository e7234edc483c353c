// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "cache/trace/writer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cache/base/config.h"
#include "cache/base/lock.h"
#include "cache/base/address_space.h"
#include "cache/base/thread.h"
#include "cache/trace/chunk.h"
#include "cache/trace/clock.h"
#include "cache/trace/file.h"
#include "cache/trace/format.h"
#include "cache/trace/info.h"
#include "cache/trace/journal.h"
#include "cache/trace/stack.h"

/*
 * A thread's place in the file, in its record: trace_piece is its piece of the journal, for the
 * life of the record, and trace_memory that piece's memory; trace_at to trace_end is what is left
 * of it (both NULL: it has no place in the file yet, or is just moving); trace_base is where the
 * 32-bit time stamps count from.
 *
 * Everything rare is hidden in one comparison of the fast path: no piece, piece full, time stamp
 * out of range, another thread's record taken over (trace_base is then RETURNED, out of any range).
 */
enum { FIRST_UNITS = 1, UNITS = 4, CLOCK_WORDS = 5, TWO_WORDS = 2 };
#define RETURNED UINT64_MAX

enum state { UNTRIED, OPENING, OPEN, OFF };

/*
 * The state is stored with release when all else is there, and loaded with acquire by who uses
 * that; it changes from UNTRIED on by compare-and-swap, so that one thread opens.
 */
static struct {
	int state;			/* enum state */
	struct pd_trace_header *header; /* in the journal */
	uint32_t streams;
	uint32_t pid, forked_from;
	bool ended;
	const char *const *call_names;
	unsigned calls;
	const char *distrust; /* see pd_trace_distrust() */
	bool told_distrust;   /* in this file */
} trace;

uint32_t pd_trace_mask;

/* ---- alone ---------------------------------------------------------------------------------- */

/*
 * For what writes into the file, and for what changes a thread's place: neither a signal handler's
 * call, nor one that jumps away, nor cancellation may find that half done, and SIGXFSZ is not the
 * program's to see. Signals that a thread causes itself stay as they are: blocked, they would kill
 * it.
 */
struct alone {
	sigset_t mask;
	int cancel;
};

static void begin_alone(struct alone *alone)
{
	static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&all, own[i]);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &alone->cancel);
	pthread_sigmask(SIG_BLOCK, &all, &alone->mask);
}

static void end_alone(const struct alone *alone)
{
	pthread_sigmask(SIG_SETMASK, &alone->mask, NULL);
	pthread_setcancelstate(alone->cancel, NULL);
}

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

static void take_slot_alone(struct pd_thread *self)
{
	struct alone alone;

	begin_alone(&alone);
	take_slot(self);
	end_alone(&alone);
}

/*
 * A new thread's record: counters go into the file, if there is one, so that they survive a kill.
 * Called by the thread itself.
 */
static void start_thread(struct pd_thread *self)
{
	int error = errno;

	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) == OPEN) {
		if (has_slot(self))
			/*
			 * Relaxed: the slot is taken already; the tid is for readers of the file.
			 */
			__atomic_store_n(&slot_of(self)->tid, (uint32_t)self->tid,
					 __ATOMIC_RELAXED);
		else
			take_slot_alone(self);
	}
	errno = error;
}

PD_NOTIFIED(thread_starts, start_thread);

static void lose(struct pd_thread *self)
{
	struct pd_trace_header *header = trace.header;

	if (self && has_slot(self))
		pd_count(&self->counters->lost_events);
	else if (header) /* relaxed: a count, for the reader of the file */
		__atomic_fetch_add(&header->lost, 1, __ATOMIC_RELAXED);
}

/* ---- opening ----------------------------------------------------------------------------- */

static void fill_header(struct pd_trace_header *header)
{
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
	struct alone alone;
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
		begin_alone(&alone);
		pd_trace_clock_choose();
		opened = create_file(config->trace);
		end_alone(&alone);
	}
	/* Release: pairs with pd_tracing(). */
	__atomic_store_n(&pd_trace_mask, opened ? config->trace_events : 0, __ATOMIC_RELEASE);
	pd_thread_look_now();
	__atomic_store_n(&trace.state, opened ? OPEN : OFF, __ATOMIC_SEQ_CST);
	if (opened && pd_self_tls)
		start_thread(pd_self_tls);
	write_distrust();
	errno = error;
}

void pd_trace_call_names(const char *const *names, unsigned count)
{
	struct alone alone;

	trace.call_names = names;
	trace.calls = count;
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) != OPEN)
		return;
	begin_alone(&alone);
	pd_trace_info_calls(trace.header, names, count);
	pd_trace_file_write(trace.header, PD_TRACE_UNIT, 0);
	end_alone(&alone);
}

/* ---- a thread's place in the file -------------------------------------------------------- */

/*
 * The file is somebody else's now. Counters and pieces stay where they are, until the process
 * ends.
 */
static void stop(void)
{
	__atomic_store_n(&pd_trace_mask, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&trace.state, OFF, __ATOMIC_RELEASE);
	pd_journal_end();
}

static bool write_piece(const struct pd_thread *self)
{
	return pd_trace_file_write(self->trace_memory,
				   (size_t)(self->trace_at - self->trace_memory),
				   self->trace_piece->place - 1);
}

static void begin_chunk(struct pd_thread *self, uint64_t offset, unsigned units, uint64_t base)
{
	struct pd_trace_chunk *chunk = (struct pd_trace_chunk *)(void *)self->trace_memory;
	struct pd_journal_piece *piece = self->trace_piece;

	/* Relaxed: a number of its own is all that a stream needs. */
	if (!piece->chunk_end)
		piece->stream = __atomic_fetch_add(&trace.streams, 1, __ATOMIC_RELAXED);
	chunk->kind = PD_CHUNK_EVENTS;
	chunk->units = (uint16_t)units;
	chunk->stream = piece->stream;
	chunk->sequence = piece->sequence++;
	chunk->tid = (uint32_t)self->tid;
	chunk->base = base;
	pd_trace_clock_read(&chunk->clock);
	piece->chunk_end = offset + (uint64_t)units * PD_TRACE_UNIT;
	self->trace_base = base;
	pd_trace_chunk_publish(trace.header, chunk, offset);
}

/* What is in the piece has been written: it gets its next place, in its chunk or in a new one. */
static bool move_piece(struct pd_thread *self, unsigned words, uint64_t end)
{
	struct pd_journal_piece *piece = self->trace_piece;
	uint64_t offset = piece->next, left;
	unsigned units = 0;

	if (piece->chunk_end - offset < words * 8u) {
		units = piece->chunk_end ? UNITS : FIRST_UNITS;
		offset = pd_trace_file_claim(units);
		if (!offset)
			return false;
	}
	pd_journal_move(piece, self->trace_memory, offset);
	self->trace_at = self->trace_memory;
	if (units) {
		begin_chunk(self, offset, units, end);
		self->trace_at += sizeof(struct pd_trace_chunk);
	}
	left = piece->chunk_end - offset;
	self->trace_end =
		self->trace_memory + (left < PD_JOURNAL_PIECE_SIZE ? left : PD_JOURNAL_PIECE_SIZE);
	return true;
}

/*
 * We are in a signal handler that has come between the taking of a record and its end, or such a
 * handler has jumped away. The piece is left to that record, and written when the trace is closed;
 * the stream goes on in a chunk of its own, since readers stop at what is not complete.
 */
static bool leave_piece(struct pd_thread *self)
{
	struct pd_journal_piece *left = self->trace_piece, *piece;
	char *memory;

	piece = pd_journal_piece_new(PD_CHUNK_EVENTS, &memory);
	if (!piece)
		return false;
	piece->stream = left->stream;
	piece->sequence = left->sequence;
	piece->next = piece->chunk_end = left->chunk_end;
	self->trace_piece = piece;
	self->trace_memory = memory;
	self->trace_at = self->trace_end = NULL;
	return true;
}

/* Room for so many words. False: there is none, and what the thread has written stays as it was. */
static bool next_place(struct pd_thread *self, unsigned words, uint64_t end)
{
	struct pd_journal_piece *piece = self->trace_piece;

	if (!piece) {
		piece = self->trace_piece =
			pd_journal_piece_new(PD_CHUNK_EVENTS, &self->trace_memory);
		/* In a child it was in its parent's journal still. */
		self->trace_at = self->trace_end = NULL;
	}
	if (!piece)
		return false;
	if (self->trace_at) {
		size_t used = (size_t)(self->trace_at - self->trace_memory);

		if (!pd_journal_is_complete(self->trace_memory, used))
			return leave_piece(self) && move_piece(self, words, end);
		if (!write_piece(self))
			return false;
		piece->next = piece->place - 1 + used;
		self->trace_at = self->trace_end = NULL;
	}
	return move_piece(self, words, end);
}

static bool has_room(const struct pd_thread *self, unsigned words)
{
	return self->trace_end - self->trace_at >= (ptrdiff_t)(words * 8u);
}

/*
 * Takes `words` from the piece, in one instruction: a signal handler's call before it or behind it
 * takes others. NULL: such a call has left no room. The record is complete when its first word is
 * stored.
 */
static uint64_t *take(struct pd_thread *self, unsigned words)
{
	uint64_t bytes = words * 8u, at = bytes;

#if defined(__x86_64__)
	__asm__("xaddq %0, %1" : "+r"(at), "+m"(self->trace_at) : : "cc");
#else
	at = (uint64_t)__atomic_fetch_add(&self->trace_at, bytes, __ATOMIC_RELAXED);
#endif
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return at + bytes <= (uint64_t)self->trace_end ? (uint64_t *)at : NULL;
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

static bool make_room_alone(struct pd_thread *self, unsigned words, uint64_t end)
{
	const unsigned more = CLOCK_WORDS + TWO_WORDS + TWO_WORDS;

	if (!has_slot(self))
		take_slot(self);
	if (!has_room(self, words + more) && !next_place(self, words + more, end)) {
		if (pd_trace_file_is_cut())
			stop();
		return false;
	}
	if (self->trace_base == RETURNED)
		put_word(self, PD_RECORD_THREAD, (uint32_t)self->tid);
	if (end - self->trace_base > UINT32_MAX)
		put_clock(self, end);
	if (has_slot(self))
		put_lost(self);
	return true;
}

/* See the comment at the top: whatever it is that is missing. */
static __attribute__((noinline)) bool make_room(struct pd_thread *self, unsigned words,
						uint64_t end, bool is_event)
{
	int error = errno;
	struct alone alone;
	bool ready = false;

	/* In a child that has not been told, the windows show the parent's file. */
	if (!pd_process_is_known()) {
		if (pd_locks_held)
			return false;
		pd_process_begin();
	}
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) != OPEN)
		pd_trace_open();
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) == OPEN) {
		/* Each lost event would cost system calls. */
		if (has_room(self, words) || !pd_trace_file_is_full()) {
			begin_alone(&alone);
			ready = make_room_alone(self, words, end);
			end_alone(&alone);
		}
		if (!ready && is_event)
			lose(self);
	}
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

/*
 * After the trace has been closed each thread writes its events at once. Relaxed: what another
 * thread writes while it is being closed may be missing, as if the process had ended a moment
 * earlier.
 */
static __attribute__((noinline)) void write_late(const struct pd_thread *self)
{
	int error = errno;
	struct alone alone;

	begin_alone(&alone);
	if (self->trace_piece) /* in a child that was forked in between it has none */
		write_piece(self);
	end_alone(&alone);
	errno = error;
}

static inline void write_if_late(struct pd_thread *self)
{
	if (__builtin_expect(__atomic_load_n(&trace.ended, __ATOMIC_RELAXED), 0))
		write_late(self);
}

bool pd_trace_words(enum pd_record type, unsigned what, const uint64_t *words, unsigned count)
{
	struct pd_thread *self = pd_self();
	uint64_t *at;

	if (!self || !prepare(self, count + 1, pd_ticks(), false))
		return false;
	at = take(self, count + 1);
	if (!at)
		return false;
	memcpy(at + 1, words, count * sizeof(*words));
	commit(at, count + 1, type, what, 0);
	write_if_late(self);
	return true;
}

/*
 * The thread whose record this is dies. What it leaves of its chunk is for the thread that gets the
 * record next; events that this thread still has are written all the same.
 */
static void end_thread(struct pd_thread *self)
{
	self->trace_base = RETURNED;
	self->stack_low = self->stack_high = 0;
}

PD_NOTIFIED(thread_exits, end_thread);

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

/*
 * The end in ticks after the base that counts at `at`. If a signal handler's call has begun a
 * chunk meanwhile, that is its base in the thread's piece, and the one of before in a piece that
 * it has left.
 */
static inline uint64_t when_of(const struct pd_thread *self, const uint64_t *at, uint64_t base,
			       uint64_t end)
{
	uint64_t now = self->trace_base;

	if (__builtin_expect(now != base, 0) &&
	    (size_t)((const char *)at - self->trace_memory) < PD_JOURNAL_PIECE_SIZE)
		base = now;
	return end - base <= UINT32_MAX ? end - base : 0;
}

static inline void write_text(struct draft *draft, enum pd_record type, unsigned what,
			      unsigned aside, uint64_t taken, uint64_t end, const char *text,
			      unsigned length)
{
	unsigned text_words = (length + 7) / 8, words = draft->used + text_words;
	struct pd_thread *self = pd_self();
	uint64_t *at, base;

	if (__builtin_expect(!self, 0)) {
		lose(NULL);
		return;
	}
	if (!prepare(self, words, end, true))
		return;
	base = self->trace_base;
	at = take(self, words);
	if (__builtin_expect(!at, 0)) {
		lose(self);
		return;
	}
	at[1] = (uint32_t)taken | (uint64_t)draft->fields << 32 | (uint64_t)aside << 48;
	for (unsigned i = 2; i < draft->used; i++)
		at[i] = draft->words[i];
	if (text_words)
		memcpy(at + draft->used, text, length);
	commit(at, words, type, what, when_of(self, at, base, end));
	write_if_late(self);
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

	if (trace.state == UNTRIED || (trace.state == OFF && !trace.header))
		return;
	/*
	 * The records' pieces are in the parent's journal: nothing more is written there. trace_at
	 * stays, as this may be a signal handler that has interrupted who was about to.
	 */
	for (struct pd_thread *t = pd_threads(); t; t = t->next) {
		t->trace_end = NULL;
		t->trace_piece = NULL;
		t->trace_base = 0;
		t->counters = &t->own_counters;
		memset(&t->own_counters, 0, sizeof(t->own_counters));
	}
	pd_trace_file_forget();
	pd_journal_forget();
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
	struct alone alone;

	/* Relaxed: it only says who is first. */
	if (__atomic_load_n(&trace.state, __ATOMIC_ACQUIRE) != OPEN ||
	    __atomic_exchange_n(&trace.ended, true, __ATOMIC_RELAXED))
		return;
	begin_alone(&alone);
	sum_up();
	pd_trace_clock_read(&end);
	trace.header->end.monotonic = end.monotonic;
	trace.header->end.realtime = end.realtime;
	/* Release: for readers of the journal, to whom ticks say that there is an end. */
	__atomic_store_n(&trace.header->end.ticks, end.ticks, __ATOMIC_RELEASE);
	if (pd_journal_write_all(pd_trace_file_write))
		pd_journal_end();
	else if (pd_trace_file_is_cut())
		stop();
	end_alone(&alone);
	errno = error;
}
