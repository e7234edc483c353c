// SPDX-License-Identifier: MIT
/* Walking up call stacks with cached rules, and numbering the stacks that a trace has. */
#define _GNU_SOURCE
#include "cache/trace/stack.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>

#include "cache/base/address_space.h"
#include "cache/base/safe_read.h"
#include "cache/base/thread.h"
#include "cache/trace/writer.h"
#include "cache/trace/modules.h"
#include "cache/trace/unwind.h"

/* For reads of stack words, which to a sanitizer are the red zones of other variables. */
#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/*
 * What is known about a return address. A writer sets `key` to BUSY first and stores it last; a
 * reader checks it again after reading the rest.
 */
struct place {
	uint64_t key;	/* the address, and the generation above it; 0: free, BUSY: being written */
	uint64_t frame; /* as in the trace; IN_LIBPINDOWN: not shown; NOT_A_RETURN */
	struct pdn_rule rule;
};

enum { PLACES = 1 << 14, STACKS = 1 << 16, NEAR = 8, PAGE = 4096 };
enum { FEW = 8 }; /* frames of a stack where stacks are not wanted */
enum { MAX_OWN_STACK = 1 << 20, MAX_FRAME = 1 << 20, MAX_FOREIGN = 1 << 18 };
#define BUSY	      1ull
#define IN_LIBPINDOWN UINT64_MAX
#define NOT_A_RETURN  (UINT64_MAX - 1)
#if defined(__x86_64__)
#define ADDRESS_BITS 47
#else
#define ADDRESS_BITS 48 /* an address above them is only handed out on request */
#endif
#define STEPS (PDN_TRACE_MAX_FRAMES + 32) /* those of libpindown.so included */

unsigned pdn_stacks_depth;

static struct place *places;
/* The hash of each written stack; its number is its place + 1. */
static uint64_t *stacks;
/*
 * Rises when code is unloaded. Relaxed where it is only compared; release where it rises, and
 * acquire before something new is looked up, which is then as of after the unloading.
 */
static uint32_t generation;
static bool unloaded; /* code was unloaded since the last loading */

/* ---- what is known about an address --------------------------------------------------------- */

/* Is there a call instruction just before? A word found by a wrong step is seldom after one. */
static bool follows_a_call(uint64_t pc)
{
#if defined(__x86_64__)
	unsigned char before[7] = {0};

	/* The code's mapping may begin less than 7 bytes before. */
	if (!pdn_safe_read(before, pc - 7, 7) && !pdn_safe_read(before + 2, pc - 5, 5) &&
	    !pdn_safe_read(before + 5, pc - 2, 2))
		return false;
	if (before[2] == 0xe8)
		return true;
	for (unsigned length = 2; length <= 7; length++) /* call through a register or memory */
		if (before[7 - length] == 0xff && (before[8 - length] & 0x38) == 0x10)
			return true;
	return false;
#else
	uint32_t before;

	return pdn_safe_read(&before, pc - 4, 4) &&
	       ((before & 0xfc000000) == 0x94000000 || /* bl */
		(before & 0xfffffc1f) == 0xd63f0000 || /* blr */
		(before & 0xfefff800) == 0xd63f0800);  /* blraa and the like */
#endif
}

static void examine_address(uint64_t pc, uint32_t now, struct place *place)
{
	const struct pdn_module *module;

	place->rule = (struct pdn_rule){.step = PDN_STEP_POINTER};
	place->frame = NOT_A_RETURN;
	if (!follows_a_call(pc))
		return;
	module = pdn_module_find(pc, now);
	place->frame = pc;
	if (!module)
		return;
	/* pc - 1 is in the call instruction: the next one may belong to another function. */
	if (module->index)
		place->rule = pdn_unwind_rule(module->index, module->index_bytes, pc - 1);
	place->frame = (uint64_t)module->number << PDN_FRAME_OFFSET_BITS | (pc - module->bias);
	if (module->in_libpindown)
		place->frame = IN_LIBPINDOWN;
	else if ((pc - module->bias) >> PDN_FRAME_OFFSET_BITS)
		place->frame = pc;
}

static uint64_t mix(uint64_t value)
{
	return value * 0x9e3779b97f4a7c15ull;
}

static bool is_stale(uint64_t key, uint32_t now)
{
	return key != BUSY && key >> ADDRESS_BITS != (now & ((1u << (64 - ADDRESS_BITS)) - 1));
}

