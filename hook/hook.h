/* SPDX-License-Identifier: MIT */
/*
 * hook/: catching calls of the CUDA driver, and telling the cache what they mean
 * (cache/hook_events.h).
 *
 * cuda/
 *	entrypoints.def	which calls are watched, and what each means
 *	wrap.c		from it: the exported wrappers and those that look-ups hand out
 *	entries.S	the first instructions of all wrappers, which others may patch
 *	find.c		rows by name; the real functions behind the wrappers
 *	devicemap.c	where device memory has ever been
 *	owners.c, contexts.c, ipc.c, graphs.c	calls whose meaning depends on earlier ones
 *	mappings.c	which memory was made with cuMemMap
 *	records.c	what they remember
 * loader/
 *	stubs.S, lookup.c	dlsym, dlvsym, dlopen, dlmopen, dlclose; what a look-up is answered with
 *	asker.c		who asks
 *	deepbind.c	whether a file's RTLD_DEEPBIND matters
 *	patches.c	who patches the driver's code, or ours
 *	libcuda.c	the driver's object: its handle, where it lies in memory
 *	loader.c	the real dlsym and its like
 *	symtab.c	symbol tables
 *	library.c	a library of the process: libcuda, libibverbs
 *	loaded.c	walking the loaded libraries, also in a child whose loader is stuck
 *	watched.c	the functions behind the wrappers
 * verbs/		the calls of libibverbs: verbs.h
 * life.c		start, fork, exit
 *
 * Two roads lead here. A program that is linked with libcuda calls our exported wrappers, and these
 * call the next definition after us, so that an interposer behind us keeps its place. A program
 * that looks functions up (dlsym, cuGetProcAddress) is given a wrapper that calls just what the
 * look-up found. Where both are the same function the exported wrapper serves both.
 */
#ifndef PD_HOOK_H
#define PD_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hook/cuda/abi.h"
#include "hook/cuda/entries.h"
#include "cache/hook_events.h"
#include "cache/trace/writer.h"

/* All of hook/ is ours alone, and reached without the linkage tables. */
#pragma GCC visibility push(hidden)

#define PD_EXPORT      __attribute__((visibility("default")))
#define PD_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PD_LIST(...)   __VA_ARGS__ /* "PD_LIST params" is params without its parentheses */

/* ---- the table ------------------------------------------------------------------------------ */

enum pd_flavour { PD_ANY, PD_LEGACY, PD_PER_THREAD };

enum pd_call {
#define X(symbol, ...) PD_CALL_##symbol,
#include "hook/cuda/entrypoints.def"
#undef X
	PD_CALLS
};

extern const char *const pd_call_symbol[]; /* the verbs' are behind the calls' */

/* The wrapper that is exported, and the one that is handed out. */
static inline void *pd_linked_wrapper(enum pd_call call)
{
	return pd_entry(call);
}

static inline void *pd_looked_up_wrapper(enum pd_call call)
{
	return pd_entry(PD_CALLS + call);
}

/* The call whose exported name this is, or -1. */
int pd_call_by_symbol(const char *name);

/*
 * What a program that asked cuGetProcAddress for this gets instead of `found`: a wrapper, or
 * `found` itself where that is none of our functions. ask() puts the same question for another
 * version.
 */
struct pd_asked {
	const char *name;
	uint64_t flags;
	void *(*ask)(const struct pd_asked *asked, int version);
	void *real; /* for ask() */
};
void *pd_substitute(const struct pd_asked *asked, int version, void *found);

/*
 * The program looks a name up that is no call of the table. Where it is a watched call in a version
 * that the table has not, and the driver has it, the program gets what can't be watched: nothing is
 * trusted from then on.
 */
void pd_newer_symbol(const char *name);

/* The wrapper to hand out for a function that a look-up of this call found, or `found` itself. */
void *pd_hand_out(enum pd_call call, void *found);

/*
 * The real functions. A wrapper reads its own; pd_find_linked() looks for one that is not known
 * yet, and never answers NULL: without a driver it answers with a function that says so.
 */
extern void *pd_linked_real[PD_CALLS];
extern void *pd_looked_up_real[PD_CALLS];
void *pd_find_linked(enum pd_call call);

