/* SPDX-License-Identifier: MIT */
/*
 * The recording libibverbs: umems, for the recording libmlx5. They are here because closing a
 * device ends them, too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "recorder_parts.h"

/* All that were ever made stay in a list, as regions do. Protected by the lock. */
struct umem {
	struct pdn_mlx5_umem whole; /* must be first */
	struct umem *next;
	struct recorder_mr memory;
	uint32_t id;
	unsigned users; /* objects of the card */
};

static struct umem *all;
static uint32_t ids = 0x700;

/* Lock held. */
static struct umem *of_id(uint32_t id)
{
	struct umem *u = all;

	while (u && (u->id != id || !u->memory.open))
		u = u->next;
	return u;
}

/* Lock held. */
static struct umem *find(const struct mlx5dv_devx_umem *umem)
{
	for (struct umem *u = all; u; u = u->next)
		if (&u->whole.umem == umem && u->memory.open && u->id == umem->umem_id)
			return u;
	recorder_count_stranger("a umem", umem);
	return NULL;
}

static int error_of(const struct recorder_call *call, const struct mlx5dv_devx_umem_in *in)
{
	const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;

	if (in->comp_mask & ~(uint64_t)MLX5DV_UMEM_MASK_DMABUF)
		return EOPNOTSUPP;
	if (!call->length || call->access & ~rights || recorder_access_error(call->access))
		return EINVAL;
	if (in->comp_mask & MLX5DV_UMEM_MASK_DMABUF)
		return fcntl(call->fd, F_GETFD) < 0 ? EBADF : 0;
	return recorder_memory_error(in->addr, in->size);
}

/* Lock held. The structure is used again, which a program that keeps a pointer would notice. */
static struct umem *make(struct ibv_context *context, const struct mlx5dv_devx_umem_in *in)
{
	struct umem *u = all;

	while (u && u->memory.open)
		u = u->next;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return NULL;
		u->next = all;
		all = u;
	}
	ids++;
	*u = (struct umem){
		.whole = {{ids}, context, 0x10000 + ids, in->addr, in->size},
		.next = u->next,
		.memory = {.length = in->size, .host = in->addr, .fd = -1, .open = true},
		.id = ids,
	};
	return u;
}

/* Lock held. */
static int hold(struct umem *u, const struct mlx5dv_devx_umem_in *in)
{
#ifdef RECORDER_OLD
	return in->comp_mask ? EOPNOTSUPP : u ? 0 : ENOMEM;
#else
	if (!u)
		return ENOMEM;
	return in->comp_mask ? recorder_hold_dmabuf(&u->memory, in->dmabuf_fd, (uintptr_t)in->addr)
			     : 0;
#endif
}

EXPORT struct mlx5dv_devx_umem *recorder_umem_reg(enum recorder_verb verb,
						  struct ibv_context *context,
						  const struct mlx5dv_devx_umem_in *in)
{
	struct recorder_call call = {.verb = verb,
				     .addr = (uintptr_t)in->addr,
				     .length = in->size,
				     .access = (int)in->access,
				     .fd = in->comp_mask ? in->dmabuf_fd : -1,
				     .flags = in->pgsz_bitmap};
	struct umem *u = NULL;
	int error = recorder_begin(&call);

	if (!error)
		error = error_of(&call, in);
	recorder_lock();
	if (!error) {
		u = make(context, in);
		error = hold(u, in);
	}
	if (u && error) {
		recorder_release(&u->memory);
		u = NULL;
	}
	recorder_unlock();
	if (u)
		call.lkey = u->id;
	if (recorder_end(&call, error))
		errno = error;
	return u ? &u->whole.umem : NULL;
}

EXPORT int recorder_umem_dereg(struct mlx5dv_devx_umem *umem)
{
	struct recorder_call call = {.verb = RECORDER_UMEM_DEREG, .fd = -1};
	int error = recorder_begin(&call);
	struct umem *u;

	recorder_lock();
	u = find(umem);
	if (!u)
		error = EINVAL;
	else if (!error && u->users)
		error = EBUSY;
	if (!error) {
		call.lkey = u->id;
		recorder_release(&u->memory);
	}
	recorder_unlock();
	return recorder_end(&call, error);
}

void recorder_end_umems(const struct ibv_context *context)
{
	for (struct umem *u = all; u; u = u->next)
		if (u->memory.open && u->whole.context == context)
			recorder_release(&u->memory);
}

EXPORT unsigned recorder_open_umems(void)
{
	unsigned count = 0;

	recorder_lock();
	for (const struct umem *u = all; u; u = u->next)
		count += u->memory.open;
	recorder_unlock();
	return count;
}

EXPORT bool recorder_umem_use(uint32_t umem_id, bool begins)
{
	struct umem *u;

	recorder_lock();
	u = of_id(umem_id);
	if (u && begins)
		u->users++;
	else if (u)
		u->users--;
	recorder_unlock();
	return u != NULL;
}

EXPORT char *recorder_umem_bytes(uint32_t umem_id)
{
	const struct umem *u;
	char *bytes;

	recorder_lock();
	u = of_id(umem_id);
	bytes = u ? u->memory.host : NULL;
	recorder_unlock();
	return bytes;
}