static void store_place(uint64_t key, uint32_t now, const struct place *place)
{
	uint32_t home = (uint32_t)(mix(key) >> 50);

	for (unsigned i = 0; i < NEAR; i++) {
		struct place *slot = &places[(home + i) & (PLACES - 1)];
		/* Relaxed: a first look; the exchange decides. */
		uint64_t old = __atomic_load_n(&slot->key, __ATOMIC_RELAXED);

		if (old == key)
			return;
		if ((old && !is_stale(old, now)) ||
		    !__atomic_compare_exchange_n(&slot->key, &old, BUSY, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		/* A reader sees these stores after BUSY, and the key after all of them ... */
		__atomic_store_n(&slot->frame, place->frame, __ATOMIC_RELEASE);
		__atomic_store_n(&slot->rule.step, place->rule.step, __ATOMIC_RELEASE);
		__atomic_store_n(&slot->rule.cfa, place->rule.cfa, __ATOMIC_RELEASE);
		__atomic_store_n(&slot->rule.saved, place->rule.saved, __ATOMIC_RELEASE);
#if defined(__aarch64__)
		__atomic_store_n(&slot->rule.returns, place->rule.returns, __ATOMIC_RELEASE);
#endif
		__atomic_store_n(&slot->key, key, __ATOMIC_RELEASE);
		return;
	}
}

static __attribute__((noinline)) void look_up_slow(uint64_t pc, uint64_t key, struct place *place)
{
	uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);

	examine_address(pc, now, place);
	store_place(key, now, place);
}

static inline void look_up(uint64_t pc, uint64_t epoch, struct place *place)
{
	uint64_t key = pc | epoch << ADDRESS_BITS;
	uint32_t home = (uint32_t)(mix(key) >> 50);

	for (unsigned i = 0; i < NEAR; i++) {
		struct place *slot = &places[(home + i) & (PLACES - 1)];

		if (__atomic_load_n(&slot->key, __ATOMIC_ACQUIRE) != key)
			continue;
		place->frame = __atomic_load_n(&slot->frame, __ATOMIC_ACQUIRE);
		place->rule.step = __atomic_load_n(&slot->rule.step, __ATOMIC_ACQUIRE);
		place->rule.cfa = __atomic_load_n(&slot->rule.cfa, __ATOMIC_ACQUIRE);
		place->rule.saved = __atomic_load_n(&slot->rule.saved, __ATOMIC_ACQUIRE);
#if defined(__aarch64__)
		place->rule.returns = __atomic_load_n(&slot->rule.returns, __ATOMIC_ACQUIRE);
#endif
		/* ... and loads the key again after them: if it is the same, they belong to it. */
		if (__atomic_load_n(&slot->key, __ATOMIC_RELAXED) == key)
			return;
	}
	look_up_slow(pc, key, place);
}

/* ---- the readable part of the stack --------------------------------------------------------- */

/* Readable from low to high; on a foreign stack (not the thread's own) extended page by page. */
struct bounds {
	uint64_t low, high;
	bool foreign;
};

static bool all_readable(uint64_t from, uint64_t to)
{
	for (uint64_t page = from & ~(uint64_t)(PAGE - 1); page < to; page += PAGE)
		if (!pdn_is_readable(page))
			return false;
	return true;
}

/*
 * A thread's own stack ends below its thread control block, the first thread's below the program's
 * name. All of it stays mapped as long as the thread lives. Checked once for each thread, and again
 * when it gets deeper.
 */
static bool check_own_stack(struct pdn_thread *self, uint64_t at)
{
	uint64_t ends[] = {(uint64_t)pthread_self(), getauxval(AT_EXECFN)};

	for (unsigned i = 0; i < 2; i++) {
		uint64_t high = ends[i] & ~7ull;

		/* The part that was checked before is still mapped. */
		if (at >= high || high - at > MAX_OWN_STACK ||
		    !all_readable(at, self->stack_high == high && at < self->stack_low
					      ? self->stack_low
					      : high))
			continue;
		self->stack_low = at & ~(uint64_t)(PAGE - 1);
		self->stack_high = high;
		return true;
	}
	return false;
}

static __attribute__((noinline)) struct bounds bounds_slow(struct pdn_thread *self, uint64_t at)
{
	if (check_own_stack(self, at))
		return (struct bounds){at, self->stack_high, false};
	/* A stack of a coroutine or a signal handler. */
	if (!pdn_is_readable(at))
		return (struct bounds){at, at, false};
	return (struct bounds){at, (at & ~(uint64_t)(PAGE - 1)) + PAGE, true};
}

static inline struct bounds bounds_at(struct pdn_thread *self, uint64_t at)
{
	if (__builtin_expect(at >= self->stack_low && at < self->stack_high, 1))
		return (struct bounds){at, self->stack_high, false};
	return bounds_slow(self, at);
}

static __attribute__((noinline)) bool widen(struct bounds *bounds, uint64_t at)
{
	if (!bounds->foreign || at - bounds->low > MAX_FOREIGN)
		return false;
	while (bounds->high < at + 8) {
		if (!pdn_is_readable(bounds->high))
			return false;
		bounds->high += PAGE;
	}
	return true;
}

/* Is a whole word readable at `at`? */
static inline bool is_within(struct bounds *bounds, uint64_t at)
{
	if (at < bounds->low || at % 8 || at > UINT64_MAX - 8)
		return false;
	return __builtin_expect(at + 8 <= bounds->high, 1) || widen(bounds, at);
}

static inline UNCHECKED uint64_t word_at(uint64_t at)
{
	return *(const volatile uint64_t *)(uintptr_t)at;
}

/* ---- the walk ------------------------------------------------------------------------------- */

struct frame {
	uint64_t pc, stack, pointer;
#if defined(__aarch64__)
	bool below; /* `stack` is not the stack pointer, which is somewhere above it */
#endif
};

#if defined(__aarch64__)

/*
 * A frame pointer points to a pair: the caller's frame pointer, and the return address. The pair
 * may lie anywhere in the frame.
 */
static inline UNCHECKED bool step_by_pointer(struct frame *frame, struct bounds *bounds)
{
	uint64_t pair = frame->pointer;

	if (pair < frame->stack || pair - frame->stack > MAX_FRAME || !is_within(bounds, pair) ||
	    !is_within(bounds, pair + 8))
		return false;
	frame->pointer = word_at(pair);
	frame->pc = word_at(pair + 8);
	frame->stack = pair + 16;
	frame->below = true;
	return true;
}

static inline UNCHECKED bool step_by_rule(struct frame *frame, const struct pdn_rule *rule,
					  struct bounds *bounds)
{
	uint64_t cfa = rule->step == PDN_STEP_STACK ? frame->stack : frame->pointer;
	uint64_t returns, saved;

	cfa += (uint64_t)(int64_t)rule->cfa;
	returns = cfa + (uint64_t)(int64_t)rule->returns * 8;
	saved = cfa + (uint64_t)(int64_t)rule->saved * 8;
	/* Callers' frames are at higher addresses. */
	if (cfa <= frame->stack || cfa - frame->stack > MAX_FRAME || !is_within(bounds, returns) ||
	    (rule->saved && !is_within(bounds, saved)))
		return false;
	if (rule->saved)
		frame->pointer = word_at(saved);
	frame->pc = word_at(returns);
	frame->stack = cfa;
	frame->below = false;
	return true;
}

static inline bool step(struct frame *frame, const struct pdn_rule *rule, struct bounds *bounds)
{
	bool by_pointer =
		rule->step == PDN_STEP_POINTER || (rule->step == PDN_STEP_STACK && frame->below);

	if (rule->step == PDN_STEP_END ||
	    !(by_pointer ? step_by_pointer(frame, bounds) : step_by_rule(frame, rule, bounds)))
		return false;
	frame->pc &= (1ull << ADDRESS_BITS) - 1; /* without its signature */
	return frame->pc > PAGE;
}

#else

static inline UNCHECKED bool step(struct frame *frame, const struct pdn_rule *rule,
				  struct bounds *bounds)
{
	uint64_t cfa, pointer = frame->pointer;

	if (rule->step == PDN_STEP_STACK)
		cfa = frame->stack + (uint64_t)(int64_t)rule->cfa;
	else if (rule->step == PDN_STEP_FRAME)
		cfa = pointer + (uint64_t)(int64_t)rule->cfa;
	else if (rule->step == PDN_STEP_POINTER)
		cfa = pointer + 16;
	else
		return false;
	/* Callers' frames are at higher addresses. */
	if (cfa <= frame->stack || cfa - frame->stack > MAX_FRAME || !is_within(bounds, cfa - 8))
		return false;
	if (rule->step == PDN_STEP_POINTER) {
		if (!is_within(bounds, pointer))
			return false;
		frame->pointer = word_at(pointer);
	} else if (rule->saved) {
		uint64_t at = cfa + (uint64_t)(int64_t)rule->saved * 8;

		if (!is_within(bounds, at))
			return false;
		frame->pointer = word_at(at);
	}
	frame->pc = word_at(cfa - 8);
	frame->stack = cfa;
	return frame->pc > PAGE && frame->pc >> ADDRESS_BITS == 0;
}

#endif

/* The caller of the function whose frame begins with these words, which are its frame pointer's. */
static inline __attribute__((always_inline)) UNCHECKED struct frame caller_of(const uint64_t *own)
{
	struct frame frame = {
		.pointer = own[0], .pc = own[1], .stack = (uint64_t)(uintptr_t)(own + 2)};

#if defined(__aarch64__)
	frame.below = true;
#if !defined(__clang__)
	frame.stack = (uint64_t)(uintptr_t)__builtin_dwarf_cfa();
	frame.below = false;
#endif
	frame.pc &= (1ull << ADDRESS_BITS) - 1;
#endif
	return frame;
}

static inline uint64_t hash_of(uint64_t hash, uint64_t frame)
{
	hash = (hash ^ frame) * 0xff51afd7ed558ccdull;
	return hash ^ hash >> 32;
}

static inline uint64_t current_epoch(void)
{
	return __atomic_load_n(&generation, __ATOMIC_RELAXED) & ((1u << (64 - ADDRESS_BITS)) - 1);
}

static inline unsigned walk(struct frame *frame, struct bounds *bounds, uint64_t *frames,
			    uint64_t *hash)
{
	uint64_t epoch = current_epoch();
	unsigned count = 0, max = pdn_stacks_depth ? pdn_stacks_depth : FEW;

	for (unsigned i = 0; i < STEPS && count < max; i++) {
		struct place place;

		look_up(frame->pc, epoch, &place);
		if (place.frame == NOT_A_RETURN)
			break;
		if (place.frame != IN_LIBPINDOWN) {
			frames[count++] = place.frame;
			*hash = hash_of(*hash, place.frame);
		}
		if (!step(frame, &place.rule, bounds))
			break;
	}
	return count;
}

/* ---- the table of stacks -------------------------------------------------------------------- */

static __attribute__((noinline)) uint32_t add_stack(uint32_t place, const uint64_t *frames,
						    unsigned count)
{
	uint64_t words[1 + PDN_TRACE_MAX_FRAMES];

	words[0] = place + 1;
	memcpy(words + 1, frames, count * sizeof(*frames));
	pdn_trace_words(PDN_RECORD_STACK, count, words, 1 + count);
	return place + 1;
}

/* Relaxed: the hash is all there is; the thread that has put it there writes the stack. */
static inline uint32_t number_of(uint64_t hash, const uint64_t *frames, unsigned count)
{
	uint32_t home = (uint32_t)(hash >> 48);

	hash += !hash;
	for (unsigned i = 0; i < 64; i++) {
		uint32_t place = (home + i) & (STACKS - 1);
		uint64_t there = __atomic_load_n(&stacks[place], __ATOMIC_RELAXED);

		if (there == hash)
			return place + 1;
		if (there)
			continue;
		if (__atomic_compare_exchange_n(&stacks[place], &there, hash, false,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return add_stack(place, frames, count);
		if (there == hash)
			return place + 1; /* another thread has added it, and writes it */
	}
	return 0; /* the table is nearly full */
}

/* The walk begins at this function's own frame, so it must not be inlined. */
__attribute__((noinline)) UNCHECKED uint32_t pdn_stack_take(struct pdn_thread *self)
{
	const uint64_t *own = __builtin_frame_address(0);
	struct frame frame = caller_of(own);
	uint64_t frames[PDN_TRACE_MAX_FRAMES], hash = 0;
	struct bounds bounds;
	int error = errno;
	uint32_t number = 0;
	unsigned count;

	bounds = bounds_at(self, (uint64_t)(uintptr_t)own);
	count = walk(&frame, &bounds, frames, &hash);
	if (count)
		number = number_of(hash, frames, count);
	errno = error;
	return number;
}

/* ---- for lines on standard error ------------------------------------------------------------ */

uint32_t pdn_stacks_generation(void)
{
	return __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
}

/* Makes a table unless there is one. Acquire and release: other threads see it all zero. */
static bool have_table(void **table, size_t bytes)
{
	void *none = NULL, *all;

	if (__atomic_load_n(table, __ATOMIC_ACQUIRE))
		return true;
	all = pdn_map(bytes, PROT_READ | PROT_WRITE);
	if (all && !__atomic_compare_exchange_n(table, &none, all, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
		pdn_unreserve(all, bytes);
	return all || none;
}

__attribute__((noinline)) UNCHECKED unsigned pdn_stack_callers(uint64_t *pcs, unsigned max)
{
	const uint64_t *own = __builtin_frame_address(0);
	struct frame frame = caller_of(own);
	struct pdn_thread *self = pdn_self();
	struct bounds bounds;
	int error = errno;
	unsigned count = 0;

	if (!self || !have_table((void **)&places, PLACES * sizeof(*places)))
		return 0;
	bounds = bounds_at(self, (uint64_t)(uintptr_t)own);
	for (unsigned i = 0; i < STEPS && count < max; i++) {
		struct place place;

		look_up(frame.pc, current_epoch(), &place);
		if (place.frame == NOT_A_RETURN)
			break;
		if (place.frame != IN_LIBPINDOWN)
			pcs[count++] = frame.pc;
		if (!step(&frame, &place.rule, &bounds))
			break;
	}
	errno = error;
	return count;
}

/* ---- one caller, whether stacks are wanted or not ------------------------------------------- */

static uint32_t stack_of_one(uint64_t caller)
{
	uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE), number = 0;
	struct place place;
	int error = errno;

	if (have_table((void **)&stacks, STACKS * sizeof(*stacks))) {
		examine_address(caller, now, &place);
		if (place.frame != NOT_A_RETURN && place.frame != IN_LIBPINDOWN)
			number = number_of(hash_of(0, place.frame), &place.frame, 1);
	}
	errno = error;
	return number;
}

uint32_t pdn_trace_caller(const void *caller)
{
	/* With stacks the event gets its whole stack. */
	return pdn_stacks_depth ? 0 : stack_of_one((uint64_t)(uintptr_t)caller);
}

/* The first page of memory has no code, so these numbers are no addresses. */
_Static_assert(STACKS <= 1 << 16, "programs are not loaded below mmap_min_addr");

bool pdn_trace_is_address(uint64_t number_or_address)
{
	return number_or_address > STACKS;
}

uint32_t pdn_trace_origin(uint64_t number_or_address)
{
	if (!pdn_trace_is_address(number_or_address))
		return (uint32_t)number_or_address;
	return stack_of_one(number_or_address);
}

uint32_t pdn_trace_stack(bool few)
{
	struct pdn_thread *self = pdn_self();

	if (!self || !(pdn_stacks_depth || few) ||
	    !have_table((void **)&places, PLACES * sizeof(*places)) ||
	    !have_table((void **)&stacks, STACKS * sizeof(*stacks)))
		return 0;
	return pdn_stack_take(self);
}

/* ---- begin, unloading, fork ----------------------------------------------------------------- */

bool pdn_stacks_begin(unsigned depth)
{
	if (!places)
		places = pdn_map(PLACES * sizeof(*places), PROT_READ | PROT_WRITE);
	if (!stacks)
		stacks = pdn_map(STACKS * sizeof(*stacks), PROT_READ | PROT_WRITE);
	if (!places || !stacks)
		return false;
	pdn_stacks_depth = depth < PDN_TRACE_MAX_FRAMES ? depth : PDN_TRACE_MAX_FRAMES;
	return true;
}

/*
 * Has any code been looked at? A line on standard error needs no table of stacks. Relaxed: only
 * asks whether there is a table, which is not read.
 */
static bool any_table(void)
{
	return __atomic_load_n(&places, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&stacks, __ATOMIC_RELAXED);
}

void pdn_stacks_unloading(void)
{
	if (!any_table())
		return;
	__atomic_store_n(&unloaded, true, __ATOMIC_RELAXED);
	__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

/* Loading alone, without an unloading before it, makes nothing stale. */
void pdn_stacks_loading(void)
{
	if (any_table() && __atomic_exchange_n(&unloaded, false, __ATOMIC_RELAXED))
		__atomic_fetch_add(&generation, 1, __ATOMIC_RELEASE);
}

void pdn_stacks_fork_child(void)
{
	/* All zero again. */
	if (places)
		pdn_advise(places, PLACES * sizeof(*places), MADV_DONTNEED);
	if (stacks)
		pdn_advise(stacks, STACKS * sizeof(*stacks), MADV_DONTNEED);
	pdn_modules_fork_child();
}
