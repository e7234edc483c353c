/* SPDX-License-Identifier: MIT */
/*
 * Makes the wrappers from the table of watched calls. For each row there is the exported one (road
 * "linked"), the one that look-ups hand out (road "looked up"), and the caught call that both come
 * to (entries.S). The caught call takes the row's actions (actions.h) before and after the real
 * call. Fast code takes room, so only the calls that programs make often have it (entries.h).
 */
#include "hook/cuda/actions.h"
#include "cache/base/thread/thread.h"
#include "hook/hook.h"

/* See pdn_caught_guard(): the guard in the last slot is this call's, or one around it. */
_Static_assert(PDN_CAUGHT_GUARDS >= PDN_GUARDS, "a guard that is dropped has widened a slot");

/* ---- the parts of a caught call ---------------------------------------------------------- */

/* Inlined always, so that `call` is in registers in the rows of calls that are made often. */
#define FAST static inline __attribute__((always_inline))

/* Only a trace asks for it. */
static uint64_t __attribute__((noinline, cold)) now(void)
{
	return pdn_ticks();
}

/* `real` is NULL if it is not known yet; see below. */
FAST void fast_enters(struct call *call, enum pdn_call row, void *real, const void *caller)
{
	if (PDN_UNLIKELY(!real))
		real = pdn_find_linked(row, caller);
	call->row = row;
	call->real = real;
	call->caller = caller;
	call->straight = !pdn_catch(caller);
	call->guards = 0;
}

FAST void fast_begins(struct call *call)
{
	call->begun = call->ended = 0;
	if (pdn_tracing(PDN_EV_CALL))
		call->begun = now();
}

FAST void fast_returns(struct call *call)
{
	if (PDN_UNLIKELY(call->begun))
		call->ended = now();
	pdn_caught_done(call);
}

FAST void fast_ends(const struct call *call, uint64_t addr, uint64_t size, uint64_t extra)
{
	if (PDN_UNLIKELY(call->begun))
		pdn_trace_call(call->row, addr, size, (int)call->result, call->begun, call->ended,
			       extra);
	if (PDN_UNLIKELY(call->result == CUDA_ERROR_DEINITIALIZED))
		pdn_driver_gone();
}

static void __attribute__((noinline))
small_enters(struct call *call, enum pdn_call row, void *real, const void *caller)
{
	fast_enters(call, row, real, caller);
}

static void __attribute__((noinline)) small_begins(struct call *call)
{
	fast_begins(call);
}

static void __attribute__((noinline)) small_returns(struct call *call)
{
	fast_returns(call);
}

static void __attribute__((noinline))
small_ends(const struct call *call, uint64_t addr, uint64_t size, uint64_t extra)
{
	fast_ends(call, addr, size, extra);
}

/*
 * A caught call, with `real` and `caller` as above. The row's expressions use `call` and the row's
 * parameters.
 */
#define CAUGHT(pace, symbol, args, before, after, addr, size, extra)          \
	{                                                                     \
		struct call on_stack, *const call = &on_stack;                \
                                                                              \
		pace##_enters(call, PDN_CALL_##symbol, real, caller);         \
		if (call->straight)                                           \
			return ((typeof(symbol) *)call->real)args;            \
		before;                                                       \
		pace##_begins(call);                                          \
		call->result = ((typeof(symbol) *)call->real)args;            \
		pace##_returns(call);                                         \
		after;                                                        \
		pace##_ends(call, NUMBER(addr), NUMBER(size), NUMBER(extra)); \
		return call->result;                                          \
	}
#define NO_CODE(...)

#pragma GCC visibility push(hidden)

/* ---- calls that are made often --------------------------------------------------------------- */

#define OUT(call, p) out(call, p, sizeof(*(p)))

/* Both entries of a row come here, with the program's own return address. */
#define OFTEN(symbol, params, ...)                                                      \
	CUresult pdn_caught_##symbol(PDN_LIST params, void *real);                      \
	__attribute__((used)) CUresult pdn_caught_##symbol(PDN_LIST params, void *real) \
	{                                                                               \
		const void *caller = __builtin_return_address(0);                       \
                                                                                        \
		CAUGHT(fast, symbol, __VA_ARGS__)                                       \
	}
#define X(symbol, base, version, flavour, params, args, group, ...) \
	PDN_OF_KIND(symbol, OFTEN, NO_CODE, NO_CODE)(symbol, params, args, __VA_ARGS__)
