/* SPDX-License-Identifier: MIT */
/* Misses: pinning memory and inserting its region. */
#ifndef PDN_PIN_H
#define PDN_PIN_H

#include <stdint.h>

#include "cache/base/thread/thread.h"
#include "cache/pindown.h"

/*
 * A miss: find the allocation, pin it, insert it, hold it. The index had nothing here in its state
 * index_seq; odd: that is not known. flags: PINDOWN_GET_NOWAIT counts.
 */
int pdn_pin(uint64_t addr, uint64_t length, unsigned flags, uint64_t index_seq,
	    struct pindown_region **region);

/* Lock held. The live region that holds [addr, addr + length), held for the caller; or NULL. */
struct pindown_region *pdn_hold_locked(uint64_t addr, uint64_t length);

/* The error that pindown_driver_error() returns in this thread, if this result has one. */
static inline void pdn_set_driver_error(int result, int error)
{
	bool has_one = result == PINDOWN_ERR_DRIVER || result == PINDOWN_ERR_NO_SPACE ||
		       result == PINDOWN_ERR_NOT_DEVICE;
	struct pdn_thread *self = has_one ? pdn_self() : NULL;

	if (self)
		self->driver_error = error;
}

#endif
