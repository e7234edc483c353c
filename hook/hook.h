/* SPDX-License-Identifier: MIT */
/*
 * hook/ catches calls of the CUDA driver and of libibverbs, and tells the cache what they mean
 * (cache/hook_events.h).
 *
 * cuda/
 *	entrypoints.def	the table: which calls are watched, and what each means
 *	traced.def	its second part: the calls that are only traced
 *	actions.h	what is done before and after the real call; addresses.h is its part for
 *			calls that allocate addresses
 *	wrap.c		the wrappers, made from the table
 *	entries.S	the first instructions of all wrappers, which other libraries may patch
 *	find.c		rows by name; the real functions behind the wrappers
 *	devicemap.c	where device memory has ever been
 *	owners.c, contexts.c, ipc.c, graphs.c	calls whose meaning depends on earlier ones
 *	mappings.c	which memory was made with cuMemMap
 *	capable.c	asks for memory that can be registered
 *	checkpoint.c	notices checkpoints that another process makes
 *	records.c	the tables in which these files remember earlier calls
 * loader/
 *	stubs.S, lookup.c	dlsym, dlvsym, dlopen, dlmopen, dlclose; the answers to look-ups
 *	deepbind.c	whether a file's RTLD_DEEPBIND matters
 *	patches.c	libraries that patch the driver's code, or pindown's
 *	libcuda.c	the driver's library: which one works, where it lies in memory
 *	symtab.c	symbol tables
 *	slots.c		what a library is bound to
 *	yield.c, yield.S	variables with the same names as our functions
 *	library.c	a library of the process: libcuda, libibverbs
 *	scope.c		which library asks, and which of several definitions it would reach without
 *			us
 *	loaded.c	the real dlsym and its like; walking the loaded libraries, also in a child
 *			whose loader is stuck
 * verbs/		the calls of libibverbs and libmlx5: verbs.h
 * life.c		start, fork, exit
 * doors.c		telling UCX's registration caches that memory ends
 *
 * A program reaches the wrappers in two ways. If it is linked with libcuda it calls the exported
 * wrappers. These call the next definition after libpindown.so, so that an interposer behind it
 * keeps its place. If it looks functions up (dlsym, cuGetProcAddress) it gets a wrapper that calls
 * just what the look-up found. Where both are the same function the exported wrapper serves both.
 */
#ifndef PDN_HOOK_H
#define PDN_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/cuda/abi.h"
#include "hook/cuda/entries.h"
#include "cache/hook_events.h"
#include "cache/trace/writer/events.h"
#include "cache/trace/writer/writer.h"
#include "cache/trace/stack/stack.h"

/* All of hook/ is private to the library, and is reached without the linkage tables. */
#pragma GCC visibility push(hidden)

#define PDN_EXPORT	__attribute__((visibility("default")))
#define PDN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PDN_LIST(...)	__VA_ARGS__ /* "PDN_LIST params" is params without its parentheses */

/* ---- the table ------------------------------------------------------------------------------ */

enum pdn_flavour { PDN_ANY, PDN_LEGACY, PDN_PER_THREAD };

enum pdn_call {
#define X(symbol, ...) PDN_CALL_##symbol,
#include "hook/cuda/entrypoints.def"
#undef X
	PDN_CALLS
};

/*
 * The name of a call; behind the last call's number follow the functions in verbs.def. All names,
 * in that order, each with its final NUL, and an empty one at the end.
 */
const char *pdn_call_symbol(unsigned number);
extern const char pdn_call_symbols[];

/* The wrapper that is exported, and the one that is handed out. */
static inline void *pdn_linked_wrapper(enum pdn_call call)
{
	return pdn_entry(call);
}

static inline void *pdn_looked_up_wrapper(enum pdn_call call)
{
	return pdn_entry(PDN_CALLS + call);
}

/* The call whose exported name this is, or -1. */
int pdn_call_by_symbol(const char *name);

/*
 * The answer to a program that asked cuGetProcAddress, which found `found`: a wrapper, or `found`
 * itself if it is not a watched function. ask() puts the same question for another version.
 */
struct pdn_asked {
	const char *name;
	uint64_t flags;
	void *(*ask)(const struct pdn_asked *asked, int version);
	void *real; /* for ask() */
};
void *pdn_substitute(const struct pdn_asked *asked, int version, void *found);

/*
 * The program looks up a name that is not in the table. If the driver has it, and it is a watched
 * call in a version that the table does not have, the program gets a function that can't be
 * watched. From then on every hit is checked (pdn_distrust()).
 */