#include "hook/cuda/entrypoints.def"
#undef X

#undef OUT

/* ---- calls with an argument in memory -------------------------------------------------------- */

#define OUT(call, p) small_out(call, p, sizeof(*(p)))

/* The real functions are loaded relaxed: see find.c. */
#define BODY(road, symbol, params, args)                                                          \
	CUresult pdn_##road##_body_##symbol params;                                               \
	__attribute__((used, cold)) CUresult pdn_##road##_body_##symbol params                    \
	{                                                                                         \
		void *real =                                                                      \
			__atomic_load_n(&pdn_##road##_real[PDN_CALL_##symbol], __ATOMIC_RELAXED); \
                                                                                                  \
		return caught_##symbol(PDN_LIST args, real, __builtin_return_address(0));         \
	}
#define IN_MEMORY(symbol, params, args, ...)                                                \
	static __attribute__((noinline, cold))                                              \
	CUresult caught_##symbol(PDN_LIST params, void *real, const void *caller)           \
		CAUGHT(small, symbol, args, __VA_ARGS__) BODY(linked, symbol, params, args) \
			BODY(looked_up, symbol, params, args)
#define X(symbol, base, version, flavour, params, args, group, ...) \
	PDN_OF_KIND(symbol, NO_CODE, IN_MEMORY, NO_CODE)(symbol, params, args, __VA_ARGS__)
#include "hook/cuda/entrypoints.def"
#undef X

/* ---- calls that are made seldom -------------------------------------------------------------- */

/*
 * The words are the registers in which arguments are passed. A row knows how many of them are its
 * own, and their types. Both processors are little-endian, so a short argument begins its word.
 */
#define PARAMETER(declaration)	       _Alignas(uint64_t) declaration;
#define PARAMETERS_1(a)		       PARAMETER(a)
#define PARAMETERS_2(a, b)	       PARAMETERS_1(a) PARAMETER(b)
#define PARAMETERS_3(a, b, c)	       PARAMETERS_2(a, b) PARAMETER(c)
#define PARAMETERS_4(a, b, c, d)       PARAMETERS_3(a, b, c) PARAMETER(d)
#define PARAMETERS_5(a, b, c, d, e)    PARAMETERS_4(a, b, c, d) PARAMETER(e)
#define PARAMETERS_6(a, b, c, d, e, f) PARAMETERS_5(a, b, c, d, e) PARAMETER(f)
#define OWN_1(a)		       own->a
#define OWN_2(a, b)		       OWN_1(a), own->b
#define OWN_3(a, b, c)		       OWN_2(a, b), own->c
#define OWN_4(a, b, c, d)	       OWN_3(a, b, c), own->d
#define OWN_5(a, b, c, d, e)	       OWN_4(a, b, c, d), own->e
#define OWN_6(a, b, c, d, e, f)	       OWN_5(a, b, c, d, e), own->f
/* What is done for each of several things. */
#define EACH(what, count, things)  EACH_(what, count, things)
#define EACH_(what, count, things) what##_##count things

/* Of a caught call, for its trace. */
struct traced {
	uint64_t addr, size, extra;
};

/* Each is 0 already: the rows in which it always is take no room. */
#define SET(value, expression)                                              \
	do {                                                                \
		if (!__builtin_constant_p(expression) || (expression) != 0) \
			value = NUMBER(expression);                         \
	} while (0)

#define PART static inline __attribute__((always_inline, unused)) void
#define SELDOM(symbol, params, args, before, after, address, length, more)             \
	struct words_of_##symbol {                                                     \
		EACH(PARAMETERS, PDN_COUNT params, params)                             \
	};                                                                             \
	PART before_##symbol(struct call *call, PDN_LIST params)                       \
	{                                                                              \
		before;                                                                \
	}                                                                              \
	PART after_##symbol(struct call *call, struct traced *traced, PDN_LIST params) \
	{                                                                              \
		after;                                                                 \
		SET(traced->addr, address);                                            \
		SET(traced->size, length);                                             \
		SET(traced->extra, more);                                              \
	}
#define X(symbol, base, version, flavour, params, args, group, ...) \
	PDN_OF_KIND(symbol, NO_CODE, NO_CODE, SELDOM)(symbol, params, args, __VA_ARGS__)
