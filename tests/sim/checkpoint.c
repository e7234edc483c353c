/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints. Device memory is saved and released; a restore allocates it at the same addresses,
 * with the same buffer ids, in other memory: earlier exports show the old memory, which they keep.
 *
 * A process makes one of itself, or of another process: with SIM_CHECKPOINT=1 cuInit starts a
 * thread, as the real driver does, that does the work of such a checkpoint. It closes the GPU's
 * device files and opens them again, many times, by the C library's names, and the other threads'
 * calls of the driver wait until it is unlocked. (Here it keeps the API lock meanwhile.) What a
 * process does to itself is done in the calling thread.
 */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "memory.h"

enum state { RUNNING, LOCKED, CHECKPOINTED };

static enum state state;

static CUresult step(enum state from, enum state to)
{
	if (state != from)
		return CUDA_ERROR_ILLEGAL_STATE;
	state = to;
	return CUDA_SUCCESS;
}

/* ---- the device files ----------------------------------------------------------------------- */

#define REOPENED 34 /* times in a restore */

static int device_files[2] = {-1, -1};

/* Where there is no GPU another device file takes its place. */
static int open_device_file(const char *path)
{
	int fd = open64(path, O_RDWR | O_CLOEXEC);

	return fd >= 0 ? fd : open64("/dev/null", O_RDWR | O_CLOEXEC);
}

static void open_device_files(void)
{
	device_files[0] = open_device_file("/dev/nvidiactl");
	device_files[1] = open_device_file("/dev/nvidia0");
}

static void close_device_files(void)
{
	for (unsigned i = 0; i < 2; i++)
		if (device_files[i] >= 0)
			close(device_files[i]);
}

void sim_checkpoint_use_files(void)
{
	int fd;

	if (!sim_options.checkpoint)
		return;
	fd = open_device_file("/dev/nvidia0");
	if (fd >= 0)
		close(fd);
}

/* ---- the steps, in the thread that does the work -------------------------------------------- */

enum work { LOCK, CHECKPOINT, RESTORE, UNLOCK, GET_STATE, GET_THREAD };

struct answer {
	CUresult result;
	int value;
};

static int restore_thread;

/* The other threads' calls wait from here on. */
static CUresult lock_process(void)
{
	CUresult result;

	sim_lock();
	result = step(RUNNING, LOCKED);
	if (result != CUDA_SUCCESS)
		sim_unlock();
	return result;
}

static CUresult unlock_process(void)
{
	CUresult result = step(LOCKED, RUNNING);

	if (result == CUDA_SUCCESS)
		sim_unlock();
	return result;
}

static CUresult checkpoint_process(void)
{
	CUresult result = step(LOCKED, CHECKPOINTED);

	if (result != CUDA_SUCCESS)
		return result;
	close_device_files();
	sim_move_all_memory();
	return result;
}

static CUresult restore_process(void)
{
	CUresult result = step(CHECKPOINTED, LOCKED);

	if (result != CUDA_SUCCESS)
		return result;
	for (unsigned i = 0; i < REOPENED; i++) {
		open_device_files();
		close_device_files();
	}
	open_device_files();
	return result;
}

static struct answer work_on(enum work work)
{
	switch (work) {
	case LOCK:
		return (struct answer){.result = lock_process()};
	case CHECKPOINT:
		return (struct answer){.result = checkpoint_process()};
	case RESTORE:
		return (struct answer){.result = restore_process()};
	case UNLOCK:
		return (struct answer){.result = unlock_process()};
	case GET_STATE:
		return (struct answer){.value = (int)state};
	case GET_THREAD:
		return (struct answer){.value = restore_thread};
	}
	return (struct answer){.result = CUDA_ERROR_INVALID_VALUE};
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* In no folder: a process that ends leaves nothing behind. */
static socklen_t address_of(int pid, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
					    "simulated-cuda.%d", pid));
}

static void *serve(void *arg)
{
	int listening = (int)(intptr_t)arg;

	__atomic_store_n(&restore_thread, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	for (;;) {
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
		enum work work;

		if (fd < 0)
			continue;
		while (recv(fd, &work, sizeof(work), 0) == (ssize_t)sizeof(work)) {
			struct answer answer = work_on(work);

			send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
		}
		syscall(SYS_close, fd);
	}
	return NULL;
}

void sim_checkpoint_start(void)
{
	struct sockaddr_un address;
	socklen_t length = address_of(getpid(), &address);
	sigset_t all, before;
	pthread_t thread;
	int fd;

	if (!sim_options.checkpoint)
		return;
	open_device_files();
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 4) != 0) {
		sim_complain("simulated libcuda: SIM_CHECKPOINT: no socket: %s", strerror(errno));
		return;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0) {
		pthread_detach(thread);
		while (!__atomic_load_n(&restore_thread, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- asking another process's thread -------------------------------------------------------- */

static struct answer ask(int pid, enum work work)
{
	struct answer answer = {.result = CUDA_ERROR_INVALID_VALUE};
	struct sockaddr_un address;
	socklen_t length = address_of(pid, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return answer;
	if (connect(fd, (struct sockaddr *)&address, length) == 0 &&
	    send(fd, &work, sizeof(work), MSG_NOSIGNAL) == (ssize_t)sizeof(work) &&
	    recv(fd, &answer, sizeof(answer), 0) != (ssize_t)sizeof(answer))
		answer.result = CUDA_ERROR_UNKNOWN;
	syscall(SYS_close, fd);
	return answer;
}

static bool is_own(int pid)
{
	return pid == getpid();
}

SIM_CALL(cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs *args), (pid, args))
{
	(void)args;
	return is_own(pid) ? step(RUNNING, LOCKED) : ask(pid, LOCK).result;
}

SIM_CALL(cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs *args), (pid, args))
{
	(void)args;
	return is_own(pid) ? step(LOCKED, RUNNING) : ask(pid, UNLOCK).result;
}

SIM_CALL(cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs *args), (pid, args))
{
	CUresult result;

	(void)args;
	if (!is_own(pid))
		return ask(pid, CHECKPOINT).result;
	result = step(LOCKED, CHECKPOINTED);
	if (result == CUDA_SUCCESS)
		sim_move_all_memory();
	return result;
}

SIM_CALL(cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs *args), (pid, args))
{
	(void)args;
	return is_own(pid) ? step(CHECKPOINTED, LOCKED) : ask(pid, RESTORE).result;
}

SIM_CALL(cuCheckpointProcessGetState, (int pid, int *out), (pid, out))
{
	struct answer answer = {.value = (int)state};

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_own(pid))
		answer = ask(pid, GET_STATE);
	if (answer.result == CUDA_SUCCESS)
		*out = answer.value;
	return answer.result;
}

SIM_CALL(cuCheckpointProcessGetRestoreThreadId, (int pid, int *tid), (pid, tid))
{
	struct answer answer = {.value = restore_thread};

	if (!tid)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_own(pid))
		answer = ask(pid, GET_THREAD);
	if (answer.result == CUDA_SUCCESS && !answer.value)
		answer.result = CUDA_ERROR_NOT_SUPPORTED; /* without SIM_CHECKPOINT */
	if (answer.result == CUDA_SUCCESS)
		*tid = answer.value;
	return answer.result;
}

/* No checkpoint here leaves its memory to the caller, so no handle is good. */
SIM_CALL(cuCheckpointOperationComplete, (CUcheckpointOperationHandle handle), (handle))
{
	(void)handle;
	return CUDA_ERROR_INVALID_HANDLE;
}
