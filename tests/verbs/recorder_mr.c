/* SPDX-License-Identifier: MIT */
/* The recording libibverbs: memory regions. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "recorder_parts.h"

#define PAGE	      4096u
#define REMOTE_WRITES (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* Protected by the lock. */
static struct recorder_mr *all;
static uint32_t keys = 0x1000;
static uint64_t max_bytes;
static unsigned max_regions, strangers;
static int refused_mapping = -1; /* atomic */

/* ---- the list ------------------------------------------------------------------------------- */

/* A provider uses the handle, and libibverbs the address and the keys. */
static bool is_as_it_was_written(const struct recorder_mr *m)
{
	const struct ibv_mr *mr = &m->verbs.mr;

	return mr->handle == m->handle && mr->lkey == m->key && mr->rkey == m->key &&
	       mr->length == m->length && (m->dmabuf || mr->addr == (void *)m->host) &&
	       (m->verbs.type == PDN_MR_TYPE_DMABUF) == m->dmabuf;
}

void recorder_count_stranger(const char *what, const void *at)
{
	strangers++;
	fprintf(stderr, "recorder: %p is not %s of the library\n", at, what);
}

struct recorder_mr *recorder_find(const struct ibv_mr *mr)
{
	for (struct recorder_mr *m = all; m; m = m->next)
		if (&m->verbs.mr == mr && m->open && is_as_it_was_written(m))
			return m;
	recorder_count_stranger("a memory region", mr);
	return NULL;
}

struct recorder_mr *recorder_by_key(uint32_t key)
{
	for (struct recorder_mr *m = all; m; m = m->next)
		if (m->open && m->key == key)
			return m;
	return NULL;
}

struct sum {
	unsigned regions, dmabufs;
};

static struct sum open_ones(void)
{
	struct sum sum = {0};

	for (const struct recorder_mr *m = all; m; m = m->next) {
		if (!m->open || m->imported)
			continue;
		sum.regions++;
		sum.dmabufs += m->dmabuf;
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

EXPORT unsigned recorder_strangers(void)
{
	return __atomic_load_n(&strangers, __ATOMIC_RELAXED);
}

EXPORT void recorder_refuse_mapping(int pcie)
{
	__atomic_store_n(&refused_mapping, pcie, __ATOMIC_RELAXED);
}

EXPORT void recorder_limit(uint64_t bytes, unsigned regions)
{
	recorder_lock();
	max_bytes = bytes;
	max_regions = regions;
	recorder_unlock();
}

static void keep_busy(struct recorder_mr *m, struct ibv_pd *pd)
{
	m->keeps = ((struct recorder_pd *)pd)->regions_of;
	m->keeps->users++;
}

/* The structure is used again, which a program that keeps a pointer would notice, too. */
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
	keys++;
	*m = (struct recorder_mr){
		.verbs = {.mr = {.context = pd->context, .pd = pd, .addr = addr, .length = length},
			  .type = PDN_MR_TYPE_MR,
			  .access = access},
		.next = m->next,
		.key = keys,
		.handle = keys,
		.rights = access,
		.iova = iova,
		.length = length,
		.host = addr,
		.fd = -1,
		.open = true,
	};
	m->verbs.mr.lkey = m->verbs.mr.rkey = m->verbs.mr.handle = keys;
	keep_busy(m, pd);
	return m;
}

void recorder_release(struct recorder_mr *m)
{
	if (m->mapping)
		munmap(m->mapping, m->mapped);
	if (m->fd >= 0)
		close(m->fd);
	m->open = false;
}

static void end_mr(struct recorder_mr *m)
{
	m->keeps->users--;
	recorder_release(m);
}

void recorder_end_all(const struct ibv_context *context)
{
	for (struct recorder_mr *m = all; m; m = m->next)
		if (m->open && m->verbs.mr.context == context)
			end_mr(m);
}

/* ---- what a kernel checks ------------------------------------------------------------------- */

int recorder_access_error(int access)
{
	return access & REMOTE_WRITES && !(access & IBV_ACCESS_LOCAL_WRITE) ? EINVAL : 0;
}

/* Called with the lock held. */
static int limit_error(uint64_t length)
{
	if (max_bytes && length > max_bytes)
		return ENOMEM;
	return max_regions && open_ones().regions >= max_regions ? ENOMEM : 0;
}

static bool is_readable(const void *addr)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)addr, 1};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

