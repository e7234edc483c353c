/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints of this process. Device memory is saved and released; a restore allocates it at the
 * same addresses, in other memory: earlier exports show the old memory.
 */
#include <stdlib.h>
#include <unistd.h>

#include "contexts.h"
#include "core.h"
#include "memory.h"

enum state { RUNNING, LOCKED, CHECKPOINTED };

static enum state state;

static CUresult step(int pid, enum state from, enum state to)
{
	if (pid != getpid())
		return CUDA_ERROR_INVALID_VALUE; /* other processes are not simulated */
	if (state != from)
		return CUDA_ERROR_ILLEGAL_STATE;
	state = to;
	return CUDA_SUCCESS;
}

SIM_CALL(cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs *args), (pid, args))
{
	(void)args;
	return step(pid, RUNNING, LOCKED);
}

SIM_CALL(cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs *args), (pid, args))
{
	(void)args;
	return step(pid, LOCKED, RUNNING);
}

SIM_CALL(cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs *args), (pid, args))
{
	CUresult result = step(pid, LOCKED, CHECKPOINTED);

	(void)args;
	if (result == CUDA_SUCCESS)
		sim_move_all_memory();
	return result;
}

SIM_CALL(cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs *args), (pid, args))
{
	(void)args;
	return step(pid, CHECKPOINTED, LOCKED);
}

SIM_CALL(cuCheckpointProcessGetState, (int pid, int *out), (pid, out))
{
	if (!out || pid != getpid())
		return CUDA_ERROR_INVALID_VALUE;
	*out = state;
	return CUDA_SUCCESS;
}
