/* SPDX-License-Identifier: MIT */
/*
 * The wrappers, from the table: for each row the exported one (road "linked"), the one that
 * look-ups hand out (road "looked up"), and the caught call that both come to. The verbs below are
 * the table's `before` and `after`; they see the row's parameters, the call's `result` and
 * `caught` and `caller`, which costs nothing where it is not used.
 */
#include <string.h>
#include <unistd.h>

#include "hook/cuda/devicemap.h"
#include "cache/foreign_dmabufs.h"
#include "hook/hook.h"
#include "hook/loader/patches.h"

#define OK		 (result == CUDA_SUCCESS)
#define NUMBER(x)	 ((uint64_t)(uintptr_t)(x))
#define POINTER(x)	 ((void *)(uintptr_t)(x))
#define OUT(p)		 (OK && (p) ? NUMBER(*(p)) : 0)
#define GIVEN(p, member) (OK && (p) ? NUMBER((p)->member) : 0)
/* Relaxed: see where they are set, in owners.c and graphs.c. */
#define SET(flag) PD_UNLIKELY(__atomic_load_n(&(flag), __ATOMIC_RELAXED))

#define NONE \
	do { \
	} while (0)

/*
 * Who patches our code need not ask the loader for anything, so now and then it is looked at all
 * the same.
 */
static void look_for_patches(void)
{
	static uint32_t allocations;
	/* Relaxed: threads that count at once may count one. */
	uint32_t count = __atomic_load_n(&allocations, __ATOMIC_RELAXED) + 1;

	__atomic_store_n(&allocations, count, __ATOMIC_RELAXED);
	if (PD_UNLIKELY(count % 1024 == 0))
		pd_patches_look();
}

/* Memory that the call itself names. */
static void __attribute__((noinline)) allocated(uint64_t addr, uint64_t length)
{
	if (!addr || !length)
		return;
	look_for_patches();
	pd_device_seen(addr, length);
	pd_allocated(addr, length);
}
#define ALLOCATED(addr, length)                  \
	do {                                     \
		if (OK)                          \
			allocated(addr, length); \
	} while (0)
#define ALLOCATED_OF_HOST(addr, length)                    \
	do {                                               \
		uint64_t at_ = (addr), length_ = (length); \
		if (OK && at_ && length_)                  \
			pd_allocated(at_, length_);        \
	} while (0)
#define MAPPED(addr, length)                     \
	do {                                     \
		if (OK) {                        \
			pd_mapped(addr, length); \
			allocated(addr, length); \
		}                                \
	} while (0)
#define UNMAPPED(addr, length)                     \
	do {                                       \
		if (OK)                            \
			pd_unmapped(addr, length); \
	} while (0)
#define FREE(addr) pd_caught_range(&caught, NUMBER(addr), 0)
#define FREED(addr)                                   \
	do {                                          \
		if (SET(pd_owner_external) && OK)     \
			pd_owner_freed(NUMBER(addr)); \
	} while (0)
#define END(addr, length)                                       \
	do {                                                    \
		if (length)                                     \
			pd_caught_range(&caught, addr, length); \
	} while (0)
#define RECHECK(pool)                              \
	do {                                       \
		if (OK)                            \
			pd_recheck(POINTER(pool)); \
	} while (0)
#define END_PROCESS(pid)                                        \
	do {                                                    \
		if ((pid) == getpid())                          \
			pd_caught_guard(&caught, pd_end_all()); \
	} while (0)

/* In stream order, at the call; but while the stream is captured only a graph's node is made. */
#define CAPTURED(stream, flavour) (SET(pd_captures) && pd_is_capturing(stream, flavour))
#define ALLOCATED_ON(stream, flavour, addr, length)   \
	do {                                          \
		if (OK && CAPTURED(stream, flavour))  \
			pd_graph_alloc(addr, length); \
		else                                  \
			ALLOCATED(addr, length);      \
	} while (0)
#define FREE_ON(stream, flavour, addr)                     \
	do {                                               \
		caught.note = CAPTURED(stream, flavour);   \
		if (!caught.note)                          \
			pd_caught_in_order(&caught, addr); \
	} while (0)