/* Is it host memory, or memory that nvidia-peermem would accept? */
int recorder_memory_error(const void *addr, size_t length)
{
	if (__atomic_load_n(&recorder_has_peermem, __ATOMIC_RELAXED) || !length)
		return 0;
	return is_readable(addr) && is_readable((const char *)addr + length - 1) ? 0 : EFAULT;
}

static int host_error(const struct recorder_call *call)
{
	if (recorder_access_error(call->access))
		return EINVAL;
	if ((call->addr ^ call->iova) % PAGE && !(call->access & IBV_ACCESS_ZERO_BASED))
		return EINVAL;
	return call->access & IBV_ACCESS_ON_DEMAND
		       ? EOPNOTSUPP
		       : recorder_memory_error((const void *)(uintptr_t)call->addr, call->length);
}

#ifndef RECORDER_OLD
/* A descriptor of the simulated driver's says which mapping it has: see sim_dmabuf_is_pcie(). */
static bool is_refused(const struct recorder_call *call)
{
	int refused = __atomic_load_n(&refused_mapping, __ATOMIC_RELAXED);

	return refused >= 0 && ((fcntl(call->fd, F_GETFL) & O_NONBLOCK) != 0) == refused;
}

static int dmabuf_error(const struct recorder_call *call)
{
	const int rights = IBV_ACCESS_LOCAL_WRITE | REMOTE_WRITES | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_RELAXED_ORDERING;

	if (recorder_access_error(call->access) || call->access & ~rights)
		return EINVAL;
	if ((call->addr ^ call->iova) % PAGE || !call->length ||
	    call->iova + call->length - 1 < call->iova)
		return EINVAL;
	if (fcntl(call->fd, F_GETFD) < 0)
		return EBADF;
	return is_refused(call) ? 524 : 0; /* ENOTSUPP, the kernel's */
}
#endif

/* ---- registering ---------------------------------------------------------------------------- */

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
RECORDER_VERSION(recorder_reg_mr_1_1, ibv_reg_mr, "IBVERBS_1.1");

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
int recorder_hold_dmabuf(struct recorder_mr *m, int fd, uint64_t offset)
{
	off_t start = lseek(fd, 0, SEEK_CUR);
	uint64_t at = (start > 0 ? (uint64_t)start : 0) + offset, before = at % PAGE;

	m->verbs.type = PDN_MR_TYPE_DMABUF;
	m->dmabuf = true;
	m->mapped = m->length + before;
	m->mapping =
		mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(at - before));
	if (m->mapping != MAP_FAILED) {
		m->host = (char *)m->mapping + before;
		return 0;
	}
	m->mapping = m->host = NULL;
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return m->fd < 0 ? errno : 0;
}

EXPORT struct ibv_mr *recorder_reg_dmabuf(struct recorder_call *call, struct ibv_pd *pd)
{
	struct recorder_mr *m = NULL;
	int error = recorder_begin(call);

	call->pd = pd;
	if (!error)
		error = dmabuf_error(call);
	recorder_lock();
	if (!error)
		error = limit_error(call->length);
	if (!error) {
		m = recorder_new(pd, (void *)(uintptr_t)call->addr, call->length, call->iova,
				 call->access);
		error = m ? recorder_hold_dmabuf(m, call->fd, call->addr) : ENOMEM;
	}
	if (m && error) {
		end_mr(m);
		m = NULL;
	}
	recorder_unlock();
	return made(m, call, error);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access)
{
	struct recorder_call call = {.verb = RECORDER_REG_DMABUF_MR,
				     .addr = offset,
				     .length = length,
				     .iova = iova,
				     .access = access,
				     .fd = fd};

	return recorder_reg_dmabuf(&call, pd);
}

/* libibverbs itself refuses what is neither by address nor by a dma-buf with an iova. */
static bool is_well_formed(const struct ibv_mr_init_attr *attr)
{
	const uint64_t by_fd = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
	const uint64_t mask = attr->comp_mask & ~(uint64_t)IBV_REG_MR_MASK_DMAH;

	return mask == (by_fd | IBV_REG_MR_MASK_IOVA) ||
	       (mask & ~(uint64_t)IBV_REG_MR_MASK_IOVA) == IBV_REG_MR_MASK_ADDR;
}

EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	struct recorder_call call = {.verb = RECORDER_REG_MR_EX,
				     .length = attr->length,
				     .access = attr->access,
				     .flags = attr->comp_mask};

	if (!is_well_formed(attr)) {
		recorder_begin(&call);
		return made(NULL, &call, EINVAL);
	}
	if (attr->comp_mask & IBV_REG_MR_MASK_ADDR)
		return reg_host(RECORDER_REG_MR_EX, pd, attr->addr, attr->length,
				attr->comp_mask & IBV_REG_MR_MASK_IOVA ? attr->iova
								       : (uintptr_t)attr->addr,
				attr->access);
	call.addr = attr->fd_offset;
	call.iova = attr->iova;
	call.fd = attr->fd;
	return recorder_reg_dmabuf(&call, pd);
}
#endif

/* ---- changing and ending -------------------------------------------------------------------- */

/* The checks of libibverbs itself. */
static bool rereg_is_nonsense(const struct recorder_mr *m, int flags,
			      const struct recorder_call *call)
{
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD |
			IBV_REREG_MR_CHANGE_ACCESS;

	return !m || m->verbs.type != PDN_MR_TYPE_MR || flags & ~all ||
	       (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (!call->length || !call->addr)) ||
	       (call->access && !(flags & IBV_REREG_MR_CHANGE_ACCESS));
}

/* The checks of the kernel. */
static int rereg_error(const struct ibv_mr *mr, int flags, const struct recorder_call *call)
{
	bool is_foreign = flags & IBV_REREG_MR_CHANGE_PD && call->pd->context != mr->context;
	int error = !flags || is_foreign ? EINVAL : 0;

	if (!error && flags & IBV_REREG_MR_CHANGE_ACCESS)
		error = recorder_access_error(call->access);
	if (!error && flags & IBV_REREG_MR_CHANGE_TRANSLATION)
		error = recorder_memory_error((const void *)(uintptr_t)call->addr, call->length);
	return error;
}

/* Lock held. A region that is changed has new keys. */
static void change(struct recorder_mr *m, int flags, struct ibv_pd *pd,
		   const struct recorder_call *call)
{
	struct ibv_mr *mr = &m->verbs.mr;

	if (flags & IBV_REREG_MR_CHANGE_PD) {
		m->keeps->users--;
		mr->pd = pd;
		keep_busy(m, pd);
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->rights = call->access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = m->host = (char *)(uintptr_t)call->addr;
		m->length = mr->length = call->length;
		m->iova = call->addr;
	}
	m->key = mr->lkey = mr->rkey = ++keys;
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
			int access)
{
	struct recorder_call call = {.verb = RECORDER_REREG_MR,
				     .pd = pd,
				     .addr = (uintptr_t)addr,
				     .length = length,
				     .access = access,
				     .fd = -1};
	int error = recorder_begin(&call), result = 0;
	struct recorder_mr *m;

	recorder_lock();
	m = recorder_find(mr);
	if (rereg_is_nonsense(m, flags, &call)) {
		error = EINVAL;
		result = IBV_REREG_MR_ERR_INPUT;
	} else {
		if (!error)
			error = rereg_error(mr, flags, &call);
		if (error)
			result = IBV_REREG_MR_ERR_CMD;
		else
			change(m, flags, pd, &call);
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
	if (!error)
		end_mr(m);
	recorder_unlock();
	return recorder_end(&call, error);
}
RECORDER_VERSION(recorder_dereg_mr_1_1, ibv_dereg_mr, "IBVERBS_1.1");

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
		m = recorder_new(pd, NULL, of->length, of->iova, 0);
	if (m) {
		m->imported = true;
		m->verbs.type = PDN_MR_TYPE_IMPORTED;
		m->handle = m->verbs.mr.handle = handle;
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
	if (m)
		end_mr(m);
	recorder_unlock();
	recorder_end(&call, m ? 0 : EINVAL);
}
