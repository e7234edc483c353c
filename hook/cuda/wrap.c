/* SPDX-License-Identifier: MIT */
/*
 * Makes the wrappers from the table of watched calls. For each row there is the exported one (road
 * "linked"), the one that look-ups hand out (road "looked up"), and the caught call that both come
 * to. The caught call takes the row's actions (actions.h) before and after the real call.
 */
#include "hook/cuda/actions.h"
#include "hook/hook.h"

/*
 * Fast code takes room, so only the calls that programs make all the time have it: in these the
 * fast_... functions below are part of the wrapper. The other wrappers share one copy of each.
 */
#define PDN_OFTEN_cuMemAlloc_v2		       ~, 1
#define PDN_OFTEN_cuMemFree_v2		       ~, 1
#define PDN_OFTEN_cuMemAllocAsync	       ~, 1
#define PDN_OFTEN_cuMemAllocAsync_ptsz	       ~, 1
#define PDN_OFTEN_cuMemAllocFromPoolAsync      ~, 1
#define PDN_OFTEN_cuMemAllocFromPoolAsync_ptsz ~, 1
#define PDN_OFTEN_cuMemFreeAsync	       ~, 1
#define PDN_OFTEN_cuMemFreeAsync_ptsz	       ~, 1

#define KIND(symbol) PDN_CHOOSE(PDN_PROBE(PDN_OFTEN_##symbol), fast, small)

/* ---- a caught call ----------------------------------------------------------------------- */

/* `real` is NULL if it is not known yet; see below. */
static inline void fast_enters(struct call *call, enum pdn_call row, void *real, const void *caller)
{
	if (PDN_UNLIKELY(!real))
		real = pdn_find_linked(row);
	call->row = row;
	call->real = real;
	call->caller = caller;
	call->straight = !pdn_catch(caller);
	call->guards = 0;
}

static inline void fast_begins(struct call *call)
{
	call->begun = call->ended = 0;
	if (pdn_tracing(PDN_EV_CALL))
		call->begun = pdn_ticks();
}

static inline void fast_returns(struct call *call)
{
	if (PDN_UNLIKELY(call->begun))
		call->ended = pdn_ticks();
	pdn_caught_done(call);
}

static inline void fast_ends(const struct call *call, uint64_t addr, uint64_t size, uint64_t extra)
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

#define fast_code
#define small_code	__attribute__((cold))
#define OF(kind, what)	OF_(kind, what)
#define OF_(kind, what) kind##_##what

/*
 * Both entries of a row come here (entries.S), with the program's own return address, and with the
 * real function behind its arguments: NULL if that is not known yet, which can only be the linked
 * one. The row's expressions use `call` and the row's parameters.
 */
#pragma GCC visibility push(hidden)
#define X(symbol, base, version, flavour, params, args, group, before, after, addr, size, extra) \
	CUresult pdn_caught_##symbol(PDN_LIST params, void *real);                               \
	__attribute__((used)) OF(KIND(symbol), code)                                             \
		CUresult pdn_caught_##symbol(PDN_LIST params, void *real)                        \
	{                                                                                        \
		struct call on_stack, *const call = &on_stack;                                   \
                                                                                                 \
		OF(KIND(symbol), enters)                                                         \
		(call, PDN_CALL_##symbol, real, __builtin_return_address(0));                    \
		if (call->straight)                                                              \
			return ((typeof(symbol) *)call->real)args;                               \
		before;                                                                          \
		OF(KIND(symbol), begins)(call);                                                  \
		call->result = ((typeof(symbol) *)call->real)args;                               \
		OF(KIND(symbol), returns)(call);                                                 \
		after;                                                                           \
		OF(KIND(symbol), ends)(call, NUMBER(addr), NUMBER(size), NUMBER(extra));         \
		return call->result;                                                             \
	}
#include "hook/cuda/entrypoints.def"
#undef X

/* Checks that each argument which an entry counts as passed in a register fits into one. */
#define NO_CHECK(symbol, params, args)
#define FITS(argument)		      (sizeof(argument) <= sizeof(void *))
#define IN_REGISTER(argument)	      _Static_assert(FITS(argument), "see entries.h");
#define IN_REGISTERS_1(a)	      IN_REGISTER(a)
#define IN_REGISTERS_2(a, b)	      IN_REGISTER(a) IN_REGISTER(b)
#define IN_REGISTERS_3(a, b, c)	      IN_REGISTERS_2(a, b) IN_REGISTER(c)
#define IN_REGISTERS_4(a, b, c, d)    IN_REGISTERS_3(a, b, c) IN_REGISTER(d)
#define IN_REGISTERS_5(a, b, c, d, e) IN_REGISTERS_4(a, b, c, d) IN_REGISTER(e)
#define IN_REGISTERS(count, args)     IN_REGISTERS_(count, args)
#define IN_REGISTERS_(count, args)    IN_REGISTERS_##count args
#define CHECK(symbol, params, args)                                      \
	static inline void __attribute__((unused)) check_##symbol params \
	{                                                                \
		IN_REGISTERS(PDN_COUNT args, args)                       \
	}
#define X(symbol, base, version, flavour, params, args, ...) \
	PDN_CHOOSE(PDN_FITS_IN_REGISTERS(symbol, args), CHECK, NO_CHECK)(symbol, params, args)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "hook/cuda/entrypoints.def"
#pragma GCC diagnostic pop
#undef X

/*
 * The bodies of rows with too many arguments for an entry to add another one, or with a structure
 * among them. The real functions are loaded relaxed: see loader/watched.h.
 */
#define NO_BODY(symbol, params, args)
#define BODY(road, symbol, params, args)                                                          \
	CUresult pdn_##road##_body_##symbol params;                                               \
	__attribute__((used, cold)) CUresult pdn_##road##_body_##symbol params                    \
	{                                                                                         \
		void *real =                                                                      \
			__atomic_load_n(&pdn_##road##_real[PDN_CALL_##symbol], __ATOMIC_RELAXED); \
                                                                                                  \
		if (real && !pdn_catch(__builtin_return_address(0)))                              \
			return ((typeof(symbol) *)real)args;                                      \
		return pdn_caught_##symbol(PDN_LIST args, real);                                  \
	}
#define BODIES(symbol, params, args)       \
	BODY(linked, symbol, params, args) \
	BODY(looked_up, symbol, params, args)
#define X(symbol, base, version, flavour, params, args, ...) \
	PDN_CHOOSE(PDN_FITS_IN_REGISTERS(symbol, args), NO_BODY, BODIES)(symbol, params, args)
#include "hook/cuda/entrypoints.def"
#undef X
#pragma GCC visibility pop