void pdn_newer_symbol(const char *name);

/* The wrapper to hand out for a function that a look-up of this call found, or `found` itself. */
void *pdn_hand_out(enum pdn_call call, void *found);

/*
 * The real functions. A wrapper reads its own; pdn_find_linked() looks for one that is not known
 * yet. It never returns NULL: without a driver it returns what the caller would have called, or a
 * function that fails with an error.
 */
extern void *pdn_linked_real[PDN_CALLS];
extern void *pdn_looked_up_real[PDN_CALLS];
void *pdn_find_linked(enum pdn_call call, const void *caller);

/*
 * The loader is binding a library to our function of this name. If a second library that defines
 * the name has been loaded meanwhile, our function looks from now on which one its caller means.
 */
void pdn_is_being_bound(const char *name);

/* The library that they belong to is gone. */
void pdn_forget_real_functions(void);

/* ---- the loader and the driver's library ----------------------------------------------------- */

struct dl_phdr_info;
struct pdn_loader {
	void *(*dlsym)(void *, const char *);
	void *(*dlvsym)(void *, const char *, const char *);
	void *(*dlopen)(const char *, int);
	void *(*dlmopen)(long, const char *, int);
	int (*dlclose)(void *);
#define PDN_STUBS 5 /* those that we export */

	/* Of the C library only. */
	char *(*dlerror)(void);
	int (*dladdr1)(const void *, void *info, void **, int);
	int (*dl_iterate_phdr)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
};
/*
 * pdn_loader(): the next definitions behind pindown's, which may be another interposer's, for the
 * program's look-ups. pdn_loader_of_libc(): the C library's, for pindown's own look-ups, which
 * other interposers need not see, and may not survive.
 */
const struct pdn_loader *pdn_loader(void);
const struct pdn_loader *pdn_loader_of_libc(void);

/* A function of the C library, past every interposer; NULL when it has none of that name. */
void *pdn_libc_function(const char *name);

/* Our own stubs, by hidden names: the exported names may be bound to another library's. */
void *pdn_stub_dlsym(void *, const char *);
void *pdn_stub_dlvsym(void *, const char *, const char *);
void *pdn_stub_dlopen(const char *, int);
void *pdn_stub_dlmopen(long, const char *, int);
int pdn_stub_dlclose(void *);
/* The same, but they call the C library's functions. */
void *pdn_stub_libc_dlsym(void *, const char *);
void *pdn_stub_libc_dlvsym(void *, const char *, const char *);
void *pdn_stub_libc_dlopen(const char *, int);
void *pdn_stub_libc_dlmopen(long, const char *, int);

/*
 * Look for the driver. When it is found for the first time, hook/ begins (pdn_hook_begin()). True:
 * it is loaded; it stays so once it works (pdn_hold_libcuda()). Unless it was known, this may wait
 * for a dlopen() in another thread: loader/library.h.
 */
bool pdn_libcuda_begin(void);

/* These look for nothing: before pdn_libcuda_begin() has found the driver it is not known. */
bool pdn_in_libcuda(const void *address);
struct pdn_library;
const struct pdn_library *pdn_libcuda_library(void);

/*
 * Only while the program calls the loader: keep a driver that works from being unloaded. false:
 * there is none.
 */
bool pdn_hold_libcuda(void);
void pdn_libcuda_unloaded(void); /* behind a dlclose(), in a walk */

/* Is this function, to which the program has come, the driver's? It becomes known by that. */
bool pdn_libcuda_is(const void *function);

/* Does the address lie in any loaded libcuda? */
bool pdn_is_a_libcuda(const void *address);

/* A function that libcuda exports, whether it works or not; NULL: it has none of that name. */
void *pdn_libcuda_symbol(const char *name);

/* In a call of it: the next definition after pindown's, of those that the program started with. */
void *pdn_next_function(const char *name);

/*
 * A function of the driver's, to be called: NULL until the program has made one work (cuInit).
 * `slot` remembers it.
 */
