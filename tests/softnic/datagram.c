/* SPDX-License-Identifier: MIT */
/* Datagrams of UD queue pairs: address handles, and the arrival of a message. */
#include <errno.h>
#include <stdlib.h>

#include "softnic.h"

/* ---- address handles ------------------------------------------------------------------------ */

struct address_handle {
	struct ibv_ah ibv; /* must be first */
	uint16_t lid;
};

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct address_handle *handle;

	if (attr->port_num < 1 || attr->port_num > PORTS) {
		errno = EINVAL;
		return NULL;
	}
	handle = calloc(1, sizeof(*handle));
	if (!handle)
		return NULL;
	handle->ibv.context = pd->context;
	handle->ibv.pd = pd;
	handle->lid = lid_of(attr);
	domain_use(pd);
	return &handle->ibv;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	domain_unuse(ah->pd);
	free(ah);
	return 0;
}

uint16_t datagram_lid(const struct ibv_ah *ah)
{
	return ((const struct address_handle *)ah)->lid;
}

/* ---- arrival -------------------------------------------------------------------------------- */

/* The global route header comes first; its bytes stay as they are, since no packet has one. */
enum ibv_wc_status datagram_deliver(const struct queue_pair *qp, const struct packet *packet,
				    const uint8_t *payload)
{
	struct pieces pieces = {qp->ex.qp_base.pd, qp->receive.sge, qp->receive.count,
				qp->ex.qp_base.qp_num};

	if (packet->total + ROUTE_HEADER > pieces_length(pieces.sge, pieces.count))
		return IBV_WC_LOC_LEN_ERR;
	if (pieces_write(&pieces, ROUTE_HEADER, payload, packet->payload) != ACCESS_OK)
		return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}
