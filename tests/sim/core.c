/* SPDX-License-Identifier: MIT */
/* Start, shut-down, the API lock, and the code before and after the body of each entry point. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint.h"
#include "contexts.h"
#include "core.h"
#include "graphs.h"
#include "overlap.h"
#include "sim.h"

extern struct sim_site *const __start_sim_sites[];
extern struct sim_site *const __stop_sim_sites[];

enum state { BEFORE, ALIVE, FORKED, SHUT_DOWN };

static struct sim_alive never_alive;
struct sim_alive *sim_alive = &never_alive;
bool sim_logging;
static int log_fd = -1;

static uint32_t state = BEFORE;
static pthread_mutex_t api_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned lock_depth;

/* ---- the API lock --------------------------------------------------------------------------- */

static void lock(void)
{
	if (lock_depth++ == 0)
		pthread_mutex_lock(&api_lock);
}

static void unlock(void)
{
	if (--lock_depth == 0)
		pthread_mutex_unlock(&api_lock);
}

void sim_lock(void)
{
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == ALIVE && !sim_is_alive())
		return; /* a forked child: alone, and the lock may be held by nobody who lives */
	lock();
}

void sim_unlock(void)
{
	if (lock_depth)
		unlock();
}

bool sim_is_in_call(void)
{
	return lock_depth != 0;
}

unsigned sim_lock_leave(void)
{
	unsigned depth = lock_depth;

	lock_depth = 0;
	pthread_mutex_unlock(&api_lock);
	return depth;
}

void sim_lock_rejoin(unsigned depth)
{
	pthread_mutex_lock(&api_lock);
	lock_depth = depth;
}

/* ---- entry points --------------------------------------------------------------------------- */

struct sim_site *sim_find_site(const char *name, size_t length)
{
	struct sim_site *const *site;

	for (site = __start_sim_sites; site < __stop_sim_sites; site++)
		if (!strncmp((*site)->name, name, length) && !(*site)->name[length])
			return *site;
	return NULL;
}

void *sim_own_export(const char *name)
{
	struct sim_site *site = sim_find_site(name, strlen(name));

	return site ? site->function : NULL;
}

/*
 * A child of fork() has neither the driver's threads nor the GPU's channels: from now on nothing is
 * initialised there. (A real driver's child can still free the parent's memory until the driver's
 * own handler of fork() has run.) Another thread may have held the lock.
 */
static void note_fork(void)
{
	static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
	uint32_t expected = ALIVE;

	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == ALIVE && !sim_is_alive() &&
	    __atomic_compare_exchange_n(&state, &expected, FORKED, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE)) {
		memcpy(&api_lock, &fresh, sizeof(fresh));
		lock_depth = 0;
		sim_touches_fork_child();
	}
}

static CUresult why_not_alive(void)
{
	if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == SHUT_DOWN)
		return CUDA_ERROR_DEINITIALIZED;
	return CUDA_ERROR_NOT_INITIALIZED;
}

static bool missing(unsigned need, CUresult *why)
{
	if (unlikely(!sim_is_alive()) &&
	    (need != SIM_NEEDS_NOTHING || __atomic_load_n(&state, __ATOMIC_ACQUIRE) == SHUT_DOWN)) {
		*why = why_not_alive();
		return true;
	}
	switch (need & ~(SIM_UNSAFE | SIM_RACY)) {
	case SIM_NEEDS_CONTEXT:
		*why = sim_current_context_state();
		break;
	case SIM_NEEDS_NO_DEAD_CONTEXT:
		*why = sim_current() ? sim_current_context_state() : CUDA_SUCCESS;
		break;
	default:
		return false;
	}
	if (*why == CUDA_SUCCESS && need & SIM_UNSAFE && lock_depth == 1)
		*why = sim_capture_forbids();
	return *why != CUDA_SUCCESS;
}

void sim_called(const char *name, const void *caller)
{
	Dl_info info;

	if (!dladdr(caller, &info) || !strstr(info.dli_fname, "libpindown"))
		return;
	sim_complain("%s is called by %s, which can't know that no other thread unmaps or releases "
		     "the same handle: the real driver corrupts its heap then",
		     name, info.dli_fname);
	abort();
}

static void write_log(const struct sim_site *site, CUresult result)
{
	int saved = errno;
	char line[128];
	int length;

	length = snprintf(line, sizeof(line), "%d %s = %d\n", (int)syscall(SYS_gettid), site->name,
			  (int)result);
	if (write(log_fd, line, length) != length)
		sim_logging = false;
	errno = saved;
}

