/* SPDX-License-Identifier: MIT */
/*
 * Noticing a checkpoint that another process makes of this one (cuda-checkpoint, CRIU). The work is
 * done here, by a thread that libcuda made at cuInit: it closes the GPU's device files, and opens
 * them again for the restore. Both go through libcuda's own slots of close and open64, which are
 * replaced before anything is pinned.
 *
 * Threads of the program make these calls, too, but only inside calls as cuInit and cuCtxCreate,
 * and those of the driver's other threads are of other files. One too many is no fault: then what
 * is registered is registered anew.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cache/base/environment/log.h"
#include "cache/base/process/system.h"
#include "cache/base/thread/thread.h"
#include "cache/trust/past.h"
#include "hook/hook.h"
#include "hook/loader/loaded/slots.h"

typedef int open_function(const char *path, int flags, mode_t mode);
typedef int close_function(int fd);

/* Where the slots led before they were replaced. Relaxed: each is stored before its slot is. */
static void *before_open, *before_open64, *before_close;

static int restorer; /* its tid; 0: the driver does not say which thread it is */

static int my_tid(void)
{
	return (int)pdn_sys(SYS_gettid);
}

/* Without the driver's word: no thread of the program that has ever come to the cache. */
static bool restores(void)
{
	int known = __atomic_load_n(&restorer, __ATOMIC_RELAXED), me = my_tid();

	return known ? me == known : !pdn_self_tls && me != (int)pdn_sys(SYS_getpid);
}

/*
 * In this order: who is asked whether pdn_straight stands sees that something is of the past.
 * No lock is taken: see cache/trust/past.h.
 */
static void past_begins(void)
{
	pdn_past_begins();
	pdn_straight_ask_again();
}

static bool is_device_file(int fd)
{
	struct stat status;

	return pdn_sys_fstat(fd, &status) && S_ISCHR(status.st_mode);
}

static bool is_gpu(const char *path)
{
	static const char gpus[] = "/dev/nvidia";

	return path && strncmp(path, gpus, sizeof(gpus) - 1) == 0;
}

/* Before the real call: while the thread is in it, no lookup may find what is of the past. */
static int opened(void *const *before, const char *path, int flags, mode_t mode)
{
	open_function *real = (open_function *)__atomic_load_n(before, __ATOMIC_RELAXED);

	if (is_gpu(path) && restores())
		past_begins();
	return real(path, flags, mode);
}

/* As a function with a variable argument is called: in a register, on both processors. */
static int seen_open(const char *path, int flags, mode_t mode)
{
	return opened(&before_open, path, flags, mode);
}

static int seen_open64(const char *path, int flags, mode_t mode)
{
	return opened(&before_open64, path, flags, mode);
}

static int seen_close(int fd)
{
	close_function *real = (close_function *)__atomic_load_n(&before_close, __ATOMIC_RELAXED);

	if (restores() && is_device_file(fd))
		past_begins();
	return real(fd);
}

/* As this process numbers its threads. */
static bool is_own_thread(int tid)
{
	struct stat status;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d", tid);
	return pdn_sys_stat(path, &status);
}

/* false: the driver can't say it yet. */
static bool find_restorer(void)
{
	typeof(cuCheckpointProcessGetRestoreThreadId) *ask =
		PDN_DRIVER(cuCheckpointProcessGetRestoreThreadId);
	int error = errno, tid = 0;
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	if (ask)
		result = ask((int)pdn_sys(SYS_getpid), &tid);
	errno = error;
	if (result == CUDA_SUCCESS && is_own_thread(tid))
		__atomic_store_n(&restorer, tid, __ATOMIC_RELAXED);
	return result != CUDA_ERROR_NOT_INITIALIZED;
}

/* false: this driver calls no such functions. */
static bool replace_slots(void)
{
	const struct pdn_library *driver = pdn_libcuda_library();
	bool closes = pdn_slots_replace(driver, "close", (void *)seen_close, &before_close);
	bool opens = pdn_slots_replace(driver, "open64", (void *)seen_open64, &before_open64);

	opens |= pdn_slots_replace(driver, "open", (void *)seen_open, &before_open);
	return opens && closes;
}

/*
 * Several threads may do this at the same time; a second time changes nothing. Before cuInit
 * nothing can be pinned yet, but a program may ask for it.
 */
static void notice_checkpoints(void)
{
	static bool said;

	if (!pdn_libcuda_begin() || !find_restorer())
		return;
	if (!replace_slots())
		pdn_log_once(&said, PDN_LOG_INFO,
			     "this driver does not open its files as is known: a checkpoint that "
			     "another process makes of this one is not noticed");
	pdn_past_is_noticed();
}

PDN_NOTIFIED(past_is_possible, notice_checkpoints);
