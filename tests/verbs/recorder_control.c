/* SPDX-License-Identifier: MIT */
/* The recording libibverbs: the record of calls, and the failures that a test sets. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorder_parts.h"

static const char *const names[RECORDER_VERBS] = {
	[RECORDER_OPEN_DEVICE] = "open_device",
	[RECORDER_CLOSE_DEVICE] = "close_device",
	[RECORDER_ALLOC_PD] = "alloc_pd",
	[RECORDER_DEALLOC_PD] = "dealloc_pd",
	[RECORDER_REG_MR] = "reg_mr",
	[RECORDER_REG_MR_IOVA] = "reg_mr_iova",
	[RECORDER_REG_MR_IOVA2] = "reg_mr_iova2",
	[RECORDER_REG_DMABUF_MR] = "reg_dmabuf_mr",
	[RECORDER_REREG_MR] = "rereg_mr",
	[RECORDER_DEREG_MR] = "dereg_mr",
	[RECORDER_IMPORT_MR] = "import_mr",
	[RECORDER_UNIMPORT_MR] = "unimport_mr",
	[RECORDER_IMPORT_PD] = "import_pd",
	[RECORDER_UNIMPORT_PD] = "unimport_pd",
	[RECORDER_BIND_MW] = "bind_mw",
	[RECORDER_REG_MR_EX] = "reg_mr_ex",
	[RECORDER_MLX5_REG_DMABUF_MR] = "mlx5dv_reg_dmabuf_mr",
	[RECORDER_UMEM_REG] = "devx_umem_reg",
	[RECORDER_UMEM_REG_EX] = "devx_umem_reg_ex",
	[RECORDER_UMEM_DEREG] = "devx_umem_dereg",
};

bool recorder_has_peermem;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Protected by the lock. */
static struct {
	unsigned calls, failed;
	unsigned to_fail; /* UINT32_MAX: all calls */
	int error;
	struct recorder_call last;
	void (*callback)(void *arg);
	void *arg;
} verbs[RECORDER_VERBS];
static FILE *journal;

void recorder_lock(void)
{
	pthread_mutex_lock(&lock);
}

void recorder_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

int recorder_begin(struct recorder_call *call)
{
	void (*callback)(void *arg);
	void *arg;
	int error = 0;

	recorder_lock();
	if (verbs[call->verb].to_fail) {
		error = verbs[call->verb].error;
		if (verbs[call->verb].to_fail != UINT32_MAX)
			verbs[call->verb].to_fail--;
	}
	callback = verbs[call->verb].callback;
	arg = verbs[call->verb].arg;
	recorder_unlock();
	if (callback)
		callback(arg);
	return error;
}

int recorder_end(const struct recorder_call *call, int error)
{
	recorder_lock();
	verbs[call->verb].calls++;
	verbs[call->verb].failed += error != 0;
	verbs[call->verb].last = *call;
	verbs[call->verb].last.error = error;
	if (journal) {
		fprintf(journal, "%s length %llu access %#x: %s\n", names[call->verb],
			(unsigned long long)call->length, (unsigned)call->access,
			error ? strerror(error) : "ok");
		fflush(journal);
	}
	recorder_unlock();
	return error;
}

EXPORT unsigned recorder_calls(enum recorder_verb verb)
{
	unsigned count;

	recorder_lock();
	count = verbs[verb].calls;
	recorder_unlock();
	return count;
}

EXPORT unsigned recorder_failed(enum recorder_verb verb)
{
	unsigned count;

	recorder_lock();
	count = verbs[verb].failed;
	recorder_unlock();
	return count;
}

EXPORT bool recorder_last(enum recorder_verb verb, struct recorder_call *call)
{
	bool any;

	recorder_lock();
	any = verbs[verb].calls != 0;
	*call = verbs[verb].last;
	recorder_unlock();
	return any;
}

EXPORT void recorder_fail(enum recorder_verb verb, unsigned count, int error)
{
	recorder_lock();
	verbs[verb].to_fail = count;
	verbs[verb].error = error;
	recorder_unlock();
}

EXPORT void recorder_meanwhile(enum recorder_verb verb, void (*callback)(void *arg), void *arg)
{
	recorder_lock();
	verbs[verb].callback = callback;
	verbs[verb].arg = arg;
	recorder_unlock();
}

EXPORT void recorder_peermem(bool there)
{
	__atomic_store_n(&recorder_has_peermem, there, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void loaded(void)
{
	const char *dmabuf = getenv("RECORDER_DMABUF"), *peermem = getenv("RECORDER_PEERMEM");
	const char *log = getenv("RECORDER_LOG");

	if (dmabuf)
		recorder_fail(RECORDER_REG_DMABUF_MR, UINT32_MAX,
			      strcmp(dmabuf, "no") == 0 ? EOPNOTSUPP : atoi(dmabuf));
	recorder_has_peermem = peermem && strcmp(peermem, "1") == 0;
	if (log)
		journal = strcmp(log, "-") == 0 ? stderr : fopen(log, "ae");
}
