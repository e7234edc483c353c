/* SPDX-License-Identifier: MIT */
/* Queues of posted receives, of a queue pair's own and shared ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "softnic.h"

int receive_queue_begin(struct receive_queue *queue, uint32_t capacity, uint32_t max_sge)
{
	if (capacity > MAX_WR || max_sge > MAX_SGE)
		return EINVAL;
	*queue = (struct receive_queue){.capacity = capacity, .max_sge = max_sge};
	if (capacity)
		queue->ring = calloc(capacity, sizeof(*queue->ring));
	return capacity && !queue->ring ? ENOMEM : 0;
}

void receive_queue_end(struct receive_queue *queue)
{
	free(queue->ring);
}

int receive_add(struct receive_queue *queue, const struct ibv_recv_wr *wr)
{
	struct receive *receive;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge)
		return EINVAL;
	if (queue->count == queue->capacity)
		return ENOMEM;
	receive = &queue->ring[(queue->first + queue->count++) % queue->capacity];
	receive->wr_id = wr->wr_id;
	receive->count = wr->num_sge;
	if (wr->num_sge)
		memcpy(receive->sge, wr->sg_list, wr->num_sge * sizeof(*wr->sg_list));
	return 0;
}

bool receive_take(struct receive_queue *queue, struct receive *receive)
{
	if (!queue->count)
		return false;
	*receive = queue->ring[queue->first];
	queue->first = (queue->first + 1) % queue->capacity;
	queue->count--;
	return true;
}

/* ---- shared receive queues ------------------------------------------------------------------ */

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct shared_queue *shared = calloc(1, sizeof(*shared));
	int error = ENOMEM;

	if (shared)
		error = receive_queue_begin(&shared->queue, init->attr.max_wr, init->attr.max_sge);
	if (!error && !init->attr.max_wr)
		error = EINVAL;
	if (error) {
		free(shared);
		errno = error;
		return NULL;
	}
	shared->ibv.context = pd->context;
	shared->ibv.srq_context = init->srq_context;
	shared->ibv.pd = pd;
	pthread_mutex_init(&shared->ibv.mutex, NULL);
	pthread_cond_init(&shared->ibv.cond, NULL);
	domain_use(pd);
	return &shared->ibv;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct shared_queue *shared = (struct shared_queue *)srq;
	bool busy;

	lock();
	busy = shared->users;
	unlock();
	if (busy)
		return EBUSY;
	domain_unuse(srq->pd);
	receive_queue_end(&shared->queue);
	free(shared);
	return 0;
}

/* There are no limit events, and no other sizes. */
EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	(void)srq, (void)attr;
	return mask ? EOPNOTSUPP : 0;
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct shared_queue *shared = (struct shared_queue *)srq;

	*attr = (struct ibv_srq_attr){.max_wr = shared->queue.capacity,
				      .max_sge = shared->queue.max_sge};
	return 0;
}

int receive_post_shared(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int error = 0;

	lock();
	for (; wr && !error; wr = error ? wr : wr->next)
		error = receive_add(&((struct shared_queue *)srq)->queue, wr);
	unlock();
	if (error)
		*bad = wr;
	return error;
}
