/* SPDX-License-Identifier: MIT */
/* The recording libibverbs: memory regions. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "recorder_parts.h"

#define PAGE	      4096u
#define REMOTE_WRITES (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Under the lock. */
static struct recorder_mr *all;
static uint32_t keys = 0x1000;
static uint64_t most_bytes;
static unsigned most_regions, strangers;
static int dmabuf_access = IBV_ACCESS_LOCAL_WRITE | REMOTE_WRITES | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_RELAXED_ORDERING;

/* ---- the list ------------------------------------------------------------------------------------ */

struct recorder_mr *recorder_find(const struct ibv_mr *mr)
{
	for (struct recorder_mr *m = all; m; m = m->next)
		if (&m->verbs.mr == mr && m->open)
			return m;
	strangers++;
	fprintf(stderr, "recorder: %p is not a memory region of libibverbs\n", (const void *)mr);
	return NULL;
}

struct recorder_mr *recorder_by_key(uint32_t key)
{
	for (struct recorder_mr *m = all; m; m = m->next)
		if (m->open && m->verbs.mr.lkey == key)
			return m;
	return NULL;
}

struct sum {
	unsigned regions, dmabufs;
	uint64_t bytes;
};

static struct sum open_ones(void)
{
	struct sum sum = {0};

	for (const struct recorder_mr *m = all; m; m = m->next) {
		if (!m->open || m->imported)
			continue;
		sum.regions++;
		if (m->fd >= 0) {
			sum.dmabufs++;
			sum.bytes += m->verbs.mr.length;
		}
	}
	return sum;
}

EXPORT unsigned recorder_open_mrs(void)
{
	struct sum sum;

	recorder_lock();
	sum = open_ones();
	recorder_unlock();
	return sum.regions;
}

EXPORT unsigned recorder_open_dmabuf_mrs(void)
{
	struct sum sum;

	recorder_lock();
	sum = open_ones();
	recorder_unlock();
	return sum.dmabufs;
}

EXPORT uint64_t recorder_open_dmabuf_bytes(void)
{
	struct sum sum;

	recorder_lock();
	sum = open_ones();
	recorder_unlock();
	return sum.bytes;
}

EXPORT unsigned recorder_strangers(void)
{
	return __atomic_load_n(&strangers, __ATOMIC_RELAXED);
}

EXPORT void recorder_limit(uint64_t bytes, unsigned regions)
{
	recorder_lock();
	most_bytes = bytes;
	most_regions = regions;
	recorder_unlock();
}

EXPORT void recorder_dmabuf_access(int flags)
{
	recorder_lock();
	dmabuf_access = flags;
	recorder_unlock();
}

/* The record is used again, which a program that keeps a pointer would notice too. */
struct recorder_mr *recorder_new(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				 int access)
{
	struct recorder_mr *m = all;

	while (m && m->open)
		m = m->next;
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return NULL;
		m->next = all;
		all = m;
	}
	m->verbs.mr =
		(struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length};
	m->verbs.mr.lkey = m->verbs.mr.rkey = m->verbs.mr.handle = ++keys;
	m->verbs.access = access;
	m->verbs.type = PD_MR_TYPE_MR;
	m->iova = iova;
	m->fd = -1;
	m->bound = 0;
	m->imported = false;
	m->open = true;
	((struct recorder_pd *)pd)->users++;
	return m;
}

static void end_mr(struct recorder_mr *m)
{
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	m->open = false;
}

void recorder_end_all(const struct ibv_context *context)
{
	for (struct recorder_mr *m = all; m; m = m->next)
		if (m->open && m->verbs.mr.context == context)
			end_mr(m);
}

/* ---- what a kernel checks ------------------------------------------------------------------------ */

static int access_error(int access)
{
	return access & REMOTE_WRITES && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/* Lock held. */
static int limit_error(uint64_t length)
{
	if (most_bytes && length > most_bytes)
		return ENOMEM;
	return most_regions && open_ones().regions >= most_regions ? ENOMEM : 0;
}

static bool is_readable(const void *addr)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)addr, 1};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

/* An address of the host's, or one that nvidia-peermem would take. */
static int memory_error(const void *addr, size_t length)
{
	if (__atomic_load_n(&recorder_has_peermem, __ATOMIC_RELAXED) || !length)
		return 0;
	return is_readable(addr) && is_readable((const char *)addr + length - 1) ? 0 : EFAULT;
}

