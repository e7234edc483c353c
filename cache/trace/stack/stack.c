// SPDX-License-Identifier: MIT
/* Walking up call stacks with cached rules, and numbering the stacks that a trace has. */
#define _GNU_SOURCE
#include "cache/trace/stack/stack.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>

#include "cache/base/memory/address_space.h"
#include "cache/base/memory/safe_read.h"
#include "cache/base/thread/thread.h"
#include "cache/trace/stack/modules.h"
#include "cache/trace/stack/unwind.h"

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
/* FEW: frames of a stack where stacks are not wanted. */
enum { FEW = 8, MAX_OWN_STACK = 1 << 20, MAX_FOREIGN = 1 << 18 };
#define BUSY	      1ull
#define IN_LIBPINDOWN UINT64_MAX
#define NOT_A_RETURN  (UINT64_MAX - 1) /* no frame is as large */
#if defined(__x86_64__)
#define ADDRESS_BITS 47
#define IS_ARM	     false
#else
#define IS_ARM	     true
#define ADDRESS_BITS 48 /* an address above them is only handed out on request */
#endif
#define STEPS (PDN_TRACE_MAX_FRAMES + 32) /* those of libpindown.so included */

unsigned pdn_stacks_depth;
static bool unloaded; /* code was unloaded since the last loading */

/* Address space, of which memory is used where something is written. */
static struct tables {
	struct place places[PLACES];
	/* The hash of each written stack; its number is its place + 1. */
	uint64_t stacks[STACKS];
} * tables;

