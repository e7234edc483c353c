// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * cq.c - completion queues.
 */
#include <linux/slab.h>

#include "hca.h"

static struct hca_cq *to_hca_cq(struct ib_cq *cq)
{
	return container_of(cq, struct hca_cq, ib);
}

int hca_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr, HCA_CREATE_CQ_REST)
{
	struct hca_cq *cq = to_hca_cq(ib);

	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > HCA_MAX_WORK)
		return -EINVAL;
	cq->ring = kvcalloc(attr->cqe, sizeof(*cq->ring), GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;
	spin_lock_init(&cq->lock);
	ib->cqe = attr->cqe;
	return 0;
}

int hca_destroy_cq(struct ib_cq *ib, struct ib_udata *udata)
{
	kvfree(to_hca_cq(ib)->ring);
	return 0;
}

static void overrun(struct ib_cq *ib)
{
	struct ib_event event = {.device = ib->device, .event = IB_EVENT_CQ_ERR, .element.cq = ib};

	if (ib->event_handler)
		ib->event_handler(&event, ib->cq_context);
}

void hca_complete(struct ib_cq *ib, const struct ib_wc *wc)
{
	struct hca_cq *cq = to_hca_cq(ib);
	bool has_space, notify;

	spin_lock(&cq->lock);
	has_space = cq->count < ib->cqe;
	if (has_space)
		cq->ring[(cq->first + cq->count++) % ib->cqe] = *wc;
	notify = has_space && cq->armed;
	if (notify)
		cq->armed = false;
	spin_unlock(&cq->lock);
	if (!has_space)
		overrun(ib);
	if (notify)
		ib->comp_handler(ib, ib->cq_context);
}

int hca_poll_cq(struct ib_cq *ib, int max, struct ib_wc *wc)
{
	struct hca_cq *cq = to_hca_cq(ib);
	int taken = 0;

	spin_lock(&cq->lock);
	while (taken < max && cq->count) {
		wc[taken++] = cq->ring[cq->first];
		cq->first = (cq->first + 1) % ib->cqe;
		cq->count--;
	}
	spin_unlock(&cq->lock);
	return taken;
}

int hca_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags)
{
	struct hca_cq *cq = to_hca_cq(ib);
	int missed;

	spin_lock(&cq->lock);
	cq->armed = true;
	missed = flags & IB_CQ_REPORT_MISSED_EVENTS && cq->count;
	spin_unlock(&cq->lock);
	return missed;
}
