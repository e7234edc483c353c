/* SPDX-License-Identifier: MIT */
/* What happens at the library's load, the first use of the driver, a fork, and the exit. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "hook/loader/loaded/scope.h"
#include "cache/base/environment/config.h"
#include "cache/base/environment/environment.h"
#include "cache/base/environment/log.h"
#include "hook/hook.h"
#include "cache/show/page.h"
#include "cache/base/process/process.h"

/* ---- the first use of the driver --------------------------------------------------------- */

static void *find_driver_symbol(const char *name)
{
	void *none = NULL;

	return pdn_driver_function(&none, name);
}

/* At load, or earlier, in a constructor that uses CUDA. */
PDN_STARTS static void introduce_ourselves(void)
{
	if (pdn_find_driver_symbol == find_driver_symbol)
		return;
	pdn_find_driver_symbol = find_driver_symbol;
	pdn_trace_call_names(pdn_call_symbols);
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
	return pdn_config()->enabled && !pdn_process_is_off();
}

/* ---- fork -------------------------------------------------------------------------------- */

PDN_NOTIFIED(hook_is_off, pdn_straight_ask_again);

typedef pid_t fork_function(void);
/*
 * _Fork() runs no atfork handlers, and may be called in a signal handler, so the real one is looked
 * up without the loader's help.
 */
PDN_EXPORT pid_t _Fork(void)
{
	fork_function *real = (fork_function *)pdn_next_definition("_Fork");
	pid_t child;

	if (!real)
		real = (fork_function *)pdn_libc_function("_Fork");
	if (!real) {
		errno = ENOSYS; /* a C library without it */
		return -1;
	}
	child = real();
	if (child == 0)
		pdn_fork_child();
	return child;
}

/*
 * The C library's name for whose handlers these are. The compiler's own start files would define
 * it, but the library is linked without them (see the Makefile); unit tests are not.
 */
extern __attribute__((visibility("hidden"))) void *__dso_handle;
__attribute__((weak)) void *__dso_handle = &__dso_handle;

/* ---- load and exit ----------------------------------------------------------------------- */

PDN_STARTS static void watch(void)
{
	static PDN_AT_LOAD char a_call[] = "cuMemFree_v2", a_look_up[] = "dlsym";
	bool intercepting = pdn_is_first_definition(a_call) && pdn_is_first_definition(a_look_up);
	const char *other = intercepting ? NULL : pdn_library_before_us("pindown_get", a_call);

	/* As where /etc/ld.so.preload and LD_PRELOAD name two files: one cache is enough. */
	if (other) {
		pdn_config_leave_to(other);
		return;
	}
	pdn_set_intercepting(intercepting);
	if (intercepting) {
		pdn_is_mapped = pdn_mapping_is_known;
		pdn_free_is_sure = pdn_mem_free_is_sure;
		pdn_pool_keeps = pdn_pool_is_known_to_keep;
		pdn_primary_counts = &pdn_contexts_count;
	}
}

/*
 * Each process of a job comes here, and most never use CUDA: what can wait for the first use does.
 * Nothing here looks a symbol up by the loader, takes a lock, or stores to data of its own page
 * (PDN_AT_LOAD).
 */
__attribute__((constructor)) static void loaded(void)
{
	int error = errno;

	pdn_process_loaded();
	pdn_log_at_load();
	pdn_libraries_at_start();
	pdn_top_allow();
	pthread_atfork(pdn_fork_prepare, pdn_fork_parent, pdn_fork_child);
	if (pdn_config_at_load()) {
		pdn_environment_at_load();
		introduce_ourselves();
		watch();
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