#pragma GCC diagnostic push
/* Each gets all parameters of its row, and most actions need a few of them. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "hook/cuda/entrypoints.def"
#pragma GCC diagnostic pop
#undef X

static __attribute__((noinline, cold)) void before_seldom(struct call *call, const void *words)
{
#define SELDOM_BEFORE(symbol, args)                                     \
	case PDN_CALL_##symbol: {                                       \
		const struct words_of_##symbol *own = words;            \
                                                                        \
		before_##symbol(call, EACH(OWN, PDN_COUNT args, args)); \
		break;                                                  \
	}
#define X(symbol, base, version, flavour, params, args, ...) \
	PDN_OF_KIND(symbol, NO_CODE, NO_CODE, SELDOM_BEFORE)(symbol, args)
	switch (call->row) {
#include "hook/cuda/entrypoints.def"
	default:
		break;
	}
#undef X
}

static __attribute__((noinline, cold)) void after_seldom(struct call *call, const void *words,
							 struct traced *traced)
{
#define SELDOM_AFTER(symbol, args)                                             \
	case PDN_CALL_##symbol: {                                              \
		const struct words_of_##symbol *own = words;                   \
                                                                               \
		after_##symbol(call, traced, EACH(OWN, PDN_COUNT args, args)); \
		break;                                                         \
	}
#define X(symbol, base, version, flavour, params, args, ...) \
	PDN_OF_KIND(symbol, NO_CODE, NO_CODE, SELDOM_AFTER)(symbol, args)
	switch (call->row) {
#include "hook/cuda/entrypoints.def"
	default:
		break;
	}
#undef X
}

/*
 * The one caught call of all these rows: see entries.S. A real function that has fewer parameters
 * than there are words leaves the other registers alone.
 */
by_words *pdn_seldom(enum pdn_call row, void *real, uint64_t words[PDN_WORDS], const void *caller);
__attribute__((used, cold)) by_words *pdn_seldom(enum pdn_call row, void *real,
						 uint64_t words[PDN_WORDS], const void *caller)
{
	struct traced traced = {0};
	struct call call;

	small_enters(&call, row, real, caller);
	if (call.straight)
		return (by_words *)call.real;
	before_seldom(&call, words);
	small_begins(&call);
	call.result =
		((by_words *)call.real)(words[0], words[1], words[2], words[3], words[4], words[5]);
	small_returns(&call);
	after_seldom(&call, words, &traced);
	small_ends(&call, traced.addr, traced.size, traced.extra);
	words[0] = call.result;
	return NULL;
}
#pragma GCC visibility pop

/* ---- checks ---------------------------------------------------------------------------------- */

/* Each argument that an entry counts as passed in a register is, and fits into a word. */
#define IS_WORD(argument)                        \
	(sizeof(argument) <= sizeof(uint64_t) && \
	 _Generic((argument), float : 0, double : 0, default : 1))
#define IN_REGISTER(argument)		 _Static_assert(IS_WORD(argument), "see entries.h");
#define IN_REGISTERS_1(a)		 IN_REGISTER(a)
#define IN_REGISTERS_2(a, b)		 IN_REGISTERS_1(a) IN_REGISTER(b)
#define IN_REGISTERS_3(a, b, c)		 IN_REGISTERS_2(a, b) IN_REGISTER(c)
#define IN_REGISTERS_4(a, b, c, d)	 IN_REGISTERS_3(a, b, c) IN_REGISTER(d)
#define IN_REGISTERS_5(a, b, c, d, e)	 IN_REGISTERS_4(a, b, c, d) IN_REGISTER(e)
#define IN_REGISTERS_6(a, b, c, d, e, f) IN_REGISTERS_5(a, b, c, d, e) IN_REGISTER(f)
#define CHECK(symbol, params, args)                                      \
	static inline void __attribute__((unused)) check_##symbol params \
	{                                                                \
		EACH(IN_REGISTERS, PDN_COUNT args, args)                 \
	}
#define X(symbol, base, version, flavour, params, args, ...) \
	PDN_OF_KIND(symbol, CHECK, NO_CODE, CHECK)(symbol, params, args)
#pragma GCC diagnostic push
/* The parameters are looked at by the compiler alone. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "hook/cuda/entrypoints.def"
#pragma GCC diagnostic pop
#undef X