#define FREED_ON(addr)                              \
	do {                                        \
		if (PD_UNLIKELY(caught.note) && OK) \
			pd_graph_free(addr);        \
		else                                \
			FREED(addr);                \
	} while (0)
#define CAPTURE_BEGUN                       \
	do {                                \
		if (OK)                     \
			pd_capture_begun(); \
	} while (0)
#define END_CAPTURE(stream, flavour) (caught.note = pd_is_capturing(stream, flavour))
#define CAPTURE_ENDED(stream, flavour)                                \
	do {                                                          \
		if (caught.note && !pd_is_capturing(stream, flavour)) \
			pd_capture_ended();                           \
	} while (0)

/* Graphs. */
#define GRAPH_ALLOC(addr, length)                     \
	do {                                          \
		if (OK)                               \
			pd_graph_alloc(addr, length); \
	} while (0)
#define GRAPH_FREE(addr)                     \
	do {                                 \
		if (OK)                      \
			pd_graph_free(addr); \
	} while (0)
#define IS_NODE(p, kind) (OK && (p) && (p)->type == CU_GRAPH_NODE_TYPE_MEM_##kind)
#define NODE_ADDRESS(p) \
	(IS_NODE(p, ALLOC) ? (p)->alloc.dptr : IS_NODE(p, FREE) ? (p)->free.dptr : 0)
#define NODE_SIZE(p) (IS_NODE(p, ALLOC) ? (p)->alloc.bytesize : 0)
#define GRAPH_NODE(p)                                                         \
	do {                                                                  \
		if (IS_NODE(p, ALLOC))                                        \
			pd_graph_alloc((p)->alloc.dptr, (p)->alloc.bytesize); \
		else if (IS_NODE(p, FREE))                                    \
			pd_graph_free((p)->free.dptr);                        \
	} while (0)
#define INSTANTIATED(exec, graph, flags)                                    \
	do {                                                                \
		if (OK && SET(pd_graph_memory))                             \
			pd_graph_instantiated(POINTER(exec), graph, flags); \
	} while (0)
#define UPDATED(exec, graph)                           \
	do {                                           \
		if (OK && SET(pd_graph_memory))        \
			pd_graph_updated(exec, graph); \
	} while (0)
#define LAUNCH(exec)                                    \
	do {                                            \
		if (SET(pd_graph_memory))               \
			pd_graph_launch(&caught, exec); \
	} while (0)
#define FORGET_EXEC(exec)                       \
	do {                                    \
		if (OK && SET(pd_graph_memory)) \
			pd_graph_forget(exec);  \
	} while (0)