/*
 * Faults act on calls of the program, not on the driver's own: their number must not depend on the
 * driver's internals.
 */
static __attribute__((noinline)) bool rules_let_pass(struct sim_site *site, uint64_t call,
						     CUresult *result)
{
	struct sim_rule *rule = sim_rule_for(site, call, SIM_RULE_DELAY);

	if (rule && rule->when == SIM_DELAY_BEFORE)
		sim_sleep_us(rule->delay_us);
	rule = sim_rule_for(site, call, SIM_RULE_FAIL);
	if (rule)
		*result = rule->error;
	return !rule;
}

static __thread uint64_t call_number; /* of this thread's outermost call */

bool sim_begin(struct sim_site *site, unsigned need, CUresult *result)
{
	if (unlikely(!sim_is_alive()))
		note_fork();
	if (lock_depth == 0) {
		call_number = __atomic_add_fetch(&site->calls, 1, __ATOMIC_RELAXED);
		if (unlikely(__atomic_load_n(&site->rules, __ATOMIC_ACQUIRE)) &&
		    !rules_let_pass(site, call_number, result)) {
			if (sim_logging)
				write_log(site, *result);
			return false;
		}
	}
	lock();
	if (unlikely(missing(need, result))) {
		unlock();
		if (sim_logging)
			write_log(site, *result);
		return false;
	}
	return true;
}

CUresult sim_end(struct sim_site *site, CUresult result)
{
	struct sim_rule *rule = NULL;

	if (unlikely(__atomic_load_n(&site->rules, __ATOMIC_ACQUIRE)) && lock_depth == 1)
		rule = sim_rule_for(site, call_number, SIM_RULE_DELAY);
	if (rule && rule->when == SIM_DELAY_HELD)
		sim_sleep_us(rule->delay_us);
	unlock();
	if (rule && rule->when == SIM_DELAY_AFTER)
		sim_sleep_us(rule->delay_us);
	if (unlikely(sim_logging))
		write_log(site, result);
	return result;
}

/* ---- start and shut-down -------------------------------------------------------------------- */

/* Runs before the handlers that were registered before cuInit, as the real driver's does. */
static void shut_down(void)
{
	if (!sim_is_alive())
		return; /* a forked child's exit */
	lock();
	__atomic_store_n(&sim_alive->alive, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&state, SHUT_DOWN, __ATOMIC_RELEASE);
	unlock();
}

__attribute__((constructor)) static void load(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *log = getenv("SIM_LOG");

	if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0)
		sim_alive = page;
	else
		sim_complain("simulated libcuda: no page that fork wipes: a child will take "
			     "its parent's driver for its own");
	sim_read_options();
	sim_faults_from_environment();
	if (log && *log) {
		log_fd = !strcmp(log, "-")
				 ? 2
				 : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (log_fd < 0)
			sim_complain("simulated libcuda: SIM_LOG=%s: %s; \"-\" or a file that can "
				     "be written is accepted",
				     log, strerror(errno));
		sim_logging = log_fd >= 0;
	}
}

SIM_EARLY_CALL(cuInit, (unsigned int flags), (flags))
{
	CUresult result;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	switch (__atomic_load_n(&state, __ATOMIC_ACQUIRE)) {
	case ALIVE:
		return CUDA_SUCCESS;
	case FORKED:
		return CUDA_ERROR_NOT_INITIALIZED;
	case SHUT_DOWN:
		return CUDA_ERROR_DEINITIALIZED;
	}
	if (!sim_options.devices)
		return CUDA_ERROR_NO_DEVICE;
	result = sim_memory_start();
	if (result != CUDA_SUCCESS)
		return result;
	atexit(shut_down);
	sim_checkpoint_start();
	__atomic_store_n(&state, ALIVE, __ATOMIC_RELEASE);
	__atomic_store_n(&sim_alive->alive, 1, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

SIM_EARLY_CALL(cuDriverGetVersion, (int *version), (version))
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = sim_options.driver_version;
	return CUDA_SUCCESS;
}

/* ---- questions of tests --------------------------------------------------------------------- */

SIM_API uint64_t sim_calls(const char *name)
{
	struct sim_site *site = sim_find_site(name, strlen(name));

	return site ? __atomic_load_n(&site->calls, __ATOMIC_RELAXED) : UINT64_MAX;
}

SIM_API uint64_t sim_calls_all(void)
{
	struct sim_site *const *site;
	uint64_t calls = 0;

	for (site = __start_sim_sites; site < __stop_sim_sites; site++)
		calls += __atomic_load_n(&(*site)->calls, __ATOMIC_RELAXED);
	return calls;
}