/* Acquire and release: other threads see them all zero. */
static bool have_tables(void)
{
	struct tables *none = NULL, *all;

	if (__atomic_load_n(&tables, __ATOMIC_ACQUIRE))
		return true;
	all = pdn_map(sizeof(*all), PROT_READ | PROT_WRITE);
	if (all && !__atomic_compare_exchange_n(&tables, &none, all, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
		pdn_unreserve(all, sizeof(*all));
	return all || none;
}

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

static void examine_address(uint64_t pc, struct place *place)
{
	const struct pdn_module *module;

	place->rule = (struct pdn_rule){.step = PDN_STEP_POINTER};
	place->frame = NOT_A_RETURN;
	if (!follows_a_call(pc))
		return;
	module = pdn_module_find(pc);
	place->frame = pc;
	if (!module)
		return;
	/* pc - 1 is in the call instruction: the next one may belong to another function. */
	if (module->index)
		place->rule = pdn_unwind_rule(module->index, module->index_bytes, pc - 1);
	if (strncmp(module->name, "libpindown.so", 13) == 0)
		place->frame = IN_LIBPINDOWN;
	else if (!((pc - module->bias) >> PDN_FRAME_OFFSET_BITS))
		place->frame =
			(uint64_t)module->number << PDN_FRAME_OFFSET_BITS | (pc - module->bias);
}

static inline struct place *slot_at(uint64_t key, unsigned i)
{
	return &tables->places[((key * 0x9e3779b97f4a7c15ull >> 50) + i) % PLACES];
}

static void store_place(uint64_t key, struct place *place)
{
	for (unsigned i = 0; i < NEAR; i++) {
		struct place *slot = slot_at(key, i);
		/* Relaxed: a first look; the exchange decides. */
		uint64_t old = __atomic_load_n(&slot->key, __ATOMIC_RELAXED);

		if (old == key)
			return;
		if (old == BUSY || (old && old >> ADDRESS_BITS == key >> ADDRESS_BITS) ||
		    !__atomic_compare_exchange_n(&slot->key, &old, BUSY, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue; /* only what is stale is replaced */
		/* A reader sees these stores after BUSY, and the key after all of them ... */
		__atomic_store_n(&slot->frame, place->frame, __ATOMIC_RELEASE);
		__atomic_store(&slot->rule, &place->rule, __ATOMIC_RELEASE);
		__atomic_store_n(&slot->key, key, __ATOMIC_RELEASE);
		return;
	}
}

static void look_up(uint64_t pc, struct place *place)
{
	uint64_t key = pc | (uint64_t)pdn_modules_generation() << ADDRESS_BITS;

	for (unsigned i = 0; i < NEAR; i++) {
		struct place *slot = slot_at(key, i);

		if (__atomic_load_n(&slot->key, __ATOMIC_ACQUIRE) != key)
			continue;
		place->frame = __atomic_load_n(&slot->frame, __ATOMIC_ACQUIRE);
		__atomic_load(&slot->rule, &place->rule, __ATOMIC_ACQUIRE);
		/* ... and loads the key again after them: if it is the same, they belong to it. */
		if (__atomic_load_n(&slot->key, __ATOMIC_RELAXED) == key)
			return;
	}
	examine_address(pc, place);
	store_place(key, place);
}

/* ---- the readable part of the stack --------------------------------------------------------- */

/* Readable from low to high; on a foreign stack (not the thread's own) extended page by page. */
struct bounds {
	uint64_t low, high;
	bool foreign;
};

/* Moves `*page` on to `end`, as far as can be read. */
static bool reads_to(uint64_t *page, uint64_t end)
{
	for (; *page < end; *page += PAGE)
		if (!pdn_is_readable(*page))
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
		uint64_t high = ends[i] & ~7ull, page = at & ~(uint64_t)(PAGE - 1);
		/* The part that was checked before is still mapped. */
		bool known = self->stack_high == high && at < self->stack_low;

		if (at >= high || high - at > MAX_OWN_STACK ||
		    !reads_to(&page, known ? self->stack_low : high))
			continue;
		self->stack_low = at & ~(uint64_t)(PAGE - 1);
		self->stack_high = high;
		return true;
	}
	return false;
}

/* Anywhere else it is a stack of a coroutine or a signal handler, of which nothing is known yet. */
static struct bounds bounds_at(struct pdn_thread *self, uint64_t at)
{
	if ((at >= self->stack_low && at < self->stack_high) || check_own_stack(self, at))
		return (struct bounds){at, self->stack_high, false};
	return (struct bounds){at, at & ~(uint64_t)(PAGE - 1), true};
}

/* Is a whole word readable at `at`? */
static inline bool is_within(struct bounds *bounds, uint64_t at)
{
	if (at < bounds->low || at % 8 || at > UINT64_MAX - 8)
		return false;
	return at + 8 <= bounds->high || (bounds->foreign && at - bounds->low <= MAX_FOREIGN &&
					  reads_to(&bounds->high, at + 8));
}

static inline UNCHECKED uint64_t word_at(uint64_t at)
{
	return *(const volatile uint64_t *)(uintptr_t)at;
}

/* ---- the walk ------------------------------------------------------------------------------- */

struct frame {
	uint64_t pc, stack, pointer;
	bool below; /* `stack` is not the stack pointer, which is somewhere above it */
};

/*
 * A frame pointer points to a pair: the caller's frame pointer, and the return address. On arm64
 * the pair may lie anywhere in the frame.
 */
static inline bool step_by_pointer(struct frame *frame, struct bounds *bounds)
{
	uint64_t pair = frame->pointer;

	if (pair < frame->stack || pair - frame->stack > PDN_MAX_FRAME ||
	    !is_within(bounds, pair) || !is_within(bounds, pair + 8))
		return false;
	frame->pointer = word_at(pair);
	frame->pc = word_at(pair + 8);
	frame->stack = pair + 16;
	frame->below = IS_ARM;
	return true;
}

static inline bool step_by_rule(struct frame *frame, const struct pdn_rule *rule,
				struct bounds *bounds)
{
	uint64_t cfa = rule->step == PDN_STEP_STACK ? frame->stack : frame->pointer;
	uint64_t returns, saved;

	cfa += (uint64_t)rule->cfa;
	returns = cfa + (uint64_t)rule->returns * 8;
	saved = cfa + (uint64_t)rule->saved * 8;
	/* Callers' frames are at higher addresses. */
	if (cfa <= frame->stack || cfa - frame->stack > PDN_MAX_FRAME ||
	    !is_within(bounds, returns) || (rule->saved && !is_within(bounds, saved)))
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
	if (IS_ARM)
		frame->pc &= (1ull << ADDRESS_BITS) - 1; /* without its signature */
	return frame->pc > PAGE && frame->pc >> ADDRESS_BITS == 0;
}

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

/*
 * Stores the stack from this frame on: frames, or with `plain` return addresses. Keeps errno:
 * getauxval() may set it.
 */
static unsigned walk(struct pdn_thread *self, struct frame frame, uint64_t *to, unsigned max,
		     bool plain)
{
	struct bounds bounds;
	struct place place;
	unsigned count = 0;
	int error = errno;

	bounds = bounds_at(self, frame.stack);
	for (unsigned i = 0; i < STEPS && count < max; i++) {
		look_up(frame.pc, &place);
		if (place.frame == NOT_A_RETURN)
			break;
		if (place.frame != IN_LIBPINDOWN)
			to[count++] = plain ? frame.pc : place.frame;
		if (!step(&frame, &place.rule, &bounds))
			break;
	}
	errno = error;
	return count;
}

/* The walk begins at this function's own frame, so it must not be inlined. */
__attribute__((noinline)) UNCHECKED unsigned pdn_stack_callers(uint64_t *pcs, unsigned max)
{
	struct frame frame = caller_of(__builtin_frame_address(0));
	struct pdn_thread *self = pdn_self();

	return self && have_tables() ? walk(self, frame, pcs, max, true) : 0;
}

/* ---- the table of stacks -------------------------------------------------------------------- */

/*
 * The number of the stack whose frames are words[1] and so on; it becomes words[0]. Relaxed: the
 * hash is all there is; the thread that has put it there writes the stack.
 */
static uint32_t number_of(uint64_t *words, unsigned count)
{
	uint64_t hash = 0;

	for (unsigned i = 1; i <= count; i++) {
		hash = (hash ^ words[i]) * 0xff51afd7ed558ccdull;
		hash ^= hash >> 32;
	}
	hash += !hash;
	for (unsigned i = 0; count && i < 64; i++) {
		uint64_t *slot = &tables->stacks[((hash >> 48) + i) % STACKS];
		uint64_t there = __atomic_load_n(slot, __ATOMIC_RELAXED);

		words[0] = (uint64_t)(slot - tables->stacks) + 1;
		if (!there && __atomic_compare_exchange_n(slot, &there, hash, false,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			PDN_NOTIFY(stack_words, PDN_RECORD_STACK, count, words, 1 + count);
		else if (there != hash)
			continue;
		return (uint32_t)words[0]; /* another thread may still be writing it */
	}
	return 0; /* the table is nearly full */
}

/* It must not be inlined, either. */
__attribute__((noinline)) UNCHECKED uint32_t pdn_trace_stack(bool few)
{
	struct frame frame = caller_of(__builtin_frame_address(0));
	struct pdn_thread *self = pdn_self();
	uint64_t words[1 + PDN_TRACE_MAX_FRAMES];
	unsigned max = pdn_stacks_depth ? pdn_stacks_depth : few ? FEW : 0;

	if (!self || !max || !have_tables())
		return 0;
	return number_of(words, walk(self, frame, words + 1, max, false));
}

/* ---- one caller, whether stacks are wanted or not ------------------------------------------- */

/* The first page of memory has no code, so these numbers are no addresses. */
_Static_assert(STACKS <= 1 << 16, "programs are not loaded below mmap_min_addr");

bool pdn_trace_is_address(uint64_t number_or_address)
{
	return number_or_address > STACKS;
}

uint32_t pdn_trace_origin(uint64_t number_or_address)
{
	uint64_t words[2];
	struct place place;

	if (!pdn_trace_is_address(number_or_address))
		return (uint32_t)number_or_address;
	if (!have_tables())
		return 0;
	look_up(number_or_address, &place);
	words[1] = place.frame;
	return number_of(words, place.frame < NOT_A_RETURN);
}

uint32_t pdn_trace_caller(const void *caller)
{
	/* With stacks the event gets its whole stack. */
	return pdn_stacks_depth ? 0 : pdn_trace_origin((uint64_t)(uintptr_t)caller);
}

/* ---- begin, unloading, fork ----------------------------------------------------------------- */

void pdn_stacks_begin(unsigned depth)
{
	if (depth && have_tables())
		pdn_stacks_depth = depth < PDN_TRACE_MAX_FRAMES ? depth : PDN_TRACE_MAX_FRAMES;
}

/* Relaxed: only asks whether any code has been looked at. */
void pdn_stacks_unloading(void)
{
	if (!__atomic_load_n(&tables, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&unloaded, true, __ATOMIC_RELAXED);
	pdn_modules_change();
}

/* Loading alone, without an unloading before it, makes nothing stale. */
void pdn_stacks_loading(void)
{
	if (__atomic_exchange_n(&unloaded, false, __ATOMIC_RELAXED))
		pdn_modules_change();
}

void pdn_stacks_fork_child(void)
{
	if (tables)
		pdn_advise(tables, sizeof(*tables), MADV_DONTNEED); /* all zero again */
	pdn_modules_fork_child();
}