static int host_error(const struct recorder_call *call)
{
	if (access_error(call->access))
		return EINVAL;
	if ((call->addr ^ call->iova) % PAGE && !(call->access & IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	return call->access & IBV_ACCESS_ON_DEMAND
		       ? EOPNOTSUPP
		       : memory_error((const void *)(uintptr_t)call->addr, call->length);
}

#ifndef RECORDER_OLD
static int dmabuf_error(const struct recorder_call *call)
{
	if (access_error(call->access) || call->access & ~dmabuf_access)
		return EINVAL;
	if ((call->addr ^ call->iova) % PAGE || !call->length ||
	    call->iova + call->length - 1 < call->iova)
		return EINVAL;
	return fcntl(call->fd, F_GETFD) < 0 ? EBADF : 0;
}
#endif

/* ---- registering --------------------------------------------------------------------------------- */

static struct ibv_mr *made(struct recorder_mr *m, struct recorder_call *call, int error)
{
	if (m)
		call->lkey = m->verbs.mr.lkey;
	recorder_end(call, error);
	if (error)
		errno = error;
	return m ? &m->verbs.mr : NULL;
}

static struct ibv_mr *reg_host(enum recorder_verb verb, struct ibv_pd *pd, void *addr,
			       size_t length, uint64_t iova, int access)
{
	struct recorder_call call = {.verb = verb,
				     .pd = pd,
				     .addr = (uintptr_t)addr,
				     .length = length,
				     .iova = iova,
				     .access = access,
				     .fd = -1};
	struct recorder_mr *m = NULL;
	int error = recorder_begin(&call);

	if (!error)
		error = host_error(&call);
	recorder_lock();
	if (!error)
		error = limit_error(length);
	if (!error) {
		m = recorder_new(pd, addr, length, access & IBV_ACCESS_ZERO_BASED ? 0 : iova,
				 access);
		error = m ? 0 : ENOMEM;
	}
	recorder_unlock();
	return made(m, &call, error);
}

/* Two versions of a name need the long form. */
EXPORT struct ibv_mr *recorder_reg_mr_1_1(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg_host(RECORDER_REG_MR, pd, addr, length, (uintptr_t)addr, access);
}
__asm__(".symver recorder_reg_mr_1_1, ibv_reg_mr@@IBVERBS_1.1");

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      int access)
{
	return reg_host(RECORDER_REG_MR_IOVA, pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       unsigned access)
{
	return reg_host(RECORDER_REG_MR_IOVA2, pd, addr, length, iova, (int)access);
}

#ifndef RECORDER_OLD
EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	struct recorder_call call = {.verb = RECORDER_REG_DMABUF_MR,
				     .pd = pd,
				     .addr = offset,
				     .length = length,
				     .iova = iova,
				     .access = access,
				     .fd = fd};
	struct recorder_mr *m = NULL;
	int error = recorder_begin(&call), own = -1;

	if (!error)
		error = dmabuf_error(&call);
	if (!error && (own = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		error = errno;
	recorder_lock();
	if (!error)
		error = limit_error(length);
	if (!error) {
		off_t start = lseek(own, 0, SEEK_CUR); /* of the simulated driver's: see sim.h */

		m = recorder_new(pd, (void *)(uintptr_t)offset, length, iova, access);
		error = m ? 0 : ENOMEM;
		if (m) {
			m->verbs.type = PD_MR_TYPE_DMABUF;
			m->fd = own;
			m->offset = (start > 0 ? (uint64_t)start : 0) + offset;
		}
	}
	recorder_unlock();
	if (error && own >= 0)
		close(own);
	return made(m, &call, error);
}
#endif

/* ---- changing and ending ------------------------------------------------------------------------- */

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
			int access)
{
	struct recorder_call call = {.verb = RECORDER_REREG_MR,
				     .pd = pd,
				     .addr = (uintptr_t)addr,
				     .length = length,
				     .access = access,
				     .fd = -1};
	int error = recorder_begin(&call), result = error ? IBV_REREG_MR_ERR_CMD : 0;
	struct recorder_mr *m;

	recorder_lock();
	m = recorder_find(mr);
	if (!m || m->verbs.type != PD_MR_TYPE_MR) {
		error = EINVAL;
		result = IBV_REREG_MR_ERR_INPUT;
	} else if (!error) {
		if (flags & IBV_REREG_MR_CHANGE_PD) {
			((struct recorder_pd *)mr->pd)->users--;
			mr->pd = pd;
			((struct recorder_pd *)pd)->users++;
		}
		if (flags & IBV_REREG_MR_CHANGE_ACCESS)
			m->verbs.access = access;
		if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
			mr->addr = addr;
			mr->length = length;
			m->iova = (uintptr_t)addr;
		}
		mr->lkey = mr->rkey = ++keys;
	}
	recorder_unlock();
	recorder_end(&call, error);
	if (error)
		errno = error;
	return result;
}

EXPORT int recorder_dereg_mr_1_1(struct ibv_mr *mr)
{
	struct recorder_call call = {.verb = RECORDER_DEREG_MR, .fd = -1};
	int error = recorder_begin(&call);
	struct recorder_mr *m;

	recorder_lock();
	m = recorder_find(mr);
	if (!m) {
		error = EINVAL;
	} else if (!error) {
		call.lkey = mr->lkey;
		call.length = mr->length;
		error = m->bound ? EBUSY : 0;
	}
	if (!error) {
		((struct recorder_pd *)mr->pd)->users--;
		end_mr(m);
	}
	recorder_unlock();
	return recorder_end(&call, error);
}
__asm__(".symver recorder_dereg_mr_1_1, ibv_dereg_mr@@IBVERBS_1.1");

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct recorder_call call = {.verb = RECORDER_IMPORT_MR, .pd = pd, .fd = -1};
	int error = recorder_begin(&call);
	struct recorder_mr *of, *m = NULL;

	recorder_lock();
	of = error ? NULL : recorder_by_key(handle);
	if (!error && !of)
		error = ENOENT;
	if (of)
		m = recorder_new(pd, NULL, of->verbs.mr.length, of->iova, 0);
	if (m) {
		m->imported = true;
		m->verbs.type = PD_MR_TYPE_IMPORTED;
		m->verbs.mr.handle = handle;
	}
	recorder_unlock();
	return made(m, &call, error);
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	struct recorder_call call = {.verb = RECORDER_UNIMPORT_MR, .fd = -1};
	struct recorder_mr *m;

	recorder_begin(&call);
	recorder_lock();
	m = recorder_find(mr);
	if (m) {
		((struct recorder_pd *)mr->pd)->users--;
		end_mr(m);
	}
	recorder_unlock();
	recorder_end(&call, m ? 0 : EINVAL);
}
