/* SPDX-License-Identifier: MIT */
/* From the library's load to the process's end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "hook/loader/asker.h"
#include "cache/base/config.h"
#include "hook/hook.h"
#include "cache/top/page.h"
#include "cache/base/process.h"
#include "hook/cuda/records.h"
#include "hook/verbs/verbs.h"

/* ---- are we in the way of the calls? ----------------------------------------------------- */

/* The object whose own definition a look-up by `handle` finds; NULL when there is none. */
static const void *definer(void *handle, const char *name, const void **definition)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	*definition = pd_loader_of_libc()->dlsym(handle, name);
	if (!*definition) {
		dlerror();
		return NULL;
	}
	if (!dladdr1(*definition, &info, (void **)&symbol, RTLD_DL_SYMENT))
		return NULL;
	/* A program that isn't position independent has a stub of its own for what it takes the
	 * address of. */
	if (symbol && symbol->st_shndx == SHN_UNDEF)
		return NULL;
	return info.dli_fbase;
}

/*
 * Is ours the definition that the program's calls are bound to? Only as a preload, or linked before
 * the driver, are we first; in a process that loaded us later its calls go elsewhere.
 */
static bool is_bound_to(const char *name, const void *ours)
{
	void *program = pd_loader_of_libc()->dlopen(NULL, RTLD_LAZY);
	const struct link_map *map = program;
	const void *definition;

	if (!program)
		return false;
	if (definer(program, name, &definition))
		return definition == ours;
	/* The program's own stub stands for the first definition behind it. */
	for (map = map->l_next; definition && map; map = map->l_next) {
		void *object = pd_loader_of_libc()->dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
		const void *found = NULL;

		if (object)
			definer(object, name, &found);
		if (found)
			return found == ours;
	}
	return false;
}

static bool is_intercepting(void)
{
	return is_bound_to("cuMemFree_v2", pd_linked_wrapper(PD_CALL_cuMemFree_v2)) &&
	       is_bound_to("dlsym", pd_stub_dlsym);
}

/* ---- the first use of the driver --------------------------------------------------------- */

static void *find_driver_symbol(const char *name)
{
	void *none = NULL;

	return pd_driver_function(&none, name);
}

/* At load, or earlier, in a constructor that uses CUDA. */
static void introduce_ourselves(void)
{
	if (pd_find_driver_symbol == find_driver_symbol)
		return;
	pd_find_driver_symbol = find_driver_symbol;
	pd_trace_call_names(pd_call_symbol, PD_CALLS + PD_VERBS);
}

/*
 * Threads that come here at once all do it, and nothing comes of it twice. Not by pthread_once():
 * a child by _Fork() or clone() would wait there for a thread that it does not have, and all others
 * for one that has a line to write.
 */
static void begin(void)
{
	pd_config_complain();
	if (!pd_config()->enabled)
		return;
	introduce_ourselves();
	pd_trace_open();
	pd_live_open();
}

bool pd_hook_begin(void)
{
	static bool ready;
	int error = errno;

	/* Acquire pairs with the store below: what begin() has set up is there. */
	if (PD_UNLIKELY(!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))) {
		begin();
		__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	}
	errno = error;
	return pd_config()->enabled;
}

/* ---- fork -------------------------------------------------------------------------------- */

/* What hook/ remembers, before the cache begins anew (cache/base/process.h). */
static void begin_anew(void)
{
	pd_records_fork_child();
}

typedef pid_t fork_function(void);
static fork_function *real_fork;

static fork_function *find_fork(void)
{
	fork_function *found = (fork_function *)pd_loader_of_libc()->dlsym(RTLD_NEXT, "_Fork");

	if (!found)
		dlerror();
	return found;
}

/* Runs no atfork handlers, and may be called in a signal handler: hence looked up beforehand. */
PD_EXPORT pid_t _Fork(void)
{
	fork_function *real = real_fork ? real_fork : find_fork();
	pid_t child;

	if (!real) {
		errno = ENOSYS; /* a C library without it */
		return -1;
	}
	child = real();
	if (child == 0)
		pd_fork_child();
	return child;
}

/* ---- load and exit ----------------------------------------------------------------------- */

static void watch(bool intercepting)
{
	pd_set_intercepting(intercepting);
	if (intercepting)
		pd_is_mapped = pd_mapping_is_known;
}

/* Nothing here may cost a program that never uses CUDA more than a few microseconds. */
__attribute__((constructor)) static void loaded(void)
{
	int error = errno;

	pd_process_loaded();
	pd_libraries_at_start();
	real_fork = find_fork();
	pd_live_allow();
	pd_hook_fork_child = begin_anew;
	pthread_atfork(pd_fork_prepare, pd_fork_parent, pd_fork_child);
	if (pd_config()->enabled) {
		introduce_ourselves();
		watch(is_intercepting());
	}
	errno = error;
}

/* By now the driver may have shut down: its own exit handler was registered later and runs earlier.
 */
__attribute__((destructor)) static void unloaded(void)
{
	int error = errno;

	pd_exiting();
	errno = error;
}

void pd_driver_gone(void)
{
	static bool told;
	int error = errno;

	/* Relaxed: only who is first matters. */
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		pd_exiting();
	errno = error;
}
