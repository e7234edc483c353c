/* SPDX-License-Identifier: MIT */
/* A slot's piece of memory comes and goes, and its ids are published to all threads. */
#include "races.h"

uint64_t driver_id(uint64_t at)
{
	unsigned long long id = 0;

	return cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, at) == CUDA_SUCCESS ? id
											      : 0;
}

/* The old ids have died when the driver's call has returned. Others still ask for the address. */
void slot_empty(struct slot *slot, uint64_t random)
{
	if (!slot->full)
		return;
	slot->full = false;
	slot->piece.kind->end(&slot->piece, random);
	for (unsigned part = 0; part < PARTS; part++)
		__atomic_store_n(&slot->dead[part], slot->id[part], __ATOMIC_RELEASE);
}

void slot_fill(struct slot *slot, uint64_t random)
{
	struct piece *piece = &slot->piece;

	piece->part = 0;
	slot->full = piece->kind->make(piece, random);
	if (!slot->full) {
		store(&slot->at, 0);
		return;
	}
	store(&slot->at, piece->at);
	store(&slot->size, piece->size);
	store(&slot->part, piece->part ? piece->part : piece->size);
	store(&slot->id[0], driver_id(piece->at));
	store(&slot->id[1], piece->part ? driver_id(piece->at + piece->part) : 0);
}

/* Makes the generation odd before the call; a full barrier publishes that. */
void slot_begin_change(struct slot *slot)
{
	__atomic_fetch_add(&slot->generation, 1, __ATOMIC_SEQ_CST);
}

void slot_end_change(struct slot *slot)
{
	__atomic_fetch_add(&slot->generation, 1, __ATOMIC_RELEASE);
}