/* ---- the loader and the driver's object ------------------------------------------------------ */

struct pd_loader {
	void *(*dlsym)(void *, const char *);
	void *(*dlvsym)(void *, const char *, const char *);
	void *(*dlopen)(const char *, int);
	void *(*dlmopen)(long, const char *, int);
	int (*dlclose)(void *);
};
/*
 * Those that come next behind us, which may be another interposer's, for what the program asks; and
 * the C library's, for what we ask ourselves, which is nobody's business.
 */
const struct pd_loader *pd_loader(void);
const struct pd_loader *pd_loader_of_libc(void);

/* Ours, by names that only we can bind: the exported ones may be another's. */
void *pd_stub_dlsym(void *, const char *);
void *pd_stub_dlvsym(void *, const char *, const char *);
void *pd_stub_dlopen(const char *, int);
void *pd_stub_dlmopen(long, const char *, int);
int pd_stub_dlclose(void *);
/* The same, that go on to the C library's. */
void *pd_stub_libc_dlsym(void *, const char *);
void *pd_stub_libc_dlvsym(void *, const char *, const char *);
void *pd_stub_libc_dlopen(const char *, int);
void *pd_stub_libc_dlmopen(long, const char *, int);

/* Is the driver loaded? From then on it stays. */
bool pd_libcuda(void);
bool pd_in_libcuda(const void *address);
struct pd_library;
const struct pd_library *pd_libcuda_library(void);

/* In a call of the loader by the program: see to it that the driver stays. */
void pd_hold_libcuda(void);

/* The next definition after us, or the driver's own; NULL when there is no driver. */
void *pd_next_function(const char *name);

