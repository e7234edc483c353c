/* SPDX-License-Identifier: MIT */
/* Completion queues, and the channels that report events of them. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "softnic.h"

/* ---- channels: the descriptor counts the events, the list says whose they are --------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = calloc(1, sizeof(*channel));

	if (!channel)
		return NULL;
	channel->ibv.context = context;
	channel->ibv.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (channel->ibv.fd < 0) {
		free(channel);
		return NULL;
	}
	return &channel->ibv;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	bool busy;

	lock();
	busy = ibv->refcnt;
	unlock();
	if (busy)
		return EBUSY;
	close(ibv->fd);
	free(ibv);
	return 0;
}

/* Needs the lock. */
static void add_event(struct queue *queue)
{
	struct channel *channel = (struct channel *)queue->ibv.channel;
	struct queue **last = &channel->events;
	uint64_t one = 1;

	if (!queue->unread++) {
		while (*last)
			last = &(*last)->next;
		queue->next = NULL;
		*last = queue;
	}
	if (write(channel->ibv.fd, &one, sizeof(one)) < 0)
		checks_report("an event is lost: %s", strerror(errno));
}

/* Needs the lock. */
static void remove_events(struct queue *queue)
{
	struct channel *channel = (struct channel *)queue->ibv.channel;
	struct queue **at = &channel->events;

	if (!queue->unread)
		return;
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	/*
	 * The descriptor keeps counting them: the reader that it wakes finds no queue in the list
	 * and waits again.
	 */
	queue->unread = 0;
}

/* The oldest queue that has events, or NULL. Needs the lock. */
static struct queue *take_event(struct channel *channel)
{
	struct queue *queue = channel->events;

	if (!queue)
		return NULL;
	if (!--queue->unread)
		channel->events = queue->next;
	queue->given++;
	return queue;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct queue *queue;
	uint64_t count;

	do {
		if (read(channel->fd, &count, sizeof(count)) < 0)
			return -1;
		lock();
		queue = take_event((struct channel *)channel);
		unlock();
	} while (!queue);
	*cq = &queue->ibv;
	*cq_context = queue->ibv.cq_context;
	return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}

/* ---- queues --------------------------------------------------------------------------------- */

/* As cards do. ib_send_lat -e relies on it: it has two completions at times, and asks for one. */
static int rounded(int cqe)
{
	int capacity = 64;

	while (capacity < cqe)
		capacity *= 2;
	return capacity;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector)
{
	struct queue *queue;

	if (cqe < 1 || cqe > MAX_CQE || vector < 0 || vector >= context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return NULL;
	cqe = rounded(cqe);
	queue->ring = calloc(cqe, sizeof(*queue->ring));
	if (!queue->ring) {
		free(queue);
		return NULL;
	}
	queue->capacity = cqe;
	queue->ibv.context = context;
	queue->ibv.channel = channel;
	queue->ibv.cq_context = cq_context;
	queue->ibv.cqe = cqe;
	pthread_mutex_init(&queue->ibv.mutex, NULL);
	pthread_cond_init(&queue->ibv.cond, NULL);
	lock();
	if (channel)
		channel->refcnt++;
	unlock();
	return &queue->ibv;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct queue *queue = (struct queue *)cq;

	lock();
	if (queue->users) {
		unlock();
		return EBUSY;
	}
	if (cq->channel) {
		remove_events(queue);
		cq->channel->refcnt--;
	}
	unlock();
	pthread_mutex_lock(&cq->mutex);
	while (cq->comp_events_completed != queue->given)
		pthread_cond_wait(&cq->cond, &cq->mutex);
	pthread_mutex_unlock(&cq->mutex);
	free(queue->ring);
	free(queue);
	return 0;
}

/* Needs the lock. */
static struct ibv_wc *completion_at(struct queue *queue, uint32_t index)
{
	return &queue->ring[(queue->first + index) % queue->capacity];
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct queue *queue = (struct queue *)cq;
	struct ibv_wc *ring;

	if (cqe < 1 || cqe > MAX_CQE)
		return EINVAL;
	cqe = rounded(cqe);
	ring = calloc(cqe, sizeof(*ring));
	if (!ring)
		return ENOMEM;
	lock();
	if (queue->count > (uint32_t)cqe) {
		unlock();
		free(ring);
		return EINVAL;
	}
	for (uint32_t i = 0; i < queue->count; i++)
		ring[i] = *completion_at(queue, i);
	free(queue->ring);
	queue->ring = ring;
	queue->first = 0;
	queue->capacity = cq->cqe = cqe;
	unlock();
	return 0;
}

void completion_add(struct ibv_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	struct queue *queue = (struct queue *)cq;

	if (queue->count == queue->capacity) {
		if (!queue->overrun)
			checks_report("overrun of a completion queue of %u", queue->capacity);
		queue->overrun = true;
		return;
	}
	*completion_at(queue, queue->count) = *wc;
	/* Release: with ibv_poll_cq's look at it without the lock. */
	__atomic_store_n(&queue->count, queue->count + 1, __ATOMIC_RELEASE);
	if (queue->armed == ARMED_ANY ||
	    (queue->armed == ARMED_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS))) {
		queue->armed = UNARMED;
		if (cq->channel)
			add_event(queue);
	}
}

void completion_forget(struct ibv_cq *cq, uint32_t qp_num)
{
	struct queue *queue = (struct queue *)cq;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < queue->count; i++) {
		struct ibv_wc wc = *completion_at(queue, i);

		if (wc.qp_num != qp_num)
			*completion_at(queue, kept++) = wc;
	}
	__atomic_store_n(&queue->count, kept, __ATOMIC_RELEASE);
}

int completion_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	struct queue *queue = (struct queue *)cq;
	int taken;

	/*
	 * Programs poll without a pause: they must not keep the service thread from the lock and
	 * from the processor. The store that this may miss is seen by the next poll.
	 */
	if (!__atomic_load_n(&queue->count, __ATOMIC_ACQUIRE)) {
		sched_yield();
		return 0;
	}
	lock();
	for (taken = 0; taken < count && queue->count; taken++) {
		wc[taken] = *completion_at(queue, 0);
		queue->first = (queue->first + 1) % queue->capacity;
		__atomic_store_n(&queue->count, queue->count - 1, __ATOMIC_RELEASE);
	}
	unlock();
	return taken;
}

int completion_arm(struct ibv_cq *cq, int solicited_only)
{
	struct queue *queue = (struct queue *)cq;

	lock();
	/* The wider one stays. */
	if (queue->armed != ARMED_ANY)
		queue->armed = solicited_only ? ARMED_SOLICITED : ARMED_ANY;
	unlock();
	return 0;
}
