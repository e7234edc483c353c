/* SPDX-License-Identifier: MIT */
/* The recording libibverbs: RDMA between regions. */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "recorder_parts.h"

static bool covers(const struct recorder_mr *m, uint64_t at, size_t length)
{
	return at >= m->iova && at - m->iova <= m->verbs.mr.length &&
	       length <= m->verbs.mr.length - (at - m->iova);
}

/* A byte range of a region, read or written. */
static bool move(const struct recorder_mr *m, uint64_t at, char *bytes, size_t length, bool write)
{
	char *host = (char *)m->verbs.mr.addr + (at - m->iova);
	off_t in_file = (off_t)(m->offset + (at - m->iova));

	if (m->fd < 0) {
		memcpy(write ? host : bytes, write ? bytes : host, length);
		return true;
	}
	return (write ? pwrite(m->fd, bytes, length, in_file)
		      : pread(m->fd, bytes, length, in_file)) == (ssize_t)length;
}

static enum recorder_status copy(uint32_t lkey, uint64_t from, uint32_t rkey, uint64_t to,
				 size_t length)
{
	struct recorder_mr *source = recorder_by_key(lkey), *target = recorder_by_key(rkey);
	char bytes[4096];

	if (!source || !covers(source, from, length))
		return RECORDER_LOCAL_ERROR;
	if (!target || !covers(target, to, length) ||
	    !(target->verbs.access & IBV_ACCESS_REMOTE_WRITE))
		return RECORDER_REMOTE_ERROR;
	while (length) {
		size_t piece = length < sizeof(bytes) ? length : sizeof(bytes);

		if (!move(source, from, bytes, piece, false))
			return RECORDER_LOCAL_ERROR;
		if (!move(target, to, bytes, piece, true))
			return RECORDER_REMOTE_ERROR;
		from += piece;
		to += piece;
		length -= piece;
	}
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