/* A function that libcuda exports, or NULL. `slot` remembers it. */
void *pd_driver_function(void **slot, const char *name);
#define PD_DRIVER(name)                            \
	((typeof(name) *)(__extension__({          \
		static void *slot_;                \
		pd_driver_function(&slot_, #name); \
	})))

/*
 * Where calls come from that go straight through: libcuda itself, or, while we are not ready or
 * switched off, anywhere. Callers outside of [begin, begin + size) are caught.
 */
struct pd_straight {
	uintptr_t begin, size;
};
extern struct pd_straight pd_straight;
bool pd_goes_straight(const void *caller);

/*
 * From here on, until nothing is expected of a patch any more, each call comes to
 * pd_goes_straight().
 */
void pd_straight_unsettle(void);

static inline bool pd_caught_from(const void *caller)
{
	/*
	 * Acquire pairs with the release in pd_goes_straight(): with the size there is the begin.
	 */
	uintptr_t size = __atomic_load_n(&pd_straight.size, __ATOMIC_ACQUIRE);
	uintptr_t begin = __atomic_load_n(&pd_straight.begin, __ATOMIC_RELAXED);

	return __builtin_expect((uintptr_t)caller - begin >= size, 1) || !pd_goes_straight(caller);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The first use of the driver: reads the configuration, opens the trace. False: switched off. */
bool pd_hook_begin(void);

/* A call answered that the driver is shut down. */
void pd_driver_gone(void);

/* ---- one caught call ------------------------------------------------------------------------- */

#define PD_CAUGHT_GUARDS 8

/* On the wrapper's stack. note and id: from the verb before the call to the one after it. */
struct pd_caught {
	unsigned guards;
	int note;
	uint64_t id;
	uint64_t begun, ended; /* when the real call was; 0: it is not traced */
	bool straight;	       /* it comes from the driver itself, say: not to be looked at */
	pd_guard guard[PD_CAUGHT_GUARDS];
};

/* The guard stays up until the call has returned; beyond PD_CAUGHT_GUARDS of them it can't. */
static inline void pd_caught_guard(struct pd_caught *caught, pd_guard guard)
{
	if (caught->guards < PD_CAUGHT_GUARDS)
		caught->guard[caught->guards++] = guard;
	else
		pd_ended(guard);
}

static inline void pd_caught_range(struct pd_caught *caught, uint64_t addr, uint64_t length)
{
	if (addr)
		pd_caught_guard(caught, pd_end_range(addr, length));
}

/* On a stream: at its turn there. */
static inline void pd_caught_in_order(struct pd_caught *caught, uint64_t addr)
{
	if (addr)
		pd_caught_guard(caught, pd_end_in_order(addr));
}

static inline void pd_caught_context(struct pd_caught *caught, void *context)
{
	if (context)
		pd_caught_guard(caught, pd_end_context(context));
}

static inline void pd_caught_done(struct pd_caught *caught)
{
	while (caught->guards)
		pd_ended(caught->guard[--caught->guards]);
}

/* ---- owners: memory that ends with something else (cuda/owners.c) ---------------------------- */

enum pd_owner {
	PD_OWNER_EXTERNAL,
	PD_OWNER_GRAPHICS,
	PD_OWNER_GL_BUFFER, /* by its number */
	PD_OWNER_MODULE,
	PD_OWNER_LIBRARY,
	PD_OWNER_EGL, /* a connection, whose frames are graphics resources */
};

void pd_owner_owns(enum pd_owner owner, const void *handle, uint64_t addr, uint64_t length);
void pd_owner_end(struct pd_caught *caught, enum pd_owner owner, const void *handle);
void pd_owner_ended(enum pd_owner owner, const void *handle);
void pd_owner_module_of(const void *module, const void *library);
void pd_owner_module_of_a_function(const void *module);
void pd_owner_frame_of(const void *resource, const void *connection);
void pd_owner_freed(uint64_t addr);
extern uint32_t pd_owner_external; /* mapped buffers of external memory that are alive */
extern uint32_t pd_owner_graphics; /* a resource was ever mapped */

/* ---- contexts (cuda/contexts.c) -------------------------------------------------------------- */

void pd_context_created(void *context);
void pd_context_attached(void *context);
void pd_context_destroyed(void *context);
void pd_context_detach(struct pd_caught *caught, void *context);
void pd_context_detached(const struct pd_caught *caught, void *context, bool ok);
void pd_primary_retained(void *context, CUdevice device);
void pd_primary_release(struct pd_caught *caught, CUdevice device);
void pd_primary_released(const struct pd_caught *caught, CUdevice device, bool ok);
void pd_primary_reset(struct pd_caught *caught, CUdevice device);
void pd_primary_did_reset(CUdevice device);
void pd_green_created(void *green, CUdevice device);
void pd_green_context(void *context, void *green);
void pd_green_destroy(struct pd_caught *caught, void *green);
void pd_green_destroyed(const struct pd_caught *caught, void *green, bool ok);

/* ---- cuMemMap (cuda/mappings.c) -------------------------------------------------------------- */

void pd_mapped(uint64_t addr, uint64_t length);
void pd_unmapped(uint64_t addr, uint64_t length);
bool pd_mapping_is_known(uint64_t base, uint64_t id);

/* ---- IPC (cuda/ipc.c) ------------------------------------------------------------------------ */

uint64_t pd_buffer_id(uint64_t addr); /* what is there now has it; 0: nothing is */
void pd_ipc_opened(uint64_t addr);
void pd_ipc_close(struct pd_caught *caught, uint64_t addr);
void pd_ipc_closed(const struct pd_caught *caught, uint64_t addr, bool ok);

/* ---- stream capture and graphs (cuda/graphs.c) ----------------------------------------------- */

extern uint32_t pd_captures;	 /* captures begun and not ended */
extern uint32_t pd_graph_memory; /* a graph with an allocation or a free was ever made */

bool pd_is_capturing(CUstream stream, enum pd_flavour flavour);
void pd_capture_begun(void);
void pd_capture_ended(void);
void pd_graph_alloc(uint64_t addr, uint64_t length);
void pd_graph_free(uint64_t addr);
void pd_graph_instantiated(CUgraphExec exec, CUgraph graph, uint64_t flags);
void pd_graph_updated(CUgraphExec exec, CUgraph graph);
void pd_graph_launch(struct pd_caught *caught, CUgraphExec exec);
void pd_graph_forget(CUgraphExec exec);

#pragma GCC visibility pop

#endif
