/* SPDX-License-Identifier: MIT */
/* A slot's piece of memory comes and goes, and its ids are published to all threads. */
#include "races.h"

#include "cache/pindown.h"

unsigned long driver_forgot;

static bool ask(uint64_t at, uint64_t *id, CUresult *result)
{
	unsigned long long answer = 0;

	*result = cuPointerGetAttribute(&answer, CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
	*id = *result == CUDA_SUCCESS ? answer : 0;
	return *id != 0;
}

#define MOST_QUESTIONS 1000

uint64_t driver_id(const struct slot *slot, uint64_t at)
{
	bool is_pinnable = slot->piece.kind->refusal == PINDOWN_OK;
	CUresult result;
	uint64_t id;

	if (ask(at, &id, &result) || !is_pinnable)
		return id;
	for (unsigned i = 0; i < MOST_QUESTIONS; i++) {
		__atomic_fetch_add(&driver_forgot, 1, __ATOMIC_RELAXED);
		if (ask(at, &id, &result))
			return id;
	}
	driver(result, "cuPointerGetAttribute");
	return 0;
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
	store(&slot->id[0], driver_id(slot, piece->at));
	store(&slot->id[1], piece->part ? driver_id(slot, piece->at + piece->part) : 0);
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
