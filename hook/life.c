/* SPDX-License-Identifier: MIT */
/* What happens at the library's load, the first use of the driver, a fork, and the exit. */
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

/* ---- does the library intercept the calls? ----------------------------------------------- */

/* The library whose own definition a look-up by `handle` finds; NULL if there is none. */
static const void *definer(void *handle, const char *name, const void **definition)
{
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	*definition = pdn_loader_of_libc()->dlsym(handle, name);
	if (!*definition) {
		dlerror();
		return NULL;
	}
	if (!dladdr1(*definition, &info, (void **)&symbol, RTLD_DL_SYMENT))
		return NULL;
	/*
	 * A program that is not position independent has a stub of its own for a function whose
	 * address it takes.
	 */
	if (symbol && symbol->st_shndx == SHN_UNDEF)
		return NULL;
	return info.dli_fbase;
}

/*
 * Are the program's calls bound to this definition? They are bound to pindown's if the library is
 * preloaded, or linked before the driver; in a process that loaded it later they are not.
 */
static bool is_bound_to(const char *name, const void *wanted)
{
	void *program = pdn_loader_of_libc()->dlopen(NULL, RTLD_LAZY);
	const struct link_map *map = program;
	const void *definition;

	if (!program)
		return false;
	if (definer(program, name, &definition))
		return definition == wanted;
	/* The program's own stub leads to the first definition behind it. */
	for (map = map->l_next; definition && map; map = map->l_next) {
		void *object = pdn_loader_of_libc()->dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
		const void *found = NULL;

		if (object)
			definer(object, name, &found);
		if (found)
			return found == wanted;
	}
	return false;
}

static bool is_intercepting(void)
{
	return is_bound_to("cuMemFree_v2", pdn_linked_wrapper(PDN_CALL_cuMemFree_v2)) &&
	       is_bound_to("dlsym", pdn_stub_dlsym);
}

/* ---- the first use of the driver --------------------------------------------------------- */

static void *find_driver_symbol(const char *name)
{
	void *none = NULL;

	return pdn_driver_function(&none, name);
}

/* At load, or earlier, in a constructor that uses CUDA. */
static void introduce_ourselves(void)
{
	if (pdn_find_driver_symbol == find_driver_symbol)
		return;
	pdn_find_driver_symbol = find_driver_symbol;
	pdn_trace_call_names(pdn_call_symbol, PDN_CALLS + PDN_VERBS);
}

/*
 * Several threads may do this at the same time; a second time changes nothing. pthread_once() won't
 * do: a child by _Fork() or clone() would wait for a thread that it does not have, and all threads
 * would wait for one that is writing a line.
 */
static void begin(void)
{
	pdn_config_complain();
	if (!pdn_config()->enabled)
		return;
	introduce_ourselves();
	pdn_trace_open();
	pdn_top_open();
}

bool pdn_hook_begin(void)
{
	static bool ready;
	int error = errno;

	/* Acquire pairs with the release below: this thread sees all that begin() has set up. */
	if (PDN_UNLIKELY(!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))) {
		begin();
		__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	}
	errno = error;
	return pdn_config()->enabled;
}

/* ---- fork -------------------------------------------------------------------------------- */

/* Forgets the parent's calls, before the cache forgets its regions (cache/base/process.h). */
static void forget_calls(void)
{
	pdn_records_fork_child();
}

typedef pid_t fork_function(void);
static fork_function *real_fork;

static fork_function *find_fork(void)
{
	fork_function *found = (fork_function *)pdn_loader_of_libc()->dlsym(RTLD_NEXT, "_Fork");

	if (!found)
		dlerror();
	return found;
}

/*
 * _Fork() runs no atfork handlers, and may be called in a signal handler, so the real one is looked
 * up beforehand.
 */
PDN_EXPORT pid_t _Fork(void)
{
	fork_function *real = real_fork ? real_fork : find_fork();
	pid_t child;

	if (!real) {
		errno = ENOSYS; /* a C library without it */
		return -1;
	}
	child = real();
	if (child == 0)
		pdn_fork_child();
	return child;
}

/* ---- load and exit ----------------------------------------------------------------------- */

static void watch(bool intercepting)
{
	pdn_set_intercepting(intercepting);
	if (intercepting)
		pdn_is_mapped = pdn_mapping_is_known;
}

/* Nothing here may cost a program that never uses CUDA more than a few microseconds. */
__attribute__((constructor)) static void loaded(void)
{
	int error = errno;

	pdn_process_loaded();
	pdn_libraries_at_start();
	real_fork = find_fork();
	pdn_top_allow();
	pdn_hook_fork_child = forget_calls;
	pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child);
	if (pdn_config()->enabled) {
		introduce_ourselves();
		watch(is_intercepting());
	}
	errno = error;
}

/*
 * The driver may have shut down by now: its own exit handler was registered later, so it runs
 * earlier.
 */
__attribute__((destructor)) static void unloaded(void)
{
	int error = errno;

	pdn_exiting();
	errno = error;
}

void pdn_driver_gone(void)
{
	static bool told;
	int error = errno;

	/* Relaxed: it only decides which thread is the first. */
	if (!__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		pdn_exiting();
	errno = error;
}