/* Memory that ends with its owner. */
#define OWNS(owner, handle, addr, length)                                      \
	do {                                                                   \
		uint64_t at_ = (addr), length_ = (length);                     \
		if (OK && at_ && length_)                                      \
			pd_device_seen(at_, length_);                          \
		if (OK)                                                        \
			pd_owner_owns(PD_OWNER_##owner, handle, at_, length_); \
	} while (0)
#define END_OWNED(owner, handle) pd_owner_end(&caught, PD_OWNER_##owner, handle)
#define DISOWNED(owner, handle)                                   \
	do {                                                      \
		if (OK)                                           \
			pd_owner_ended(PD_OWNER_##owner, handle); \
	} while (0)
#define END_EACH_OWNED(owner, handles, count)                                            \
	for (unsigned i_ = 0; SET(pd_owner_graphics) && (handles) && i_ < (count); i_++) \
	END_OWNED(owner, (handles)[i_])
#define DISOWNED_EACH(owner, handles, count)                                             \
	for (unsigned i_ = 0; SET(pd_owner_graphics) && (handles) && i_ < (count); i_++) \
	DISOWNED(owner, (handles)[i_])
/* The planes of a frame that are memory. How long the later ones are depends on the format. */
#define IS_PITCH(p)   (OK && (p) && (p)->frameType == CU_EGL_FRAME_TYPE_PITCH)
#define PLANE(p)      (IS_PITCH(p) ? NUMBER((p)->frame.pPitch[0]) : 0)
#define PLANE_SIZE(p) (IS_PITCH(p) ? (uint64_t)(p)->pitch * (p)->height : 0)
static void own_planes(const void *resource, const CUeglFrame *frame, uint64_t bytes)
{
	for (unsigned i = 0; i < frame->planeCount && i < CU_EGL_PLANES; i++) {
		uint64_t at = NUMBER(frame->frame.pPitch[i]);

		pd_device_seen(at, bytes);
		pd_owner_owns(PD_OWNER_GRAPHICS, resource, at, 1);
	}
}
#define OWNS_PLANES(resource, frame)                                    \
	do {                                                            \
		if (PLANE(frame) && PLANE_SIZE(frame))                  \
			own_planes(resource, frame, PLANE_SIZE(frame)); \
	} while (0)
#define ACQUIRED(conn, frame)                                       \
	do {                                                        \
		if (OK && (conn))                                   \
			pd_owner_frame_of(POINTER(frame), *(conn)); \
	} while (0)
#define DISCONNECT(conn)                                                 \
	do {                                                             \
		caught.id = (conn) ? NUMBER(*(conn)) : 0;                \
		pd_owner_end(&caught, PD_OWNER_EGL, POINTER(caught.id)); \
	} while (0)
#define DISCONNECTED DISOWNED(EGL, POINTER(caught.id))
#define UNLOADED(owner, handle)          \
	do {                             \
		DISOWNED(owner, handle); \
		RECHECK(0);              \
	} while (0)
#define MODULE_OF(module, library)                                    \
	do {                                                          \
		if (OK)                                               \
			pd_owner_module_of(POINTER(module), library); \
	} while (0)
#define MODULE_OF_A_FUNCTION(module)                                    \
	do {                                                            \
		if (OK)                                                 \
			pd_owner_module_of_a_function(POINTER(module)); \
	} while (0)

/* Contexts. */
#define CREATED(context)                                      \
	do {                                                  \
		if (OK)                                       \
			pd_context_created(POINTER(context)); \
	} while (0)
#define ATTACHED(context)                                      \
	do {                                                   \
		if (OK)                                        \
			pd_context_attached(POINTER(context)); \
	} while (0)
#define END_CONTEXT(context) pd_caught_context(&caught, context)
#define DESTROYED(context)                             \
	do {                                           \
		if (OK)                                \
			pd_context_destroyed(context); \
	} while (0)
#define DETACH(context)	  pd_context_detach(&caught, context)
#define DETACHED(context) pd_context_detached(&caught, context, OK)
#define RETAINED_PRIMARY(context, device)                              \
	do {                                                           \
		if (OK)                                                \
			pd_primary_retained(POINTER(context), device); \
	} while (0)
#define RELEASE_PRIMARY(device)	 pd_primary_release(&caught, device)
#define RELEASED_PRIMARY(device) pd_primary_released(&caught, device, OK)
#define RESET_PRIMARY(device)	 pd_primary_reset(&caught, device)
#define DID_RESET_PRIMARY(device)                     \
	do {                                          \
		if (OK)                               \
			pd_primary_did_reset(device); \
	} while (0)
#define CREATED_GREEN(green, device)                              \
	do {                                                      \
		if (OK)                                           \
			pd_green_created(POINTER(green), device); \
	} while (0)
#define GREEN_CONTEXT(context, green)                              \
	do {                                                       \
		if (OK)                                            \
			pd_green_context(POINTER(context), green); \
	} while (0)
#define DESTROY_GREEN(green)   pd_green_destroy(&caught, green)
#define DESTROYED_GREEN(green) pd_green_destroyed(&caught, green, OK)

/* A dma-buf that the program, or middleware in it, makes itself. */
#define EXPORTED(handle, addr, length, type)                                         \
	do {                                                                         \
		if (OK && (handle) && (type) == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) \
			pd_exported(addr, length, *(int *)(handle), caller);         \
	} while (0)

/* IPC. */
#define OPENED_IPC(addr)                         \
	do {                                     \
		if (OK) {                        \
			pd_device_seen(addr, 1); \
			pd_ipc_opened(addr);     \
		}                                \
	} while (0)
#define CLOSE_IPC(addr)	 pd_ipc_close(&caught, addr)
#define CLOSED_IPC(addr) pd_ipc_closed(&caught, addr, OK)

/* Look-ups. */
static uint64_t first_bytes(const void *from)
{
	uint64_t bytes;

	memcpy(&bytes, from, sizeof(bytes));
	return bytes;
}
#define FIRST_BYTES(p) (OK && (p) ? first_bytes(p) : 0)

static void *ask_v1(const struct pd_asked *asked, int version)
{
	typeof(cuGetProcAddress) *real = asked->real;
	void *found = NULL;

	return real(asked->name, &found, version, asked->flags) == CUDA_SUCCESS ? found : NULL;
}

static void *ask_v2(const struct pd_asked *asked, int version)
{
	typeof(cuGetProcAddress_v2) *real = asked->real;
	void *found = NULL;

	return real(asked->name, &found, version, asked->flags, NULL) == CUDA_SUCCESS ? found
										      : NULL;
}

#define FOUND(ask_, symbol, pfn, version, flags_)                         \
	do {                                                              \
		if (OK && (symbol) && (pfn) && *(pfn)) {                  \
			struct pd_asked asked_ = {                        \
				.name = (symbol),                         \
				.flags = (flags_),                        \
				.ask = (ask_),                            \
				.real = function,                         \
			};                                                \
			*(pfn) = pd_substitute(&asked_, version, *(pfn)); \
		}                                                         \
	} while (0)
#define FOUND_V1(symbol, pfn, version, flags) FOUND(ask_v1, symbol, pfn, version, flags)
#define FOUND_V2(symbol, pfn, version, flags) FOUND(ask_v2, symbol, pfn, version, flags)

/*
 * Only the calls that programs make all the time are worth the room that fast code takes: in these
 * fast_... below is part of the row, in the others one function for all.
 */
#define PD_OFTEN_cuMemAlloc_v2		      ~, 1
#define PD_OFTEN_cuMemFree_v2		      ~, 1
#define PD_OFTEN_cuMemAllocAsync	      ~, 1
#define PD_OFTEN_cuMemAllocAsync_ptsz	      ~, 1
#define PD_OFTEN_cuMemAllocFromPoolAsync      ~, 1
#define PD_OFTEN_cuMemAllocFromPoolAsync_ptsz ~, 1
#define PD_OFTEN_cuMemFreeAsync		      ~, 1
#define PD_OFTEN_cuMemFreeAsync_ptsz	      ~, 1
#define KIND(symbol)			      PD_CHOOSE(PD_PROBE(PD_OFTEN_##symbol), fast, small)

/* ---- a caught call ----------------------------------------------------------------------- */

/* The real function; NULL in `function`: it is not known yet, see below. */
static inline void *fast_enters(struct pd_caught *caught, void *function, enum pd_call call,
				const void *caller)
{
	if (PD_UNLIKELY(!function))
		function = pd_find_linked(call);
	caught->straight = !pd_caught_from(caller);
	caught->guards = 0;
	return function;
}

static inline void fast_begins(struct pd_caught *caught)
{
	caught->begun = caught->ended = 0;
	if (pd_tracing(PD_EV_CALL))
		caught->begun = pd_ticks();
}

static inline void fast_returns(struct pd_caught *caught)
{
	if (PD_UNLIKELY(caught->begun))
		caught->ended = pd_ticks();
	pd_caught_done(caught);
}

static inline void fast_ends(const struct pd_caught *caught, enum pd_call call, CUresult result,
			     uint64_t addr, uint64_t size, uint64_t extra)
{
	if (PD_UNLIKELY(caught->begun))
		pd_trace_call(call, addr, size, (int)result, caught->begun, caught->ended, extra);
	if (PD_UNLIKELY(result == CUDA_ERROR_DEINITIALIZED))
		pd_driver_gone();
}

static void *__attribute__((noinline))
small_enters(struct pd_caught *caught, void *function, enum pd_call call, const void *caller)
{
	return fast_enters(caught, function, call, caller);
}

static void __attribute__((noinline)) small_begins(struct pd_caught *caught)
{
	fast_begins(caught);
}

static void __attribute__((noinline)) small_returns(struct pd_caught *caught)
{
	fast_returns(caught);
}

static void __attribute__((noinline))
small_ends(const struct pd_caught *caught, enum pd_call call, CUresult result, uint64_t addr,
	   uint64_t size, uint64_t extra)
{
	fast_ends(caught, call, result, addr, size, extra);
}

#define fast_code
#define small_code	__attribute__((cold))
#define OF(kind, what)	OF_(kind, what)
#define OF_(kind, what) kind##_##what

/*
 * Both entries of a row come here (entries.S), with the program's own return address, and with the
 * real function behind its arguments: NULL if that is not known yet, which can only be the linked
 * one.
 */
#pragma GCC visibility push(hidden)
#define X(symbol, base, version, flavour, params, args, group, before, after, addr, size, extra)  \
	CUresult pd_caught_##symbol(PD_LIST params, void *function);                              \
	__attribute__((used)) OF(KIND(symbol), code)                                              \
		CUresult pd_caught_##symbol(PD_LIST params, void *function)                       \
	{                                                                                         \
		const void *caller = __builtin_return_address(0);                                 \
		struct pd_caught caught;                                                          \
		CUresult result;                                                                  \
                                                                                                  \
		function = OF(KIND(symbol), enters)(&caught, function, PD_CALL_##symbol, caller); \
		typeof(symbol) *real = function;                                                  \
		if (caught.straight)                                                              \
			return real args;                                                         \
		before;                                                                           \
		OF(KIND(symbol), begins)(&caught);                                                \
		result = real args;                                                               \
		OF(KIND(symbol), returns)(&caught);                                               \
		after;                                                                            \
		OF(KIND(symbol), ends)                                                            \
		(&caught, PD_CALL_##symbol, result, NUMBER(addr), NUMBER(size), NUMBER(extra));   \
		return result;                                                                    \
	}
#include "hook/cuda/entrypoints.def"
#undef X

/* What an entry takes for passed in registers is: each argument has room in one. */
#define NO_CHECK(symbol, params, args)
#define IN_REGISTER(argument)	      _Static_assert(sizeof(argument) <= sizeof(void *), "see entries.h");
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
		IN_REGISTERS(PD_COUNT args, args)                        \
	}
#define X(symbol, base, version, flavour, params, args, ...) \
	PD_CHOOSE(PD_HAS_ROOM(symbol, args), CHECK, NO_CHECK)(symbol, params, args)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "hook/cuda/entrypoints.def"
#pragma GCC diagnostic pop
#undef X

/*
 * A row with so many arguments that an entry can't put another one behind them, or with a
 * structure. The real functions are loaded relaxed: see pd_find_linked() and pd_hand_out().
 */
#define NO_BODY(symbol, params, args)
#define BODY(road, symbol, params, args)                                                        \
	CUresult pd_##road##_body_##symbol params;                                              \
	__attribute__((used, cold)) CUresult pd_##road##_body_##symbol params                   \
	{                                                                                       \
		void *real =                                                                    \
			__atomic_load_n(&pd_##road##_real[PD_CALL_##symbol], __ATOMIC_RELAXED); \
                                                                                                \
		if (real && !pd_caught_from(__builtin_return_address(0)))                       \
			return ((typeof(symbol) *)real)args;                                    \
		return pd_caught_##symbol(PD_LIST args, real);                                  \
	}
#define BODIES(symbol, params, args)       \
	BODY(linked, symbol, params, args) \
	BODY(looked_up, symbol, params, args)
#define X(symbol, base, version, flavour, params, args, ...) \
	PD_CHOOSE(PD_HAS_ROOM(symbol, args), NO_BODY, BODIES)(symbol, params, args)
#include "hook/cuda/entrypoints.def"
#undef X
#pragma GCC visibility pop
