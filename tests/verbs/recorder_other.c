/* SPDX-License-Identifier: MIT */
/*
 * The recording libibverbs: the calls of IBVERBS_1.0, and those that the inline functions of
 * verbs.h make.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "recorder_parts.h"

/* ---- IBVERBS_1.0, which comes to the calls of 1.1 as libibverbs' own does ------------------- */

EXPORT struct recorder_mr_1_0 *recorder_reg_mr_1_0(struct recorder_pd_1_0 *pd, void *addr,
						   size_t length, int access)
{
	struct recorder_mr_1_0 *mr = calloc(1, sizeof(*mr));
	struct ibv_mr *real =
		mr ? ibv_reg_mr_iova2(pd->real_pd, addr, length, (uintptr_t)addr, (unsigned)access)
		   : NULL;

	if (!real) {
		free(mr);
		return NULL;
	}
	*mr = (struct recorder_mr_1_0){pd->context, pd, real->handle, real->lkey, real->rkey, real};
	return mr;
}
RECORDER_OLD_VERSION(recorder_reg_mr_1_0, ibv_reg_mr, "IBVERBS_1.0");

EXPORT int recorder_dereg_mr_1_0(struct recorder_mr_1_0 *mr)
{
	int error = ibv_dereg_mr(mr->real_mr);

	if (!error)
		free(mr);
	return error;
}
RECORDER_OLD_VERSION(recorder_dereg_mr_1_0, ibv_dereg_mr, "IBVERBS_1.0");

/* ---- what the inline functions of verbs.h come to ------------------------------------------- */

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	int type;
	struct recorder_mr *on;
};

struct ibv_mw *recorder_alloc_mw(struct ibv_pd *pd, int type)
{
	struct ibv_mw *mw = calloc(1, sizeof(*mw));

	if (mw)
		*mw = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type};
	return mw;
}

static void unbind(struct ibv_mw *mw)
{
	if (mw->on)
		mw->on->bound--;
	mw->on = NULL;
}

int recorder_dealloc_mw(struct ibv_mw *mw)
{
	recorder_lock();
	unbind(mw);
	recorder_unlock();
	free(mw);
	return 0;
}

/* struct ibv_mw_bind: wr_id, flags, then the region. Providers first read the members after it. */
int recorder_bind_mw(void *qp, struct ibv_mw *mw, void *bind)
{
	struct recorder_call call = {.verb = RECORDER_BIND_MW, .fd = -1};
	struct ibv_mr *mr = *(struct ibv_mr **)((char *)bind + 16);
	int error = recorder_begin(&call);

	(void)qp;
	recorder_lock();
	if (!error && ((struct pdn_verbs_mr *)mr)->type != PDN_MR_TYPE_MR) {
		error = ENOTSUP;
	} else if (!error) {
		struct recorder_mr *m = recorder_find(mr);

		error = m && m->rights & IBV_ACCESS_MW_BIND ? 0 : EINVAL;
		if (!error) {
			unbind(mw);
			mw->on = m;
			m->bound++;
		}
	}
	recorder_unlock();
	return recorder_end(&call, error);
}

struct ibv_mr *recorder_alloc_null_mr(struct ibv_pd *pd)
{
	struct recorder_mr *m;

	recorder_lock();
	m = recorder_new(pd, NULL, SIZE_MAX, 0, 0);
	if (m)
		m->verbs.type = PDN_MR_TYPE_NULL;
	recorder_unlock();
	return m ? &m->verbs.mr : NULL;
}

/* Each lkey in a list of (address, length, lkey) must exist. */
int recorder_advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, void *list, uint32_t count)
{
	struct sge {
		uint64_t addr;
		uint32_t length, lkey;
	} *sge = list;
	int error = 0;

	(void)pd;
	(void)advice;
	(void)flags;
	recorder_lock();
	for (uint32_t i = 0; i < count && !error; i++)
		error = recorder_by_key(sge[i].lkey) ? 0 : EINVAL;
	recorder_unlock();
	return error;
}