void *pdn_driver_function(void **slot, const char *name);
#define PDN_DRIVER(name)                            \
	((typeof(name) *)(__extension__({           \
		static void *slot_;                 \
		pdn_driver_function(&slot_, #name); \
	})))

/*
 * Calls from within [begin, begin + size) may go straight through, without being caught: those of
 * libcuda itself, or all calls while hook/ has not begun or is switched off. Calls from elsewhere
 * are caught.
 */
struct pdn_straight {
	uintptr_t begin, size;
};
extern struct pdn_straight pdn_straight;

/*
 * Does a call from here go straight through? Before it answers, it makes hook/ begin, looks for
 * patches that are expected, and sets pdn_straight if none is expected any more.
 */
bool pdn_straight_decide(const void *caller);

/* From here on each call comes to pdn_straight_decide(), until no patch is expected any more. */
void pdn_straight_ask_again(void);

/* Is a call from here to be caught? The first calls make hook/ begin; see pdn_straight_decide(). */
static inline bool pdn_catch(const void *caller)
{
	/* Acquire pairs with the release in libcuda.c: a thread that sees the size sees `begin`. */
	uintptr_t size = __atomic_load_n(&pdn_straight.size, __ATOMIC_ACQUIRE);
	uintptr_t begin = __atomic_load_n(&pdn_straight.begin, __ATOMIC_RELAXED);

	return __builtin_expect((uintptr_t)caller - begin >= size, 1) ||
	       !pdn_straight_decide(caller);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* At the first use of the driver: read the configuration, open the trace. False: switched off. */
bool pdn_hook_begin(void);

/* A call has returned that the driver is shut down. */
void pdn_driver_gone(void);

/* ---- other registration caches (doors.c) ----------------------------------------------------- */

/*
 * The caller opens a library that is to stay loaded for ever. UCX's libucm does so with itself,
 * before a registration cache of UCX is in use: then the cache is told when memory ends.
 */
void pdn_door_find(const void *caller);

/* ---- one caught call ------------------------------------------------------------------------- */

#define PDN_CAUGHT_GUARDS 8

/* On the wrapper's stack, and used by its thread only. */
struct call {
	enum pdn_call row;
	CUresult result;       /* after the real call */
	void *real;	       /* the real function */
	const void *caller;    /* the program's return address */
	uint64_t begun, ended; /* when the real call was; 0: it is not traced */
	bool straight;	       /* it is passed on without being looked at */

	/*
	 * From the action before the real call to the one after it. Calls with properties of memory
	 * use `error`, `asked` and `changed` only, and have no guards.
	 */
	bool captured; /* the stream was being captured */
	bool gated;    /* an allocation: see pdn_allocation_begins() */
	bool last;     /* taken for the last close or release, so that something was ended */
	int error;     /* errno before a call with properties */
	union {
		/*
		 * Of the mapping that cuIpcCloseMemHandle closes, or pdn_export_begins(); 0:
		 * unknown.
		 */
		uint64_t buffer_id;
		void *connection; /* that cuEGLStreamConsumerDisconnect ends */
		uint64_t later;	  /* bytes that cuMemFreeAsync leaves for the stream's turn */
		const CUmemAllocationProp *asked; /* the program's, if `changed` is in use */
	};

	unsigned guards;
	union {
		pdn_guard guard[PDN_CAUGHT_GUARDS];
		CUmemAllocationProp changed;
	};
};

static inline bool pdn_succeeded(const struct call *call)
{
	return call->result == CUDA_SUCCESS;
}

/*
 * The guard stays up until the call has returned. A call may end more memory than it has room for
 * guards; one beyond PDN_CAUGHT_GUARDS ends at once. Its memory is guarded all the same: a thread's
 * guard beyond PDN_GUARDS widens the last of its slots to all memory, and that slot stays so until
 * the guard that filled it ends, which this call keeps.
 */
static inline void pdn_caught_guard(struct call *call, pdn_guard guard)
{
	if (call->guards < PDN_CAUGHT_GUARDS)
		call->guard[call->guards++] = guard;
	else
		pdn_ended(guard);
}

static inline void pdn_caught_range(struct call *call, uint64_t addr, uint64_t length)
{
	if (addr)
		pdn_caught_guard(call, pdn_end_range(addr, length));
}

/* The memory ends on a stream, when the call's turn comes there. */
static inline void pdn_caught_in_order(struct call *call, uint64_t addr)
{
	if (addr)
		pdn_caught_guard(call, pdn_end_in_order(addr));
}

static inline void pdn_caught_context(struct call *call, void *context)
{
	if (context)
		pdn_caught_guard(call, pdn_end_context(context));
}

static inline void pdn_caught_done(struct call *call)
{
	while (call->guards)
		pdn_ended(call->guard[--call->guards]);
}

/* ---- owners: memory that ends with its owner (cuda/memory/owners.c) -------------------------- */

enum pdn_owner {
	PDN_OWNER_EXTERNAL,
	PDN_OWNER_GRAPHICS,
	PDN_OWNER_GL_BUFFER, /* by its number */
	PDN_OWNER_MODULE,
	PDN_OWNER_LIBRARY,
	PDN_OWNER_EGL, /* a connection, whose frames are graphics resources */
	PDN_OWNERS
};

void pdn_owner_owns(enum pdn_owner owner, const void *handle, uint64_t addr, uint64_t length);
void pdn_owner_end(struct call *call, enum pdn_owner owner, const void *handle);
void pdn_owner_ended(enum pdn_owner owner, const void *handle);
void pdn_owner_module_of(const void *module, const void *library);
void pdn_owner_module_of_a_function(const void *module);
void pdn_owner_frame_of(const void *resource, const void *connection);
void pdn_owner_freed(uint64_t addr);
extern uint32_t pdn_owner_external; /* mapped buffers of external memory that are alive */
extern uint32_t pdn_owner_graphics; /* 1: a resource was once mapped */

/* ---- contexts (cuda/memory/contexts.c) ------------------------------------------------------- */

void pdn_context_created(void *context);
void pdn_context_attached(void *context);
void pdn_context_destroyed(void *context);
void pdn_context_detach(struct call *call, void *context);
void pdn_context_detached(const struct call *call, void *context);
void pdn_primary_retained(void *context, CUdevice device);
void pdn_primary_release(struct call *call, CUdevice device);
void pdn_primary_released(const struct call *call, CUdevice device);
void pdn_primary_reset(struct call *call, CUdevice device);
void pdn_primary_did_reset(CUdevice device);
extern const struct pdn_primary_counts pdn_contexts_count; /* for pdn_primary_counts */
void pdn_green_created(void *green, CUdevice device);
void pdn_green_context(void *context, void *green);
void pdn_green_destroy(struct call *call, void *green);
void pdn_green_destroyed(const struct call *call, void *green);

/* ---- cuMemMap (cuda/memory/mappings.c) ------------------------------------------------------- */

void pdn_mapped(uint64_t addr, uint64_t length);
void pdn_unmapped(uint64_t addr, uint64_t length);
bool pdn_mapping_is_known(uint64_t base, uint64_t id);

/* ---- pools (cuda/memory/pools.c) ------------------------------------------------------------- */

void pdn_pool_set(void *pool, CUmemPool_attribute attribute, const void *value);
void pdn_pool_destroyed(void *pool);
bool pdn_pool_is_known_to_keep(void *pool);   /* for pdn_pool_keeps (cache/driver/driver.h) */
uint64_t pdn_stays_until_turn(uint64_t addr); /* bytes that cuMemFreeAsync leaves in place */

/* ---- memory that can be registered (cuda/capable.c) ------------------------------------------ */

/*
 * The properties to call with: the program's, or a copy with gpuDirectRDMACapable where the device
 * can have it. call->asked is NULL before.
 */
const CUmemAllocationProp *pdn_capable(struct call *call, const CUmemAllocationProp *prop);

/* ---- IPC (cuda/memory/ipc.c) ----------------------------------------------------------------- */

uint64_t pdn_buffer_id(uint64_t addr); /* of the memory there now; 0: there is none */
void pdn_pointer_imported(uint64_t addr);
void pdn_ipc_opened(uint64_t addr);
void pdn_ipc_close(struct call *call, uint64_t addr);
void pdn_ipc_closed(const struct call *call, uint64_t addr);

/* ---- stream capture and graphs (cuda/memory/graphs.c) ---------------------------------------- */

extern uint32_t pdn_captures;	  /* captures begun and not ended */
extern uint32_t pdn_graph_memory; /* 1: a graph with an allocation or a free was once made */

bool pdn_is_capturing(CUstream stream, enum pdn_flavour flavour);
void pdn_capture_begun(void);
void pdn_capture_ended(void);
bool pdn_owner_is_external(uint64_t addr); /* a mapped buffer begins there */
bool pdn_mem_free_is_sure(uint64_t addr);  /* for pdn_free_is_sure (cache/driver/driver.h) */
void pdn_graph_alloc(uint64_t addr, uint64_t length);
void pdn_graph_free(uint64_t addr);
void pdn_graph_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags);
void pdn_graph_updated(CUgraphExec exec, CUgraph graph);
void pdn_graph_launch(struct call *call, CUgraphExec exec);
void pdn_graph_forget(CUgraphExec exec);

#pragma GCC visibility pop

#endif
