/* SPDX-License-Identifier: MIT */
/* The recording libibverbs: RDMA between regions. */
#define _GNU_SOURCE
#include <string.h>

#include "recorder_parts.h"

static bool covers(const struct recorder_mr *m, uint64_t at, size_t length)
{
	return m->host && at >= m->iova && at - m->iova <= m->length &&
	       length <= m->length - (at - m->iova);
}

static enum recorder_status copy(uint32_t lkey, uint64_t from, uint32_t rkey, uint64_t to,
				 size_t length)
{
	struct recorder_mr *source = recorder_by_key(lkey), *target = recorder_by_key(rkey);

	if (!source || !covers(source, from, length))
		return RECORDER_LOCAL_ERROR;
	if (!target || !covers(target, to, length) || !(target->rights & IBV_ACCESS_REMOTE_WRITE))
		return RECORDER_REMOTE_ERROR;
	memmove(target->host + (to - target->iova), source->host + (from - source->iova), length);
	return RECORDER_OK;
}

EXPORT enum recorder_status recorder_copy(uint32_t lkey, uint64_t from, uint32_t rkey, uint64_t to,
					  size_t length)
{
	enum recorder_status status;

	recorder_lock();
	status = copy(lkey, from, rkey, to, length);
	recorder_unlock();
	return status;
}
